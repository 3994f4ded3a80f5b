package main

import (
	"strings"
	"testing"
)

// whoami names the key by its public id, and never shows the key itself.
func TestWhoAmI(t *testing.T) {
	t.Parallel()
	b := setup(t)
	contains(t, b.ok("whoami"), "no keys", "admin", "every lock")
	key := b.srv.AddKey("lock", "orders/")
	b.env["FENCED_API_KEY"] = key
	out := b.ok("whoami")
	contains(t, out, "lock", "orders/", key[3:13])
	if strings.Contains(out, key) {
		t.Errorf("the key is shown: %s", out)
	}
}
