package apikey_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fenced/fenced/internal/apikey"
)

func TestKey_Allows(t *testing.T) {
	t.Parallel()
	_, k, err := apikey.Generate("test", []apikey.Grant{
		{Role: apikey.Lock, Prefixes: []string{"orders/", "stock/"}},
		{Role: apikey.Read, Prefixes: []string{""}},
	}, apikey.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		role apikey.Role
		lock string
		want bool
	}{
		{apikey.Lock, "orders/42", true},
		{apikey.Lock, "stock/1", true},
		{apikey.Lock, "orders", false},
		{apikey.Lock, "Orders/42", false},
		{apikey.Lock, "", false},
		{apikey.Read, "orders/42", true},
		{apikey.Read, "anything", true},
		{apikey.Admin, "orders/42", false},
	} {
		if got := k.Allows(tt.role, tt.lock); got != tt.want {
			t.Errorf("%v of %q: %v, want %v", tt.role, tt.lock, got, tt.want)
		}
	}
	if !k.Has(apikey.Lock) || k.Has(apikey.Admin) || !k.AllowsAll(apikey.Read, "") || k.AllowsAll(apikey.Lock, "") {
		t.Error("roles over some and all locks are wrong")
	}
	var none *apikey.Key
	if none.Allows(apikey.Read, "a") || none.Has(apikey.Read) {
		t.Error("a nil key may do something")
	}
}

// What the server may read it must be able to read after a change.
func TestAdd_keeps_the_mode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	_, k, err := apikey.Generate("test", []apikey.Grant{{Role: apikey.Read, Prefixes: []string{""}}}, apikey.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	if err := apikey.Add(path, k); err != nil {
		t.Fatal(err)
	}
	checkMode(t, path, 0o600)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := apikey.Remove(path, k.ID); err != nil {
		t.Fatal(err)
	}
	checkMode(t, path, 0o640)
}

func checkMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("mode %v, want %v", got, want)
	}
}
