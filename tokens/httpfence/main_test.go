package httpfence_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/httpfence"
	"github.com/fenced/fenced/tokens/memfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lockOf is how the services of these tests name locks.
func lockOf(r *http.Request) (string, error) { return "account/" + r.PathValue("id"), nil }

// write returns a handler that writes the request's body as the account's value,
// fenced, in one unit of work.
func write(store *memfence.Store) httpfence.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		return writeFenced(r, store, string(body))
	}
}

func writeFenced(r *http.Request, store *memfence.Store, value string) error {
	lock, _ := lockOf(r)
	token, _ := tokens.FromContext(r.Context(), lock)
	tx := store.Begin()
	defer tx.Rollback()
	if _, err := store.Advance(r.Context(), tx, tokens.Claim{Resource: lock, Token: token}); err != nil {
		return err
	}
	if err := tx.Write(lock, value); err != nil {
		return err
	}
	return tx.Commit()
}

// commit writes value under token, as another holder would.
func commit(t *testing.T, store *memfence.Store, token tokens.Token, value string) {
	t.Helper()
	tx := store.Begin()
	defer tx.Rollback()
	_, err := store.Advance(context.Background(), tx, tokens.Claim{Resource: "account/42", Token: token})
	if err == nil {
		err = tx.Write("account/42", value)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serve returns a service whose POST /account/{id} is h, behind cfg.
func serve(t *testing.T, cfg httpfence.Config, h httpfence.HandlerFunc) http.Handler {
	t.Helper()
	if cfg.Lock == nil {
		cfg.Lock = lockOf
	}
	fence, err := httpfence.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /account/{id}", fence.Handle(h))
	return mux
}

// post sends value with the given token headers.
func post(h http.Handler, value string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/account/42", strings.NewReader(value))
	for _, v := range headers {
		r.Header.Add(tokens.Header, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// problem is the body that clients read.
type problem struct {
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Resource  string `json:"resource"`
	Presented int64  `json:"presented"`
	Current   int64  `json:"current"`
}

func readProblem(t *testing.T, w *httptest.ResponseRecorder) problem {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type = %q, want application/problem+json", got)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control = %q, want no-store", got)
	}
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("body %q: %v", w.Body, err)
	}
	if p.Status != w.Code || p.Title == "" {
		t.Errorf("problem %+v in an answer of status %d", p, w.Code)
	}
	return p
}
