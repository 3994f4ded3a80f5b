package httpapi_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

// fakeEngine stands for the engine where only the HTTP side is under test. A call
// whose function is nil panics, which the service answers with 500: so a test
// that refuses bad input also shows that nothing reached the engine.
type fakeEngine struct {
	acquire      func(context.Context, lockserver.AcquireRequest) (*lockserver.Hold, error)
	hold         func(context.Context, string) (*lockserver.Hold, error)
	awaitHold    func(context.Context, string, time.Duration) (*lockserver.Hold, error)
	renew        func(context.Context, string) (*lockserver.Hold, error)
	release      func(context.Context, string) error
	session      func(context.Context, string) (*lockserver.Session, error)
	sessions     func(context.Context) ([]lockserver.Session, error)
	awaitSession func(context.Context, string, time.Duration) (*lockserver.Session, error)
	create       func(context.Context, string, time.Duration) (*lockserver.Session, error)
	lock         func(context.Context, string) (*lockserver.LockInfo, error)
	locks        func(context.Context, lockserver.LocksQuery) (*lockserver.LockPage, error)
	check        func(context.Context, []lockserver.Pair) ([]lockserver.CheckResult, error)
	breakHold    func(context.Context, lockserver.BreakRequest) (*lockserver.Ended, error)
	subscribe    func(context.Context, string, *lockserver.EventID) (*lockserver.Subscription, error)
	ready        func() error
	status       func(context.Context) (lockserver.Status, error)
	raiseFloor   func(context.Context, tokens.Token) (int64, error)
	fakeUpkeep
}

var _ httpapi.Engine = (*fakeEngine)(nil)

func (f *fakeEngine) Acquire(ctx context.Context, req lockserver.AcquireRequest) (*lockserver.Hold, error) {
	return f.acquire(ctx, req)
}

func (f *fakeEngine) Hold(ctx context.Context, id string) (*lockserver.Hold, error) {
	if f.hold == nil { // what a release looks at
		return nil, &lockserver.GoneError{}
	}
	return f.hold(ctx, id)
}

func (f *fakeEngine) AwaitHold(ctx context.Context, id string, wait time.Duration) (*lockserver.Hold, error) {
	return f.awaitHold(ctx, id, wait)
}

func (f *fakeEngine) Renew(ctx context.Context, id string) (*lockserver.Hold, error) {
	return f.renew(ctx, id)
}

func (f *fakeEngine) Release(ctx context.Context, id string) error { return f.release(ctx, id) }

func (f *fakeEngine) CreateSession(ctx context.Context, owner string, ttl time.Duration) (*lockserver.Session, error) {
	return f.create(ctx, owner, ttl)
}

func (f *fakeEngine) RenewSession(ctx context.Context, id string) (*lockserver.Session, error) {
	return f.session(ctx, id)
}

func (f *fakeEngine) Session(ctx context.Context, id string) (*lockserver.Session, error) {
	return f.session(ctx, id)
}

func (f *fakeEngine) AwaitSession(ctx context.Context, id string, wait time.Duration) (*lockserver.Session, error) {
	return f.awaitSession(ctx, id, wait)
}

func (f *fakeEngine) EndSession(ctx context.Context, id string) error { return f.release(ctx, id) }

func (f *fakeEngine) Sessions(ctx context.Context) ([]lockserver.Session, error) {
	return f.sessions(ctx)
}

func (f *fakeEngine) Lock(ctx context.Context, name string) (*lockserver.LockInfo, error) {
	return f.lock(ctx, name)
}

func (f *fakeEngine) Locks(ctx context.Context, q lockserver.LocksQuery) (*lockserver.LockPage, error) {
	return f.locks(ctx, q)
}

func (f *fakeEngine) Check(ctx context.Context, pairs []lockserver.Pair) ([]lockserver.CheckResult, error) {
	return f.check(ctx, pairs)
}

func (f *fakeEngine) Break(ctx context.Context, req lockserver.BreakRequest) (*lockserver.Ended, error) {
	return f.breakHold(ctx, req)
}

func (f *fakeEngine) Subscribe(ctx context.Context, prefix string, after *lockserver.EventID) (*lockserver.Subscription, error) {
	return f.subscribe(ctx, prefix, after)
}

func (f *fakeEngine) Ready() error { return f.ready() }

func (f *fakeEngine) Status(ctx context.Context) (lockserver.Status, error) { return f.status(ctx) }

func (f *fakeEngine) RaiseFloor(ctx context.Context, above tokens.Token) (int64, error) {
	return f.raiseFloor(ctx, above)
}

// heldHold is what a granting engine returns.
func heldHold(req lockserver.AcquireRequest) *lockserver.Hold {
	return &lockserver.Hold{
		ID: "mfrggzdfmztwq2lknnwg23tpoa", Ref: "nbswy3dpo5xxe3denbswy3dpo4",
		Lock: req.Lock, Owner: req.Owner, State: lockserver.Held, Token: 7341,
		TTL: lockserver.DefaultTTL, ExpiresIn: 14998 * time.Millisecond, ExpiryKnown: true,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Revision: 7341,
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// newHandler returns the service over engine.
func newHandler(t testing.TB, engine httpapi.Engine) http.Handler {
	t.Helper()
	h, err := httpapi.New(httpapi.Config{Engine: engine, Logger: quiet()})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return h
}

// serve starts the service with the timeouts and connections of production.
func serve(t testing.TB, engine httpapi.Engine) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = httpapi.NewServer(newHandler(t, engine))
	srv.Config.ErrorLog = slog.NewLogLogger(quiet().Handler(), slog.LevelError)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}
