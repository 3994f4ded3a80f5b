package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestProcess_DeathIsSeenWithItsLog(t *testing.T) {
	t.Parallel()
	p, err := spawn("sh", exec.Command("sh", "-c", "echo out of luck >&2"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	err = p.waitFor(t.Context(), time.Millisecond, func() error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("error %v, want one with the log", err)
	}
}

func TestProcess_WaitForEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p, err := spawn("cat", exec.Command("cat"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	ctx, cancel := context.WithCancel(t.Context())
	notYet := errors.New("not yet")
	err = p.waitFor(ctx, time.Millisecond, func() error { cancel(); return notYet })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, notYet) {
		t.Errorf("error %v, want the end of the context and what was missing", err)
	}
}

func TestRole_Talk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct{ name, in, want string }{
		{"memory", "memory\n", `"heap_kib":`},
		{"unknown command", "dance\n", `there is no command \"dance\"`},
		{"empty lines are passed over", "\n\nmemory\n", `"heap_kib":`},
	} {
		var out bytes.Buffer
		c := newConsole(strings.NewReader(tt.in), &out)
		if err := c.talk(address{"here"}, inspect); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || lines[0] != `{"answer":{"addr":"here"}}` || !strings.Contains(lines[1], tt.want) {
			t.Errorf("%s: %q, want the first answer and one with %s", tt.name, lines, tt.want)
		}
	}
	if err := serveRole("jester", dir, strings.NewReader(""), &bytes.Buffer{}); err == nil {
		t.Error("a role that is not there gives no error")
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	handle := driver(t.Context(), func(int) func(context.Context) error {
		return func(context.Context) error { return nil }
	})
	if rate, err := handle("drive", []string{"2", "5ms"}); err != nil || rate.(float64) <= 0 {
		t.Errorf("rate %v, %v; want one above 0", rate, err)
	}
	for _, args := range [][]string{nil, {"2"}, {"x", "5ms"}, {"2", "soon"}} {
		if _, err := handle("drive", args); err == nil {
			t.Errorf("drive %q gives no error", args)
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	var l tail
	for range 3 {
		_, _ = l.Write(bytes.Repeat([]byte("x"), tailLen))
	}
	_, _ = l.Write([]byte("the end\n"))
	if got := l.String(); len(got) > tailLen || !strings.HasSuffix(got, "x\nthe end") && !strings.HasSuffix(got, "xthe end") {
		t.Errorf("%d bytes that end in %q, want at most %d and the end", len(got), got[max(0, len(got)-10):], tailLen)
	}
}

func TestChosen(t *testing.T) {
	t.Parallel()
	all, err := chosen("")
	if err != nil || len(all) != len(groups) {
		t.Errorf("%d groups, %v; want all %d", len(all), err, len(groups))
	}
	two, err := chosen("start,engine")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"start", "engine"}, []string{two[0].name, two[1].name}); d != "" {
		t.Errorf("groups (-want +got):\n%s", d)
	}
	if _, err := chosen("start,polka"); err == nil || !strings.Contains(err.Error(), "polka") {
		t.Errorf("error %v, want one that names the group", err)
	}
}
