package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/wire"
)

// FuzzHandler sends whatever it likes: no answer is a fault of the server, and
// every refusal is a problem whose code fits its status. Where there are keys, nothing
// that it makes up is one.
func FuzzHandler(f *testing.F) {
	for _, bad := range badInputs {
		r := bad.request()
		f.Add(r.Method, r.URL.Path, r.URL.RawQuery, []byte(bad.body), r.Header.Get("Content-Type"), r.Host, bad.header["Last-Event-ID"])
	}
	f.Add("POST", "/v1/holds", "", []byte(`{"lock":"a","owner":"b","wait":"1s"}`), "application/json", "localhost", "")
	f.Add("GET", "/v1/holds/x", "wait=1s", []byte{}, "", "localhost", "")
	handler := newHandler(f, agreeable())
	ring := newKeyring(f)
	ring.add("somebody", keys.Admin, "", apikey.Quota{})
	locked, err := httpapi.New(httpapi.Config{Engine: agreeable(), Keys: ring.open(), Logger: quiet()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, path, query string, body []byte, contentType, host, other string) {
		if path == "/v1/events" {
			return // needs the engine's own subscription
		}
		send := func(to http.Handler) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
			r.Method, r.URL, r.Host = method, &url.URL{Path: path, RawQuery: query}, host
			r.Header.Set("Content-Type", contentType)
			for _, name := range []string{"Last-Event-ID", "Authorization", wire.IdempotencyKey, "Origin", "Sec-Fetch-Site"} {
				r.Header.Set(name, other)
			}
			w := httptest.NewRecorder()
			to.ServeHTTP(w, r)
			return w
		}
		if w := send(locked); w.Code < 400 && strings.HasPrefix(path, "/v1/") && method != http.MethodOptions {
			t.Fatalf("without a key: status %d", w.Code)
		}
		w := send(handler)
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
