package contract

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

// Server is one server under test.
type Server struct {
	// Config reaches it with the SDK.
	Config clientsdk.Config
	// HTTP and URL reach it without.
	HTTP *http.Client
	URL  string
}

// ttl is the shortest that a server takes.
const ttl = clientsdk.MinTTL

// Run runs the list, each behaviour in parallel against a server of its own or a
// shared one, as start pleases.
func Run(t *testing.T, start func(t *testing.T) Server) {
	for name, behaviour := range map[string]func(*bundle){
		"acquire answers with id, ref, token and deadline": acquireAnswers,
		"a repeat under one key finds one hold":            repeatFindsOneHold,
		"a repeat after the end is gone":                   repeatAfterTheEnd,
		"a key with another body is refused":               keyWithAnotherBody,
		"a last try under the key gives the place up":      lastTryGivesUp,
		"a try leaves nothing behind":                      tryLeavesNothing,
		"places are granted in order":                      placesInOrder,
		"a grant that was waited for has its whole TTL":    waitedGrant,
		"a hold that nobody renews expires":                expires,
		"release works twice and says when it was lost":    releaseTwice,
		"renewing a queued hold is refused":                renewQueued,
		"a break ends the hold with that token only":       breaks,
		"a session lists its live holds":                   sessionLists,
		"the end of a session ends its holds":              sessionEnds,
		"an unknown session is gone":                       sessionUnknown,
		"check tells valid, ended and stale apart":         checks,
		"a lock nobody has used is free":                   freeLock,
		"bad values are refused by name":                   badValues,
		"the SDK's whole life of a lock":                   lifeOfALock,
		"a session's next change can be waited for":        sessionWait,
		"lists come page by page":                          pages,
		"events tell what happens in its order":            eventsTell,
		"events go on behind the last id":                  eventsResume,
		"events keep to the prefix":                        eventsFilter,
		"events through the SDK":                           eventsThroughTheSDK,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			client, err := clientsdk.New(s.Config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			behaviour(&bundle{T: t, s: s, client: client, lock: "contract/" + rand.Text()})
		})
	}
}

type bundle struct {
	*testing.T
	s      Server
	client *clientsdk.Client
	lock   string // nobody else uses it
}

// answer is what one exchange brought.
type answer struct {
	b      *bundle
	status int
	header http.Header
	body   []byte
}

func (b *bundle) do(method, path, key string, body any) answer {
	b.Helper()
	var in bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&in).Encode(body); err != nil {
			b.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(b.Context(), method, b.s.URL+path, &in)
	if err != nil {
		b.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set(wire.IdempotencyKey, key)
	}
	return b.send(req)
}

// authorize adds the API key of s, if it has one.
func (s Server) authorize(req *http.Request) {
	if s.Config.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+s.Config.APIKey)
	}
}

func (b *bundle) send(req *http.Request) answer {
	b.Helper()
	b.s.authorize(req)
	resp, err := b.s.HTTP.Do(req)
	if err != nil {
		b.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer{b, resp.StatusCode, resp.Header, raw}
}

// is ends the test unless the answer has that status.
func (a answer) is(status int) answer {
	a.b.Helper()
	if a.status != status {
		a.b.Fatalf("answer %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// refuses ends the test unless the answer is a problem of that code.
func (a answer) refuses(code apierr.Code) wire.Problem {
	a.b.Helper()
	var p wire.Problem
	a.is(code.Info().Status).into(&p)
	if p.Code != code {
		a.b.Fatalf("code %q, want %q: %s", p.Code, code, a.body)
	}
	return p
}

func (a answer) into(v any) {
	a.b.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.b.Fatalf("answer %q: %v", a.body, err)
	}
}

func (a answer) hold() (h wire.Hold)       { a.b.Helper(); a.into(&h); return h }
func (a answer) session() (s wire.Session) { a.b.Helper(); a.into(&s); return s }

// acquire asks for the bundle's lock; edit, unless nil, changes the request.
func (b *bundle) acquire(key string, edit func(*wire.AcquireRequest)) answer {
	b.Helper()
	req := wire.AcquireRequest{Lock: b.lock, Owner: "contract", TTL: "30s"}
	if edit != nil {
		edit(&req)
	}
	return b.do(http.MethodPost, "/v1/holds", key, req)
}

func queue(r *wire.AcquireRequest) { r.Wait, r.KeepPlace = "1ms", true }

func (b *bundle) release(h wire.Hold) answer {
	b.Helper()
	return b.do(http.MethodDelete, "/v1/holds/"+h.Hold, "", nil)
}

func newKey() string {
	var raw [16]byte
	rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}
