package lockserver

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver/internal/queue"
)

func FuzzParseKey(f *testing.F) {
	keys := keyspace{DefaultPrefix}
	for _, seed := range []string{keys.hold(refOf("a")), keys.session(refOf("b")), keys.ends(), keys.base(), "/fenced/v1/h/x", "", "/fenced/v1/h/"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		kind, ref := keys.parse(key)
		switch kind {
		case holdKey:
			if keys.hold(ref) != string(key) {
				t.Fatalf("%q reads as the hold %q", key, keys.hold(ref))
			}
		case sessionKey:
			if keys.session(ref) != string(key) {
				t.Fatalf("%q reads as the session %q", key, keys.session(ref))
			}
		}
	})
}

func FuzzDecodeHold(f *testing.F) {
	f.Add([]byte(`{"v":1,"l":"a","o":"w","t":15000,"n":"fenced","c":1}`))
	f.Add([]byte(`{"v":2,"l":"a"}`))
	f.Add([]byte(`{"v":1,"l":"a\u0000","t":1}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		h, err := decodeHold(queue.Ref{1}, value)
		if err != nil {
			return
		}
		if ValidateLock(h.Lock) != nil || h.TTL <= 0 || h.TTL > MaxTTL {
			t.Fatalf("a hold that no server wrote was read: %+v", h)
		}
		again, err := decodeHold(h.Ref, encodeHold(h))
		if err != nil || again.Lock != h.Lock || again.TTL != h.TTL {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

func FuzzDecodeEnds(f *testing.F) {
	f.Add(encodeEnds([]endEntry{{Ref: refText(queue.Ref{1}), End: Broken, By: "ops", Reason: "stuck"}}))
	f.Add([]byte(`{"v":1,"e":[{"r":"x","e":1}]}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		entries, err := decodeEnds(value)
		if err != nil {
			return
		}
		for ref, e := range entries {
			if e.End == NotEnded || e.End > EndUnknown || refText(ref) != e.Ref {
				t.Fatalf("entry %+v of %v", e, ref)
			}
		}
	})
}

func FuzzCanonicalID(f *testing.F) {
	f.Add(newID())
	f.Add(strings.Repeat("a", 26))
	f.Add(strings.Repeat("z", 26))
	f.Fuzz(func(t *testing.T, text string) {
		ref, ok := parseRef(text)
		if ok && refText(ref) != text || canonicalID(text) && !ok && ref != (queue.Ref{}) {
			t.Fatalf("%q: %v %v", text, ref, ok)
		}
	})
}

func FuzzNormalKey(f *testing.F) {
	f.Add("0190b2a3-1111-7222-8333-444455556666")
	f.Add("0190B2A3111172228333444455556666")
	f.Add("reward-42")
	f.Fuzz(func(t *testing.T, key string) {
		plain, err := normalKey(key)
		if err != nil {
			if apierr.CodeOf(err) != apierr.BadIdempotencyKey {
				t.Fatalf("%q: %v", key, err)
			}
			return
		}
		if again, err := normalKey(plain); len(plain) != 32 || err != nil || again != plain {
			t.Fatalf("%q became %q, then %q, %v", key, plain, again, err)
		}
	})
}

func FuzzValidateLock(f *testing.F) {
	for _, seed := range []string{"a", "", "a\x00", "é", "e\u0301", "\u200b", "\ud7ff", "\U000e0001", "漢字"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if ValidateLock(name) != nil {
			return
		}
		if !utf8.ValidString(name) || name == "" || len(name) > MaxLockName || strings.ContainsAny(name, "\x00\r\n\u2028\u200b\u202e") {
			t.Fatalf("%q was taken", name)
		}
	})
}

func TestHoldValue_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &queue.Hold{
			Ref:      queue.Ref(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ref")),
			Lock:     rapid.StringMatching(`[a-z/漢é ]{1,40}`).Draw(t, "lock"),
			Owner:    rapid.StringMatching(`[a-zA-Z0-9:.-]{1,40}`).Draw(t, "owner"),
			TTL:      time.Duration(rapid.Int64Range(1000, 3600_000).Draw(t, "ttl")) * time.Millisecond,
			Server:   "fenced",
			Created:  time.UnixMilli(rapid.Int64Range(0, 1<<41).Draw(t, "created")).UTC(),
			Metadata: rapid.MapOf(rapid.StringN(1, 5, 20), rapid.StringN(0, 5, 20)).Draw(t, "metadata"),
		}
		if rapid.Bool().Draw(t, "in a session") {
			h.Session = queue.Ref(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "session"))
		}
		got, err := decodeHold(h.Ref, encodeHold(h))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h, got, cmpopts.IgnoreUnexported(queue.Hold{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestHoldValue_NewerFields pins what an upgrade relies on: unknown fields are
// ignored, a newer version is refused.
func TestHoldValue_NewerFields(t *testing.T) {
	t.Parallel()
	if _, err := decodeHold(queue.Ref{}, []byte(`{"v":1,"l":"a","o":"w","t":1000,"n":"x","c":1,"new":{"a":1}}`)); err != nil {
		t.Fatalf("an unknown field: %v", err)
	}
	if _, err := decodeHold(queue.Ref{}, []byte(`{"v":2,"l":"a","o":"w","t":1000,"n":"x","c":1}`)); err == nil {
		t.Fatal("a newer version was read")
	}
}

func TestKeyedID_DependsOnLockAndKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lockA, lockB := rapid.String().Draw(t, "lockA"), rapid.String().Draw(t, "lockB")
		keyA, keyB := rapid.String().Draw(t, "keyA"), rapid.String().Draw(t, "keyB")
		same := lockA == lockB && keyA == keyB
		if (keyedID(lockA, keyA) == keyedID(lockB, keyB)) != same {
			t.Fatalf("%q %q and %q %q", lockA, keyA, lockB, keyB)
		}
	})
}

// TestPutLane_R3 draws crowds of puts and wants no batch with two of one lock, no
// put lost, and the puts of one lock in order.
func TestPutLane_R3_NeverTwoHoldsOfOneLockInABatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lane := newPutLane(&Server{config: Config{}.withDefaults()})
		sent := map[string][]string{}
		total := rapid.IntRange(1, 300).Draw(t, "puts")
		for i := range total {
			p := put{lock: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "lock"), key: string(rune('a'+i%26)) + time.Duration(i).String()}
			sent[p.lock] = append(sent[p.lock], p.key)
			lane.add(p)
		}
		for got := 0; got < total; {
			seen := map[string]bool{}
			batch, more := lane.take()
			if more != (got+len(batch) < total) {
				t.Fatalf("after %d of %d puts, more is %v", got+len(batch), total, more)
			}
			for _, p := range batch {
				if seen[p.lock] {
					t.Fatalf("two puts of %q in a batch", p.lock)
				}
				seen[p.lock] = true
				if sent[p.lock][0] != p.key {
					t.Fatalf("put %q of %q came before %q", p.key, p.lock, sent[p.lock][0])
				}
				sent[p.lock] = sent[p.lock][1:]
				got++
			}
		}
		if batch, _ := lane.take(); len(batch) != 0 {
			t.Fatal("a put came twice")
		}
	})
}

func TestHistory_ForgetsTheOldest(t *testing.T) {
	t.Parallel()
	h := newHistory(time.Unix(0, 0))
	h.whole = true
	entry := func(i int, lock string) past {
		return past{ref: queue.Ref{byte(i >> 16), byte(i >> 8), byte(i)}, lock: lock, token: int64(i), granted: true, end: Released, ended: time.Unix(int64(i), 0)}
	}
	h.add(entry(1, "first"))
	if p := h.previous("first"); p == nil || p.Token != 1 {
		t.Fatalf("previous: %+v", p)
	}
	if h.previous("never") != nil {
		t.Fatal("a lock without past has one")
	}
	for i := 2; i <= historySize; i++ {
		h.add(entry(i, "busy"))
	}
	if h.find(entry(1, "").ref) == nil {
		t.Fatal("the ring forgot too early")
	}
	h.add(entry(historySize+1, "busy"))
	if h.find(entry(1, "").ref) != nil {
		t.Fatal("the ring remembers what it has overwritten")
	}
	if p := h.previous("first"); p == nil || p.End != EndUnknown {
		t.Fatalf("previous of a lock that the ring does not reach: %+v", p)
	}
	if got := h.grants("busy", 3); len(got) != 3 || got[0].Token != historySize+1 || got[2].Token != historySize-1 {
		t.Fatalf("grants: %+v", got)
	}
	if h.since != time.Unix(1, 0) {
		t.Fatalf("since %v", h.since)
	}
}

func TestPool_GivesOnlyLeasesWithTimeLeft(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var p pool
	p.put(lease{ID: 1, TTL: 20 * time.Second, Sent: now.Add(-19 * time.Second)})
	if _, ok := p.take(20*time.Second, now); ok {
		t.Fatal("a lease with a second left was given")
	}
	p.put(lease{ID: 2, TTL: 20 * time.Second, Sent: now})
	if _, ok := p.take(21*time.Second, now); ok {
		t.Fatal("a lease of another TTL was given")
	}
	if l, ok := p.take(20*time.Second, now); !ok || l.ID != 2 {
		t.Fatalf("got %+v, %v", l, ok)
	}
	for i := range 2 * maxIdleLeases {
		p.put(lease{ID: 3, TTL: time.Duration(i%3+1) * time.Hour, Sent: now})
	}
	if p.size != maxIdleLeases {
		t.Fatalf("%d idle leases", p.size)
	}
}
