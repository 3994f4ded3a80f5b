package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/fenced/fenced/httpapi/console"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
)

// api is the service while and after it is put together.
type api struct {
	router *chi.Mux
	doc    *huma.OpenAPI
	// requests names the components that are request bodies.
	requests map[string]bool

	keys    *keys.Store
	quotas  *quotas
	audit   *slog.Logger
	metrics *metrics
	tracer  trace.Tracer
}

// New returns the handler of the whole service. It starts nothing and does no
// I/O. The error names the field of cfg that is wrong.
func New(cfg Config) (http.Handler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	a, err := newAPI(cfg)
	if err != nil {
		return nil, err
	}
	if err := a.serveDocument(); err != nil {
		return nil, err
	}
	a.serveConsole()
	guard := newGuard(cfg.PublicHosts)
	return recorded(guard.wrap(a.router), cfg.Logger, cfg.AccessLog), nil
}

// newAPI has every route and every operation of the document.
func newAPI(cfg Config) (*api, error) {
	m, err := newMetrics(cfg.Registry, cfg.Engine)
	if err != nil {
		return nil, fmt.Errorf("httpapi config: Registry: %w", err)
	}
	a := &api{
		router: chi.NewRouter(), doc: newDocument(cfg.Version), requests: map[string]bool{},
		keys: cfg.Keys, quotas: newQuotas(cfg.Engine), audit: cfg.Audit, metrics: m, tracer: cfg.Tracer,
	}
	a.router.NotFound(a.notFound)
	a.router.MethodNotAllowed(a.methodNotAllowed)

	holds{cfg.Engine, a.quotas}.routes(a)
	sessions{cfg.Engine, a.quotas}.routes(a)
	locks{cfg.Engine}.routes(a)
	admin{engine: cfg.Engine, version: cfg.Version, build: cfg.Build, mode: cfg.Mode, store: cfg.Store}.routes(a)
	newEvents(cfg.Engine, a.quotas).routes(a)
	upkeep{cfg.Engine, cfg.BackedUp}.routes(a)
	a.serveMetrics(cfg.Registry, cfg.Logger)
	a.mendSchemas()
	return a, nil
}

// serveConsole adds the web page, which needs no key: its calls do.
func (a *api) serveConsole() {
	for _, file := range console.Files() {
		a.route(operation{method: http.MethodGet, path: file.Path}, func(c *call) error {
			file.ServeHTTP(c.w, c.r)
			return nil
		})
	}
}

// route adds one operation: to the router, and to the document unless it has no
// id. HEAD comes with every GET that answers at once.
func (a *api) route(op operation, h func(*call) error) {
	a.document(op)
	serve := a.serve(op, h)
	a.router.MethodFunc(op.method, op.path, serve)
	if op.method == http.MethodGet && !op.waits {
		a.router.MethodFunc(http.MethodHead, op.path, serve)
	}
}

// serve is how every request of op goes.
func (a *api) serve(op operation, h func(*call) error) http.HandlerFunc {
	meter := a.metrics.of(&op)
	return func(w http.ResponseWriter, r *http.Request) {
		recorderOf(w).route = op.path
		c := call{w: w, r: r, audited: a.audit != nil && op.audited}
		outcome, end := errPanicked, meter.begin()
		span := a.startSpan(&op, &c)
		defer func() {
			if outcome == errPanicked {
				a.auditLine(&op, &c, outcome)
			}
			span.end(&c, outcome)
			end(outcome)
		}()
		err := a.admit(&c, &op)
		if err == nil {
			err = h(&c)
		}
		outcome = err
		if err != nil && r.Context().Err() != nil {
			outcome = errClientGone // whatever else went wrong, nobody waits for it
		}
		a.auditLine(&op, &c, outcome)
		if err != nil {
			writeProblem(w, r, err)
		}
	}
}

// errPanicked is the outcome of a handler that did not return.
var errPanicked = errors.New("handler panicked")

// admit lets a request pass to its handler: a known key with the role, within its
// rate, and a query that can be read.
func (a *api) admit(c *call, op *operation) error {
	if err := a.authenticate(c, op.role); err != nil {
		return err
	}
	if err := a.quotas.request(c.key); err != nil {
		return err
	}
	return c.parseQuery(op.query)
}

func (a *api) notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, r, apierr.New(apierr.NotFound, "see /docs for the routes"))
}

// methodNotAllowed answers OPTIONS too, without any header of CORS: no other site
// may call this service.
func (a *api) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	allowed := a.allowed(cmp.Or(r.URL.RawPath, r.URL.Path)) // as chi looks for the route
	w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	writeProblem(w, r, apierr.New(apierr.MethodNotAllowed, "the route knows %s", strings.Join(allowed, ", ")))
}

// allowed lists the methods of the route at path.
func (a *api) allowed(path string) []string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete} {
		if a.router.Match(chi.NewRouteContext(), m, path) {
			methods = append(methods, m)
		}
	}
	return methods
}
