package contract

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

// outcome is one case of the shared table: one thing to do, in the words of each of the
// three ways, and the code that all of them must give; "" is success. The exit code is
// that of the table of codes.
type outcome struct {
	code apierr.Code
	http func(*bundle) answer
	sdk  func(*bundle) error
	cli  []string // nil where no command line can ask for it
}

// scene is what the cases are about: locks in each state, for one bundle.
type scene struct {
	free, held, released string // names
	holder               wire.Hold
	queued, gone         wire.Hold
	stale                tokens.Token
}

func setScene(b *bundle) scene {
	b.Helper()
	at := func(name string) func(*wire.AcquireRequest) {
		return func(r *wire.AcquireRequest) { r.Lock = name }
	}
	s := scene{free: b.lock + "/free", held: b.lock + "/held", released: b.lock + "/released"}
	old := b.acquire("", at(s.held)).is(http.StatusCreated).hold()
	b.release(old).is(http.StatusNoContent)
	s.stale = old.Token
	s.holder = b.acquire("", at(s.held)).is(http.StatusCreated).hold()
	s.queued = b.acquire(newKey(), func(r *wire.AcquireRequest) { at(s.held)(r); queue(r) }).is(http.StatusAccepted).hold()
	s.gone = b.acquire("", at(s.released)).is(http.StatusCreated).hold()
	b.release(s.gone).is(http.StatusNoContent)
	return s
}

// outcomes is the shared table.
func (s scene) outcomes() map[string]outcome {
	try := func(lock string, edit func(*wire.AcquireRequest)) func(*bundle) answer {
		return func(b *bundle) answer {
			return b.acquire("", func(r *wire.AcquireRequest) {
				r.Lock = lock
				if edit != nil {
					edit(r)
				}
			})
		}
	}
	trySDK := func(lock string, opts *clientsdk.AcquireOptions) func(*bundle) error {
		return func(b *bundle) error {
			h, err := b.client.TryAcquire(b.Context(), lock, opts)
			if err == nil {
				err = h.Release(b.Context())
			}
			return err
		}
	}
	token := s.holder.Token.String()
	return map[string]outcome{
		"a free lock": {"", func(b *bundle) answer {
			a := try(s.free, nil)(b)
			b.release(a.is(http.StatusCreated).hold()).is(http.StatusNoContent)
			return a
		}, trySDK(s.free, nil), []string{"run", "--try", s.free, "--", "true"}},
		"a held lock": {apierr.LockHeld, try(s.held, nil), trySDK(s.held, nil), []string{"acquire", "--try", s.held}},
		"a held lock, with a wait": {apierr.LockHeld, try(s.held, func(r *wire.AcquireRequest) { r.Wait = "20ms" }),
			func(b *bundle) error {
				_, err := b.client.Acquire(b.Context(), s.held, &clientsdk.AcquireOptions{Wait: 20 * time.Millisecond})
				return err
			}, []string{"acquire", "--wait", "20ms", s.held}},
		"a TTL too short": {apierr.OutOfBounds, try(s.free, func(r *wire.AcquireRequest) { r.TTL = "10ms" }),
			trySDK(s.free, &clientsdk.AcquireOptions{TTL: 10 * time.Millisecond}), []string{"acquire", "--try", "--ttl", "10ms", s.free}},
		"a TTL that is no whole number of ms": {apierr.OutOfBounds, try(s.free, func(r *wire.AcquireRequest) { r.TTL = "1500500us" }),
			trySDK(s.free, &clientsdk.AcquireOptions{TTL: 1500500 * time.Microsecond}), []string{"acquire", "--try", "--ttl", "1500500us", s.free}},
		"an owner too long": {apierr.OutOfBounds, try(s.free, func(r *wire.AcquireRequest) { r.Owner = long }),
			trySDK(s.free, &clientsdk.AcquireOptions{Owner: long}), []string{"acquire", "--try", "--owner", long, s.free}},
		"renewing a live hold": {"", func(b *bundle) answer { return b.do(http.MethodPost, "/v1/holds/"+s.holder.Hold+"/renew", "", nil) },
			func(b *bundle) error { _, err := b.client.RenewID(b.Context(), s.holder.Hold); return err }, []string{"renew", s.holder.Hold}},
		"renewing what is queued": {apierr.NotHeld, func(b *bundle) answer { return b.do(http.MethodPost, "/v1/holds/"+s.queued.Hold+"/renew", "", nil) },
			func(b *bundle) error { _, err := b.client.RenewID(b.Context(), s.queued.Hold); return err }, []string{"renew", s.queued.Hold}},
		"renewing what is over": {apierr.HoldGone, func(b *bundle) answer { return b.do(http.MethodPost, "/v1/holds/"+s.gone.Hold+"/renew", "", nil) },
			func(b *bundle) error { _, err := b.client.RenewID(b.Context(), s.gone.Hold); return err }, []string{"renew", s.gone.Hold}},
		"releasing again": {"", func(b *bundle) answer { return b.release(s.gone) },
			func(b *bundle) error { return b.client.ReleaseID(b.Context(), s.gone.Hold) }, []string{"release", s.gone.Hold}},
		"releasing what nobody knows": {apierr.HoldGone, func(b *bundle) answer { return b.release(wire.Hold{Hold: nobodys}) },
			func(b *bundle) error { return b.client.ReleaseID(b.Context(), nobodys) }, []string{"release", nobodys}},
		"breaking with another token": {apierr.HolderChanged, func(b *bundle) answer {
			return b.do(http.MethodPost, "/v1/break", "", wire.BreakRequest{Lock: s.held, Token: s.stale, Reason: "r"})
		}, func(b *bundle) error { return b.client.Break(b.Context(), s.held, s.stale, "r") },
			[]string{"break", s.held, "--token", s.stale.String(), "--reason", "r"}},
		"breaking with a long reason": {apierr.OutOfBounds, func(b *bundle) answer {
			return b.do(http.MethodPost, "/v1/break", "", wire.BreakRequest{Lock: s.held, Token: s.stale, Reason: long + long + long})
		}, func(b *bundle) error { return b.client.Break(b.Context(), s.held, s.stale, long+long+long) },
			[]string{"break", s.held, "--token", s.stale.String(), "--reason", long + long + long}},
		"checking a live token":   {"", s.check(s.held, s.holder.Token), s.checkSDK(s.held, s.holder.Token), []string{"check", s.held, token}},
		"checking a stale token":  {apierr.StaleToken, s.check(s.held, s.stale), s.checkSDK(s.held, s.stale), []string{"check", s.held, s.stale.String()}},
		"checking an ended token": {apierr.TokenNotValid, s.check(s.released, s.gone.Token), s.checkSDK(s.released, s.gone.Token), []string{"check", s.released, s.gone.Token.String()}},
		"a lock that is free": {"", func(b *bundle) answer { return b.do(http.MethodGet, "/v1/lock?name=nobody", "", nil) },
			func(b *bundle) error { _, err := b.client.Lock(b.Context(), "nobody"); return err }, []string{"get", "nobody"}},
		"a page of a bad size": {apierr.OutOfBounds, func(b *bundle) answer { return b.do(http.MethodGet, "/v1/locks?limit=1001", "", nil) },
			func(b *bundle) error {
				_, err := b.client.Locks(b.Context(), &clientsdk.LocksQuery{Limit: 1001})
				return err
			}, nil},
	}
}

// nobodys is the id of no hold.
const nobodys = "aaaaaaaaaaaaaaaaaaaaaaaaaa"

// long is a byte longer than an owner may be.
var long = strings.Repeat("x", 129)

func (s scene) check(lock string, token tokens.Token) func(*bundle) answer {
	return func(b *bundle) answer {
		return b.do(http.MethodPost, "/v1/check", "", []wire.CheckItem{{Lock: lock, Token: token}})
	}
}

// checkSDK turns the SDK's verdict into the code that HTTP gives for it: a verdict is no
// error of the call.
func (s scene) checkSDK(lock string, token tokens.Token) func(*bundle) error {
	return func(b *bundle) error {
		results, err := b.client.Check(b.Context(), []clientsdk.CheckItem{{Lock: lock, Token: token}})
		switch {
		case err != nil:
			return err
		case results[0].Result == "stale":
			return apierr.New(apierr.StaleToken, "")
		case results[0].Result != "valid":
			return apierr.New(apierr.TokenNotValid, "")
		}
		return nil
	}
}

// RunOutcomes runs the shared table through raw HTTP, the SDK and the command line.
func RunOutcomes(t *testing.T, s Server, cli CLI) {
	client, err := clientsdk.New(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	scenery := setScene(&bundle{T: t, s: s, client: client, lock: "outcomes"})
	for name, o := range scenery.outcomes() {
		t.Run(name, func(t *testing.T) {
			b := &bundle{T: t, s: s, client: client, lock: "outcomes"}
			o.compare(b, cli)
		})
	}
}

func (o outcome) compare(b *bundle, cli CLI) {
	b.Helper()
	if a := o.http(b); o.code != "" {
		a.refuses(o.code)
	} else if a.status >= 300 {
		b.Errorf("HTTP: answer %d: %s", a.status, a.body)
	}
	if got := apierr.CodeOf(o.sdk(b)); got != o.code {
		b.Errorf("SDK: code %q, want %q", got, o.code)
	}
	if o.cli == nil {
		return
	}
	want := 0
	if o.code != "" {
		want = o.code.Info().Exit
	}
	args := o.cli
	if args[0] != "run" {
		args = append([]string{"-o", "json"}, args...)
	}
	exit, _, stderr := cli(b.T, args...)
	if exit != want {
		b.Errorf("CLI: exit code %d, want %d: %s", exit, want, stderr)
	}
	// A verdict is no error of the command: it is in the output and the exit code.
	if o.code != "" && o.cli[0] != "check" && cliCode(b.T, stderr) != o.code {
		b.Errorf("CLI: %s, want code %s", stderr, o.code)
	}
}
