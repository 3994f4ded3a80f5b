package keys_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apikey"
)

func generate(t *testing.T, grants ...apikey.Grant) (string, apikey.Key) {
	t.Helper()
	text, k, err := apikey.Generate("test", grants, apikey.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	return text, k
}

func TestStore_Lookup(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	text, k := generate(t, apikey.Grant{Role: keys.Admin, Prefixes: []string{""}})
	if err := apikey.Add(path, k); err != nil {
		t.Fatal(err)
	}
	store, err := keys.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := store.Lookup(text); got == nil || got.ID != k.ID || !got.Has(keys.Admin) {
		t.Errorf("got %+v", got)
	}
	other, _ := generate(t, apikey.Grant{Role: keys.Admin, Prefixes: []string{""}})
	for _, bad := range []string{
		"", "fk_", "fk__", text[:len(text)-1], text + "a", strings.ToUpper(text), strings.TrimPrefix(text, "fk_"), other,
		"fk_" + k.ID + "_", "fk_" + k.ID + "_" + k.SHA256,
	} {
		if got := store.Lookup(bad); got != nil {
			t.Errorf("%q was taken for %s", bad, got.ID)
		}
	}
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if secret := text[strings.LastIndex(text, "_")+1:]; strings.Contains(string(body), secret) {
		t.Error("the file holds the secret")
	}
}

// A change takes effect within the interval; a wrong file changes nothing.
func TestStore_follows_its_file(t *testing.T) {
	t.Parallel()
	synctest.Test(t, followsItsFile)
}

func followsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	first, k1 := generate(t, apikey.Grant{Role: keys.Read, Prefixes: []string{""}})
	second, k2 := generate(t, apikey.Grant{Role: keys.Read, Prefixes: []string{""}})
	if err := apikey.Add(path, k1); err != nil {
		t.Fatal(err)
	}
	store, err := keys.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := apikey.Add(path, k2); err != nil {
		t.Fatal(err)
	}
	time.Sleep(keys.ReloadInterval) // virtual
	if store.Lookup(second) == nil {
		t.Error("a new key is not known")
	}
	if err := apikey.Remove(path, k1.ID); err != nil {
		t.Fatal(err)
	}
	time.Sleep(keys.ReloadInterval) // virtual
	if store.Lookup(first) != nil {
		t.Error("a key that was removed is known")
	}
	if err := os.WriteFile(path, []byte(`{"keys":[`), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(keys.ReloadInterval) // virtual: the next look must come, and change nothing
	if store.Lookup(second) == nil {
		t.Error("a broken file took a key away")
	}
	if err := apikey.Remove(path, k2.ID); err == nil {
		t.Error("a broken file was written over")
	}
}

func TestOpen_refuses(t *testing.T) {
	t.Parallel()
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	entry := func(fields string) string { return `{"keys":[{` + fields + `}]}` }
	good := `"id":"abcdefghij","name":"n","sha256":"` + hash + `","grants":[{"role":"read","prefixes":[""]}]`
	tests := map[string]struct{ body, want string }{
		"not JSON":       {`keys`, "invalid character"},
		"broken off":     {`{"keys":[`, "EOF"},
		"text behind":    {`{"keys":[]} x`, "behind"},
		"unknown field":  {`{"key":[]}`, "unknown field"},
		"two of one id":  {`{"keys":[{` + good + `},{` + good + `}]}`, "two keys"},
		"short id":       {entry(strings.Replace(good, "abcdefghij", "abc", 1)), "id"},
		"no name":        {entry(strings.Replace(good, `"name":"n"`, `"name":""`, 1)), "name"},
		"name with line": {entry(strings.Replace(good, `"name":"n"`, `"name":"a\nb"`, 1)), "name"},
		"short hash":     {entry(strings.Replace(good, hash, hash[:62], 1)), "sha256"},
		"unknown role":   {entry(strings.Replace(good, `"read"`, `"root"`, 1)), "role"},
		"no grants":      {entry(strings.Replace(good, `{"role":"read","prefixes":[""]}`, ``, 1)), "grants"},
		"no prefixes":    {entry(strings.Replace(good, `[""]`, `[]`, 1)), "prefixes"},
		"negative quota": {entry(good + `,"quota":{"held":-1}`), "quota"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keys.json")
			if err := os.WriteFile(path, []byte(tt.body), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := keys.Open(path, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
	t.Run("a file that others may write", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(entry(good)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o622); err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Open(path, nil); err == nil || !strings.Contains(err.Error(), "others") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no file", func(t *testing.T) {
		t.Parallel()
		if _, err := keys.Open(filepath.Join(t.TempDir(), "none"), nil); !os.IsNotExist(unwrap(err)) {
			t.Errorf("got %v", err)
		}
	})
}

func unwrap(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return err
}
