package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/fenced/fenced/clientsdk"
)

// collector is a receiver of OTLP over gRPC.
type collector struct {
	collected.UnimplementedTraceServiceServer
	url string

	mu    sync.Mutex
	got   []*tracepb.ResourceSpans
	spans map[string]*tracepb.Span // by name, the last one of each
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{url: "http://" + listener.Addr().String(), spans: map[string]*tracepb.Span{}}
	server := grpc.NewServer()
	collected.RegisterTraceServiceServer(server, c)
	done := make(chan struct{})
	go func() { _ = server.Serve(listener); close(done) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return c
}

// Export implements collected.TraceServiceServer.
func (c *collector) Export(_ context.Context, req *collected.ExportTraceServiceRequest) (*collected.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, req.ResourceSpans...)
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans[s.Name] = s
			}
		}
	}
	return &collected.ExportTraceServiceResponse{}, nil
}

// text is all that was received, as text.
func (c *collector) text() string {
	var b strings.Builder
	for _, rs := range c.got {
		b.WriteString(rs.String())
	}
	return b.String()
}

// attributes returns those of the last span of that name.
func (c *collector) attributes(t *testing.T, name string) map[string]string {
	t.Helper()
	s := c.spans[name]
	if s == nil {
		t.Fatalf("no span %s in %s", name, c.text())
	}
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.GetStringValue()
		if _, number := a.Value.Value.(*commonpb.AnyValue_IntValue); number {
			all[a.Key] = strconv.FormatInt(a.Value.GetIntValue(), 10)
		}
	}
	return all
}

// caller is the trace of whoever calls the server.
var caller = trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, SpanID: trace.SpanID{1, 2, 3, 4, 5, 6, 7, 8},
	TraceFlags: trace.FlagsSampled, Remote: true,
})

// tracing is how a caller's http.Client hands its trace on.
type tracing struct{}

// RoundTrip implements http.RoundTripper.
func (tracing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	return http.DefaultTransport.RoundTrip(r)
}

// acquireTraced acquires and releases a lock through the SDK, as a part of the
// caller's trace, and returns the hold.
func acquireTraced(t *testing.T, url string) *clientsdk.Hold {
	t.Helper()
	client, err := clientsdk.New(clientsdk.Config{Endpoints: []string{url}, HTTPClient: &http.Client{Transport: tracing{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx := trace.ContextWithSpanContext(t.Context(), caller)
	hold, err := client.TryAcquire(ctx, "orders/42", &clientsdk.AcquireOptions{PerHold: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(ctx); err != nil {
		t.Fatal(err)
	}
	return hold
}

// A request's span is a part of the caller's trace, says lock and token, and not who
// could release it.
func TestTraces_of_requests(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	config := defaultConfig()
	config.DataDir, config.OTLPEndpoint, config.Name = filepath.Join(t.TempDir(), "data"), c.url, "n7"
	url, _, stop := startConfig(t, config)
	hold := acquireTraced(t, url)
	resp, raw := post(t, url+"/v1/holds", `{"lock":"orders/43","owner":"me"}`)
	if resp.StatusCode != http.StatusCreated {
		t.Fatal(resp.Status)
	}
	again, err := http.Get(url + "/v1/holds/" + raw.Hold)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Body.Close()
	if err := stop(); err != nil { // sends what is left
		t.Fatal(err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.text()
	traceID, parent := caller.TraceID(), caller.SpanID()
	release := c.spans["releaseHold"]
	if release == nil || string(release.TraceId) != string(traceID[:]) || string(release.ParentSpanId) != string(parent[:]) {
		t.Errorf("the release is not a part of the caller's trace: %v", release)
	}
	seen := c.attributes(t, "getHold")
	for key, want := range map[string]string{
		"fenced.lock": "orders/43", "fenced.token": raw.Token.String(), "fenced.ref": raw.Ref, "fenced.outcome": "ok", "http.route": "/v1/holds/{hold}",
	} {
		if seen[key] != want {
			t.Errorf("%s is %q, want %q", key, seen[key], want)
		}
	}
	for _, want := range []string{hold.Ref(), hold.Token().String(), "orders/42", "n7", "service.name"} {
		if !strings.Contains(text, want) {
			t.Errorf("the traces lack %q", want)
		}
	}
	if strings.Contains(text, raw.Hold) {
		t.Errorf("the traces tell the secret id: %s", text)
	}
}

// What a request asks of an external etcd is a part of its trace; a batch, which
// serves many, and what the server does by itself make none.
func TestTraces_reach_an_external_etcd(t *testing.T) {
	t.Parallel()
	c, etcd := newCollector(t), newEtcd(t)
	etcd.start(t.TempDir())
	config := defaultConfig()
	config.DataDir, config.OTLPEndpoint, config.EtcdEndpoints = filepath.Join(t.TempDir(), "data"), c.url, []string{etcd.client}
	url, _, stop := startConfig(t, config)
	acquireTraced(t, url)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	acquire, grant := c.spans["acquireHold"], c.spans["etcdserverpb.Lease/LeaseGrant"]
	if acquire == nil || grant == nil || string(grant.ParentSpanId) != string(acquire.SpanId) {
		t.Fatalf("the lease is not granted within the request: %v, %v", acquire, grant)
	}
	id := caller.TraceID()
	for name, s := range c.spans {
		if string(s.TraceId) != string(id[:]) {
			t.Errorf("span %s belongs to no caller", name)
		}
	}
}

// A collector that is away costs its spans, and a stop no more than 3 s.
func TestTraces_are_lost_without_a_collector(t *testing.T) {
	t.Parallel()
	config := defaultConfig()
	config.DataDir, config.OTLPEndpoint = filepath.Join(t.TempDir(), "data"), freeURL(t)
	p := launch(t, config)
	if !bufio.NewScanner(p.out).Scan() {
		t.Fatal("the server did not start")
	}
	if _, hold := post(t, p.url+"/v1/holds", `{"lock":"orders/42","owner":"me"}`); !hold.Token.Valid() {
		t.Errorf("got %+v", hold)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if logs := p.logs.String(); !strings.Contains(logs, "traces are lost") {
		t.Errorf("the log says nothing:\n%s", logs)
	}
}
