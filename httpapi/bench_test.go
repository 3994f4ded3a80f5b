package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/lockserver"
)

// discard is a writer that keeps nothing, so that the benchmark measures the
// handler and not the recorder of httptest.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkHandler(b *testing.B) {
	engine := &fakeEngine{
		acquire: func(_ context.Context, req lockserver.AcquireRequest) (*lockserver.Hold, error) {
			return heldHold(req), nil
		},
		renew: func(context.Context, string) (*lockserver.Hold, error) {
			return heldHold(lockserver.AcquireRequest{Lock: "orders/42", Owner: "worker-1"}), nil
		},
		release: func(context.Context, string) error { return nil },
	}
	handler := newHandler(b, engine)
	for _, bb := range []struct{ name, method, target, body string }{
		{"acquire", "POST", "/v1/holds", `{"lock":"orders/42","owner":"worker-1","ttl":"15s"}`},
		{"renew", "POST", "/v1/holds/mfrggzdfmztwq2lknnwg23tpoa/renew", ""},
		{"release", "DELETE", "/v1/holds/mfrggzdfmztwq2lknnwg23tpoa", ""},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := badInput{method: bb.method, target: bb.target, body: bb.body}.request()
			b.ReportAllocs()
			for b.Loop() {
				r.Body = http.NoBody
				if bb.body != "" {
					r.Body = &body{Reader: strings.NewReader(bb.body)}
				}
				handler.ServeHTTP(&discard{header: http.Header{}}, r)
			}
		})
	}
}

// body is a request body without the cost of io.NopCloser's wrapper.
type body struct{ *strings.Reader }

func (*body) Close() error { return nil }

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := httpapi.New(httpapi.Config{Engine: &fakeEngine{}, Logger: quiet()}); err != nil {
			b.Fatal(err)
		}
	}
}
