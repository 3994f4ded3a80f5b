package tokens_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenced/fenced/tokens"
)

func TestClaim_Validate(t *testing.T) {
	t.Parallel()
	good := tokens.Claim{Resource: "a", Token: 1}
	for _, tt := range []struct {
		name string
		edit func(c *tokens.Claim)
		ok   bool
	}{
		{"smallest", func(*tokens.Claim) {}, true},
		{"highest token", func(c *tokens.Claim) { c.Token = tokens.Max }, true},
		{"longest resource", func(c *tokens.Claim) { c.Resource = strings.Repeat("x", tokens.MaxResourceLen) }, true},
		{"any UTF-8", func(c *tokens.Claim) { c.Resource = "spieler/ä \n\u200b" }, true},
		{"renewable", func(c *tokens.Claim) { c.Mode = tokens.Renewable }, true},
		{"no resource", func(c *tokens.Claim) { c.Resource = "" }, false},
		{"resource one byte too long", func(c *tokens.Claim) { c.Resource = strings.Repeat("x", tokens.MaxResourceLen+1) }, false},
		{"short in runes, long in bytes", func(c *tokens.Claim) { c.Resource = strings.Repeat("é", tokens.MaxResourceLen/2+1) }, false},
		{"NUL", func(c *tokens.Claim) { c.Resource = "a\x00b" }, false},
		{"not UTF-8", func(c *tokens.Claim) { c.Resource = "a\xff" }, false},
		{"no token", func(c *tokens.Claim) { c.Token = 0 }, false},
		{"negative token", func(c *tokens.Claim) { c.Token = -1 }, false},
		{"token beyond Max", func(c *tokens.Claim) { c.Token = tokens.Max + 1 }, false},
		{"highest integer", func(c *tokens.Claim) { c.Token = math.MaxInt64 }, false},
		{"no such mode", func(c *tokens.Claim) { c.Mode = 2 }, false},
	} {
		c := good
		tt.edit(&c)
		if err := c.Validate(); (err == nil) != tt.ok || err != nil && !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("%s: %v; want valid %v, else ErrInvalid", tt.name, err, tt.ok)
		}
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		current, presented tokens.Token
		mode               tokens.Mode
		want               tokens.Decision
	}{
		{0, 1, tokens.OneShot, tokens.Decision{Outcome: tokens.Accepted, Current: 1}},
		{0, 1, tokens.Renewable, tokens.Decision{Outcome: tokens.Accepted, Current: 1}},
		{33, 34, tokens.OneShot, tokens.Decision{Outcome: tokens.Accepted, Current: 34}},
		{34, 34, tokens.OneShot, tokens.Decision{Outcome: tokens.Duplicate, Current: 34}},
		{34, 34, tokens.Renewable, tokens.Decision{Outcome: tokens.Accepted, Current: 34}},
		{34, 33, tokens.OneShot, tokens.Decision{Outcome: tokens.Stale, Current: 34}},
		{34, 33, tokens.Renewable, tokens.Decision{Outcome: tokens.Stale, Current: 34}},
	} {
		if got := tokens.Decide(tt.current, tt.presented, tt.mode); got != tt.want {
			t.Errorf("Decide(%d, %d, %v) = %+v, want %+v", tt.current, tt.presented, tt.mode, got, tt.want)
		}
	}
}

func TestDecision_Err(t *testing.T) {
	t.Parallel()
	c := tokens.Claim{Resource: "a", Token: 33}
	if err := (tokens.Decision{Outcome: tokens.Accepted, Current: 33}).Err(c); err != nil {
		t.Errorf("accepted: %v", err)
	}
	if err := (tokens.Decision{Outcome: tokens.Duplicate, Current: 33}).Err(c); !errors.Is(err, tokens.ErrDuplicate) || errors.Is(err, tokens.ErrStale) {
		t.Errorf("duplicate: %v, want ErrDuplicate alone", err)
	}
	err := tokens.Decision{Outcome: tokens.Stale, Current: 34}.Err(c)
	stale, ok := errors.AsType[*tokens.StaleError](err)
	if !ok || *stale != (tokens.StaleError{Resource: "a", Presented: 33, Current: 34}) || !errors.Is(err, tokens.ErrStale) {
		t.Errorf("stale: %#v", err)
	}
	if got, want := err.Error(), `resource "a": stale token 33, current is 34`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	// A Decision that nobody filled in must not pass for an acceptance.
	if (tokens.Decision{}).Err(c) == nil {
		t.Error("the zero decision is an acceptance")
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		tokens.OneShot.String():    "one-shot",
		tokens.Renewable.String():  "renewable",
		tokens.Mode(9).String():    "Mode(9)",
		tokens.Accepted.String():   "accepted",
		tokens.Duplicate.String():  "duplicate",
		tokens.Stale.String():      "stale",
		tokens.Outcome(0).String(): "Outcome(0)",
		tokens.Token(-3).String():  "-3",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFromHeader(t *testing.T) {
	t.Parallel()
	h := make(http.Header)
	if _, err := tokens.FromHeader(h); !errors.Is(err, tokens.ErrMissing) || errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("no header: %v, want ErrMissing alone", err)
	}
	tokens.SetHeader(h, 33)
	tokens.SetHeader(h, 34)
	if got, err := tokens.FromHeader(h); got != 34 || err != nil {
		t.Errorf("FromHeader = %d, %v; want 34", got, err)
	}
	h.Add("fencing-token", "34")
	if got, err := tokens.FromHeader(h); got != 0 || !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("repeated header: %d, %v; want ErrInvalid", got, err)
	}
	for _, s := range append(invalidTexts, "1,2") {
		h := http.Header{tokens.Header: {s}}
		if got, err := tokens.FromHeader(h); got != 0 || !errors.Is(err, tokens.ErrInvalid) || errors.Is(err, tokens.ErrMissing) {
			t.Errorf("header %.40q: %d, %v; want ErrInvalid alone", s, got, err)
		}
	}
}

// A context answers for each lock as a map would, whatever the order of nesting
// and however alike the names.
func TestFromContext_Pairs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"", "a", "A", "a ", "a/b", "a%2Fb", "b"})
		ctx, want := context.Background(), make(map[string]tokens.Token)
		for range rapid.IntRange(0, 8).Draw(t, "nesting") {
			lock, token := names.Draw(t, "lock"), tokens.Token(rapid.Int64Range(1, 99).Draw(t, "token"))
			ctx = tokens.NewContext(ctx, lock, token)
			want[lock] = token
		}
		lock := names.Draw(t, "asked")
		got, ok := tokens.FromContext(ctx, lock)
		if wanted, there := want[lock]; got != wanted || ok != there {
			t.Errorf("FromContext(%q) = %d, %v; want %d, %v", lock, got, ok, wanted, there)
		}
	})
}
