// Package buildinfo tells how this binary was built, in the words of both programs.
package buildinfo

import "runtime/debug"

// Build returns the commit that the binary was built from, marked where the tree had
// changes, and the version of Go. What the linker did not record is left out.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	commit, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	if commit == "" {
		return info.GoVersion
	}
	return commit + changed + " " + info.GoVersion
}
