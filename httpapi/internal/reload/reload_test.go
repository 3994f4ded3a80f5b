package reload_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/httpapi/internal/reload"
)

// A change is seen after the interval and not before; a bad version is logged
// once and changes nothing.
func TestValue(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		loads := 0
		load := func() (string, error) {
			loads++
			body, err := os.ReadFile(path)
			if strings.HasPrefix(string(body), "bad") {
				return "", errors.New("bad content")
			}
			return string(body), err
		}
		var value *reload.Value[string]
		expect := func(want string, wantLoads int) {
			t.Helper()
			if got := value.Get(); got != want || loads != wantLoads {
				t.Errorf("got %q after %d loads, want %q after %d", got, loads, want, wantLoads)
			}
		}
		write("one")
		var err error
		value, err = reload.New(slog.New(slog.NewTextHandler(&log, nil)), load, path)
		if err != nil {
			t.Fatal(err)
		}
		write("two, longer")
		expect("one", 1) // not due yet
		time.Sleep(reload.Interval)
		expect("two, longer", 2)
		time.Sleep(reload.Interval)
		expect("two, longer", 2) // nothing has changed
		write("bad, and longer than before")
		time.Sleep(reload.Interval)
		expect("two, longer", 3)
		time.Sleep(reload.Interval)
		expect("two, longer", 4)
		if got := strings.Count(log.String(), "bad content"); got != 1 {
			t.Errorf("the fault was logged %d times:\n%s", got, log.String())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reload.Interval)
		expect("two, longer", 4)
		if err := os.Mkdir(path, 0o700); err != nil { // as little a file as a pipe, which would block
			t.Fatal(err)
		}
		time.Sleep(reload.Interval)
		expect("two, longer", 4)
		if !strings.Contains(log.String(), "not a regular file") {
			t.Errorf("log:\n%s", log.String())
		}
	})
}
