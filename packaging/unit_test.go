package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const unit = "fenced.service"

// TestUnit has systemd read the unit. It exits with 0 also for settings that it does
// not know, so what it says of the unit counts; it may speak of the machine's own
// units, too.
func TestUnit(t *testing.T) {
	t.Parallel()
	verify := analyze(t)
	if out, err := verify(read(t)).CombinedOutput(); err != nil || strings.Contains(string(out), unit) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _ := verify(strings.Replace(read(t), "ProtectHome=", "ProtectHoem=", 1)).CombinedOutput(); !strings.Contains(string(out), unit) {
		t.Errorf("a setting that there is not passes: %s", out)
	}
}

// TestUnit_exposure holds what systemd thinks of the unit's hardening: 10 is a
// service that may do everything.
func TestUnit_exposure(t *testing.T) {
	t.Parallel()
	verify := analyze(t)
	cmd := verify(read(t))
	cmd.Args = append([]string{cmd.Args[0], "security", "--offline=yes", "--threshold=20", "--no-pager"}, cmd.Args[len(cmd.Args)-1])
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// analyze returns what has systemd read a unit whose program is there.
func analyze(t *testing.T) func(text string) *exec.Cmd {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the unit was not looked at")
	}
	return func(text string) *exec.Cmd {
		dir := t.TempDir()
		program, path := filepath.Join(dir, "fenced"), filepath.Join(dir, unit)
		text = strings.Replace(text, "ExecStart=/usr/bin/fenced", "ExecStart="+program, 1)
		for name, content := range map[string]string{program: "#!/bin/sh\n", path: text} {
			if err := os.WriteFile(name, []byte(content), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.CommandContext(t.Context(), tool, "verify", "--man=no", path)
	}
}

// TestUnit_isTheOneOfTheDocuments: the page for people on call names these paths.
func TestUnit_isTheOneOfTheDocuments(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range regexp.MustCompile(`/etc/(default/fenced|fenced/fenced\.yml)`).FindAllString(read(t), -1) {
		if !strings.Contains(string(page), path) {
			t.Errorf("docs/operations.md does not name %s", path)
		}
	}
	for _, directory := range []string{"StateDirectory=fenced\n", "LogsDirectory=fenced\n"} {
		if !strings.Contains(read(t), directory) {
			t.Errorf("the unit lacks %s, where docs/operations.md puts files", directory)
		}
	}
}
