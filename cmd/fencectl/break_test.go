package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/apierr"
)

func TestBreak_OfAnOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold("a")
	b.hold("b")
	b.ok("acquire", "mine", "--owner", "me")
	r := b.run("break", "--owner", "somebody else", "--reason", "host is down")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	contains(t, r.out, "a ", "b ", "broken")
	contains(t, r.err, "pg advance")
	if b.srv.Live("a")+b.srv.Live("b") != 0 || b.srv.Live("mine") != 1 {
		t.Errorf("live: a %d, b %d, mine %d", b.srv.Live("a"), b.srv.Live("b"), b.srv.Live("mine"))
	}
	contains(t, b.ok("history", "b"), "broken", "host is down")
	r = b.run("break", "--owner", "somebody else", "--reason", "again")
	if r.code != apierr.ExitConflict || !strings.Contains(r.err, "fencectl ls") {
		t.Errorf("nothing to break: %+v", r)
	}
}

func TestBreak_OfASession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.hold("a")
	other := b.hold("b")
	var sessions []struct {
		Ref  string   `json:"ref"`
		Live []string `json:"live"`
	}
	if err := json.Unmarshal([]byte(b.ok("sessions", "-o", "json")), &sessions); err != nil || len(sessions) != 2 {
		t.Fatalf("sessions %+v, %v", sessions, err)
	}
	ref := sessions[0].Ref
	if sessions[0].Live[0] != h.Ref() {
		ref = sessions[1].Ref
	}
	var got []broken
	r := b.run("break", "--session", ref, "--reason", "stuck", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || len(got) != 1 || got[0] != (broken{"a", "somebody else", h.Token(), "broken"}) {
		t.Errorf("%+v, %v", r, err)
	}
	if b.srv.Live("b") != 1 {
		t.Errorf("hold %s of another session is broken too", other.Ref())
	}
}

func TestBreak_Refusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold("l")
	for _, args := range [][]string{
		{"--reason", "r"}, {"l", "--session", "s", "--reason", "r"}, {"--session", "s", "--owner", "o", "--reason", "r"},
		{"--owner", "o", "--token", "7", "--reason", "r"}, {"--owner", "somebody else"}, {"--owner", "somebody else", "--reason", " "},
	} {
		if r := b.run(append([]string{"break"}, args...)...); r.code != apierr.ExitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if b.srv.Live("l") != 1 {
		t.Error("something was broken")
	}
}
