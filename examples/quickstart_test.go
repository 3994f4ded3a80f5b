//go:build linux

package examples_test

import (
	"path/filepath"
	"testing"
)

// The quick start finds the server where the programs beside it do.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	p := newPlace(t, ".")
	p.prints([]string{"I hold orders/42 with token"}, filepath.Join(bin, "quickstart"))
	p.env = append(p.env, "FENCED_ADDR=http://127.0.0.1:1,"+p.server)
	p.prints([]string{"I hold orders/42 with token"}, filepath.Join(bin, "quickstart"))
}
