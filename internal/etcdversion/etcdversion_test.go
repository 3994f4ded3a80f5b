package etcdversion_test

import (
	"testing"

	"github.com/fenced/fenced/internal/etcdversion"
)

// TestR14_OldEtcdIsRefused holds rule R14 of lockserver/DESIGN.md.
func TestR14_OldEtcdIsRefused(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"3.6.9", "3.6.16", "3.7.1", "3.7.3", "3.8.0-alpha.0", "4.0.0"} {
		if err := etcdversion.Check(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"3.4.23", "3.5.28", "3.6.8", "3.7.0", "2.9.9", "", "three"} {
		if err := etcdversion.Check(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
