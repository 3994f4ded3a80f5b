package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// A full run leaves its secrets (hold ids, session ids, API keys) in no log, trace,
// list, event, metric, error or snapshot of the store: only refs may stand there.
func TestSecrets_stay_with_their_owners(t *testing.T) {
	t.Parallel()
	var logs lines
	logger := slog.New(slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	node := etcdtest.Node(t)
	registry := prometheus.NewRegistry()
	observer, err := httpapi.Observe(registry)
	if err != nil {
		t.Fatal(err)
	}
	engine, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client(), Alone: true, Logger: logger, Observer: observer})
	spans := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("")
	ring := newKeyring(t)
	key := ring.add("all", keys.Admin, "", apikey.Quota{})
	c := newClientWith(t, httpapi.Config{
		Engine: engine, Keys: ring.open(), Logger: logger, AccessLog: logger, Audit: logger, Registry: registry, Tracer: tracer,
	})
	auth := []string{"Authorization", "Bearer " + key}

	var seen bytes.Buffer // what others can see
	look := func(method, target, body string) {
		t.Helper()
		resp := c.send(t, method, target, body, auth...)
		fmt.Fprintln(&seen, resp.Header)
		if _, err := io.Copy(&seen, resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	session := decode[wire.Session](t, c.send(t, "POST", "/v1/sessions", `{"owner":"w"}`, auth...), http.StatusCreated)
	held := c.acquire(t, "secrets", `,"session":"`+session.Session+`"`, auth...)
	released := c.acquire(t, "others", "", auth...)
	c.send(t, "DELETE", "/v1/holds/"+released.Hold, "", auth...)
	queued := decode[wire.Hold](t, c.send(t, "POST", "/v1/holds", acquireBody("secrets", `,"keep_place":true`),
		append(auth, wire.IdempotencyKey, keyA)...), http.StatusAccepted)

	look("POST", "/v1/holds", acquireBody("secrets", ""))
	look("GET", "/v1/locks", "")
	look("GET", "/v1/lock?name=secrets", "")
	look("GET", "/v1/lock?name=others", "")
	look("GET", "/v1/sessions", "")
	look("GET", "/v1/status", "")
	look("GET", "/v1/whoami", "")
	look("GET", "/metrics", "")
	look("POST", "/v1/check", fmt.Sprintf(`[{"lock":"secrets","token":%d}]`, held.Token))
	for _, hold := range []wire.Hold{released, queued} { // errors about a hold name it by its ref
		look("POST", "/v1/holds/"+hold.Hold+"/renew", "")
	}
	look("GET", "/v1/holds/"+held.Hold+"x", "")
	look("PUT", "/v1/holds/"+held.Hold, "")
	look("POST", "/v1/break", fmt.Sprintf(`{"lock":"secrets","token":%d,"reason":"r"}`, held.Token))
	look("DELETE", "/v1/sessions/"+session.Session, "")

	last := c.acquire(t, "last", "", auth...) // its event comes after all others of the run
	since := fmt.Sprintf("%d.0", session.Revision)
	events := c.send(t, "GET", "/v1/events", "", append(auth, "Last-Event-ID", since)...)
	kinds := readEvents(t, io.TeeReader(events.Body, &seen), last.Ref)
	want := map[string]string{held.Ref: "granted broken", released.Ref: "granted released", queued.Ref: "queued granted", last.Ref: "granted"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("the events of the run, by ref (-want +got)\n%s", diff)
	}
	snapshot, err := node.Client().SnapshotWithVersion(t.Context()) // with all that was overwritten, and the leases
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seen.ReadFrom(snapshot.Snapshot); err != nil {
		t.Fatal(err)
	}
	traces := fmt.Sprintf("%+v", spans.GetSpans())
	if !strings.Contains(traces, held.Ref) {
		t.Error("the traces lack a ref: the test looks in the wrong place")
	}

	text := seen.String() + logs.String() + traces
	for name, secret := range map[string]string{
		"held hold": held.Hold, "released hold": released.Hold, "queued hold": queued.Hold,
		"session": session.Session, "API key": key, "idempotency key": keyA, "idempotency key, plain": strings.ReplaceAll(keyA, "-", ""),
	} {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("the %s shows: ...%s...", name, text[max(0, i-200):min(len(text), i+100)])
		}
	}
	for _, ref := range []string{held.Ref, released.Ref, queued.Ref, session.Ref} {
		if !strings.Contains(text, ref) {
			t.Errorf("the ref %s shows nowhere: the test looks in the wrong places", ref)
		}
	}
}

// readEvents reads up to the first event of the hold last, and returns what happened
// to each hold in order.
func readEvents(t *testing.T, body io.Reader, last string) map[string]string {
	t.Helper()
	s := &stream{t: t, lines: bufio.NewScanner(body)}
	kinds := make(map[string]string)
	for {
		m := s.next()
		kinds[m.data.Ref] = strings.TrimSpace(kinds[m.data.Ref] + " " + m.name)
		if m.data.Ref == last {
			return kinds
		}
	}
}
