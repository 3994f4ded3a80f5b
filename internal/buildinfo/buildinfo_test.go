package buildinfo_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/buildinfo"
)

func TestBuild(t *testing.T) {
	t.Parallel()
	if got := buildinfo.Build(); !strings.HasSuffix(got, runtime.Version()) {
		t.Errorf("%q does not end in %s", got, runtime.Version())
	}
}
