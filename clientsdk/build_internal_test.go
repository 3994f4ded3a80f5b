package clientsdk

import (
	"runtime/debug"
	"testing"
)

func TestBuildOf(t *testing.T) {
	t.Parallel()
	commit := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc123"}}
	for want, info := range map[string]debug.BuildInfo{
		"v1.2.3": {Main: debug.Module{Version: "v1.2.3"}, Settings: commit},
		"abc123": {Main: debug.Module{Version: "(devel)"}, Settings: commit},
		"":       {},
	} {
		if got := buildOf(&info); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
