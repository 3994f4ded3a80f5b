package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/apikey"
)

// TestRun_OnceAndWhole: a first run that was cut off is begun anew, and a later one
// changes nothing.
func TestRun_OnceAndWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keys.json.new"), []byte(`{"keys":[`), 0o600); err != nil {
		t.Fatal(err)
	}
	var first, second strings.Builder
	if err := run(dir, &first); err != nil {
		t.Fatal(err)
	}
	known, err := apikey.Load(filepath.Join(dir, "keys.json"))
	if err != nil || len(known) != len(users) {
		t.Fatalf("%d keys, %v", len(known), err)
	}
	shown := regexp.MustCompile(`(?m)^export FENCED_API_KEY=\S+$`)
	if len(shown.FindAllString(first.String(), -1)) != 1 {
		t.Errorf("the first run printed %q", first.String())
	}
	for name, mode := range map[string]os.FileMode{"keys.json": 0o600, "rewards.key": 0o600, "prometheus.key": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want mode %o", name, info, err, mode)
		}
	}
	if err := run(dir, &second); err != nil || shown.MatchString(second.String()) {
		t.Errorf("the second run printed %q, %v", second.String(), err)
	}
	again, err := apikey.Load(filepath.Join(dir, "keys.json"))
	if err != nil || len(again) != len(known) {
		t.Errorf("after the second run there are %d keys, %v", len(again), err)
	}
}
