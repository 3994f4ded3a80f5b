package lockserver

import (
	"os"
	"testing"

	"github.com/fenced/fenced/tokens"
)

// Whatever stands in the closed key, granting is closed and there is a reason.
func FuzzDecodeClosure(f *testing.F) {
	f.Add(encode(closure{Version: formatVersion, Highest: 7, Reason: "rolled back"}))
	f.Add([]byte(`{"v":99,"h":-1}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, value []byte) {
		if c := decodeClosure(value); c.Reason == "" {
			t.Errorf("%q closes for no reason", value)
		}
	})
}

// An issued-token file is read as what it says, or refused: never as a lower token.
func FuzzIssuedFile(f *testing.F) {
	for _, s := range []string{
		"", "fenced issued 1 0000000000000007 open  \n", "fenced issued 1 0000000000000007 closed\n", "fenced issued 1 7 open",
		"fenced issued 1 00000000000000", "fenced issued 2 0000000000000007 open  \n", "fenced issued 1 -000000000000007 open  \n",
		"fenced issued 1 9999999999999999 open  \n",
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := os.CreateTemp(dir, "issued")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Remove(file.Name()) }()
		if _, err := file.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		read, fresh, err := openIssued(file.Name())
		if err != nil {
			return
		}
		highest, closed := read.highest, read.closed
		if highest < 0 || highest > int64(tokens.Max) || fresh || len(content) == 0 {
			t.Errorf("%q was read as %d, fresh: %v", content, highest, fresh)
		}
		read.dirty = true
		if err := read.close(); err != nil {
			t.Fatal(err)
		}
		again, _, err := openIssued(file.Name())
		if err != nil || again.highest != highest || again.closed != closed {
			t.Fatalf("%q was written back as %+v, %v", content, again, err)
		}
		_ = again.close()
	})
}
