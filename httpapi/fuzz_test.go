package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/fenced/fenced/internal/wire"
)

// FuzzHandler sends whatever it likes: no answer is a fault of the server, and
// every refusal is a problem whose code fits its status.
func FuzzHandler(f *testing.F) {
	for _, bad := range badInputs {
		r := bad.request()
		f.Add(r.Method, r.URL.Path, r.URL.RawQuery, []byte(bad.body), r.Header.Get("Content-Type"), r.Host, bad.header["Last-Event-ID"])
	}
	f.Add("POST", "/v1/holds", "", []byte(`{"lock":"a","owner":"b","wait":"1s"}`), "application/json", "localhost", "")
	f.Add("GET", "/v1/holds/x", "wait=1s", []byte{}, "", "localhost", "")
	handler := newHandler(f, agreeable())
	f.Fuzz(func(t *testing.T, method, path, query string, body []byte, contentType, host, other string) {
		if path == "/v1/events" {
			return // needs the engine's own subscription
		}
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Method, r.URL, r.Host = method, &url.URL{Path: path, RawQuery: query}, host
		r.Header.Set("Content-Type", contentType)
		for _, name := range []string{"Last-Event-ID", "Authorization", wire.IdempotencyKey, "Origin", "Sec-Fetch-Site"} {
			r.Header.Set(name, other)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		if w.Code < 400 || method == http.MethodHead {
			return
		}
		var p wire.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || !p.Code.Known() || p.Code.Info().Status != w.Code {
			t.Fatalf("status %d, problem %s, error %v", w.Code, w.Body, err)
		}
	})
}
