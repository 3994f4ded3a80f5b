package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/httpfence"
	"github.com/fenced/fenced/tokens/memfence"
)

func TestFence_Handle_Header(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		headers []string
		status  int
		code    string
	}{
		{"valid", []string{"34"}, 200, ""},
		{"highest", []string{"9007199254740991"}, 200, ""},
		{"missing", nil, 428, "token_missing"},
		{"empty", []string{""}, 400, "malformed"},
		{"repeated", []string{"34", "35"}, 400, "malformed"},
		{"repeated with equal values", []string{"34", "34"}, 400, "malformed"},
		{"list in one header", []string{"34, 35"}, 400, "malformed"},
		{"zero", []string{"0"}, 400, "malformed"},
		{"negative", []string{"-1"}, 400, "malformed"},
		{"plus sign", []string{"+1"}, 400, "malformed"},
		{"leading zero", []string{"034"}, 400, "malformed"},
		{"fraction", []string{"1.5"}, 400, "malformed"},
		{"exponent", []string{"1e3"}, 400, "malformed"},
		{"2^53", []string{"9007199254740992"}, 400, "malformed"},
		{"beyond int64", []string{"99999999999999999999"}, 400, "malformed"},
		{"text", []string{"abc"}, 400, "malformed"},
		{"quoted", []string{`"34"`}, 400, "malformed"},
		{"other digits", []string{"٣٤"}, 400, "malformed"},
		{"huge", []string{strings.Repeat("9", 100_000)}, 400, "malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := memfence.New()
			w := post(serve(t, httpfence.Config{}, write(store)), "v", tt.headers...)
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d; body %s", w.Code, tt.status, w.Body)
			}
			if tt.status == 200 {
				return
			}
			if p := readProblem(t, w); p.Code != tt.code {
				t.Errorf("code %q, want %q", p.Code, tt.code)
			}
			if w.Body.Len() > 1<<10 {
				t.Errorf("the body has %d bytes", w.Body.Len())
			}
			if _, ok := store.Read("account/42"); ok {
				t.Error("something was written")
			}
		})
	}
}

func TestFence_Handle_Stale(t *testing.T) {
	t.Parallel()
	store := memfence.New()
	commit(t, store, 34, "successor")
	w := post(serve(t, httpfence.Config{}, write(store)), "stale", "33")
	got := readProblem(t, w)
	got.Title, got.Detail = "", ""
	want := problem{Status: 412, Code: "stale_token", Resource: "account/42", Presented: 33, Current: 34}
	if got != want {
		t.Errorf("problem %+v, want %+v", got, want)
	}
	if v, _ := store.Read("account/42"); v != "successor" {
		t.Errorf("value %q, want the successor's", v)
	}
}

// The middleware does not accept: a successor that writes after it has looked,
// and before the handler writes, must win. Early refusal is on, and saw nothing.
func TestFence_NeverAcceptsAWrite(t *testing.T) {
	t.Parallel()
	store := memfence.New()
	commit(t, store, 32, "before")
	inHandler, proceed := make(chan struct{}), make(chan struct{})
	h := serve(t, httpfence.Config{Peek: store.Peek}, func(w http.ResponseWriter, r *http.Request) error {
		close(inHandler)
		<-proceed
		return writeFenced(r, store, "stale")
	})
	answer := make(chan *httptest.ResponseRecorder)
	go func() { answer <- post(h, "", "33") }()

	<-inHandler
	if fence, err := store.Peek(t.Context(), "account/42"); err != nil || fence != 32 {
		t.Errorf("the middleware moved the fence: %d, %v; want 32", fence, err)
	}
	commit(t, store, 34, "successor")
	close(proceed)

	w := <-answer
	if p := readProblem(t, w); w.Code != 412 || p.Presented != 33 || p.Current != 34 {
		t.Errorf("status %d, %+v; want 412 for 33 at 34", w.Code, p)
	}
	if v, _ := store.Read("account/42"); v != "successor" {
		t.Errorf("value %q, want the successor's", v)
	}
}

func TestFence_Peek(t *testing.T) {
	t.Parallel()
	store := memfence.New()
	commit(t, store, 34, "successor")
	reached := func(http.ResponseWriter, *http.Request) error {
		t.Error("the handler was called")
		return nil
	}
	if w := post(serve(t, httpfence.Config{Peek: store.Peek}, reached), "", "33"); w.Code != 412 {
		t.Errorf("status %d, want an early 412", w.Code)
	}
	broken := func(context.Context, string) (tokens.Token, error) { return 99, errors.New("no connection") }
	if w := post(serve(t, httpfence.Config{Peek: broken}, write(store)), "v", "35"); w.Code != 200 {
		t.Errorf("status %d behind a Peek that fails, want 200: only a refusal is conclusive", w.Code)
	}
}

func TestFence_Handle_Errors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err        error
		status     int
		code       string
		retryAfter string
	}{
		{fmt.Errorf("wrapped: %w", &tokens.StaleError{Resource: "r", Presented: 1, Current: 2}), 412, "stale_token", ""},
		{tokens.ErrDuplicate, 409, "duplicate", ""},
		{tokens.ErrBusy, 503, "busy", "1"},
		{tokens.ErrRetryable, 503, "busy", "1"},
		{tokens.ErrUnknownOutcome, 503, "outcome_unknown", "1"},
		{tokens.ErrUnfenced, 500, "internal", ""},
		{context.DeadlineExceeded, 500, "internal", ""},
		{errors.New("password=secret"), 500, "internal", ""},
	} {
		t.Run(tt.err.Error(), func(t *testing.T) {
			t.Parallel()
			w := post(serve(t, httpfence.Config{}, func(http.ResponseWriter, *http.Request) error { return tt.err }), "", "1")
			p := readProblem(t, w)
			if w.Code != tt.status || p.Code != tt.code || w.Header().Get("Retry-After") != tt.retryAfter {
				t.Errorf("status %d, %+v, Retry-After %q; want %d, %s, %q", w.Code, p, w.Header().Get("Retry-After"), tt.status, tt.code, tt.retryAfter)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Error("the error's text was sent")
			}
		})
	}
}

// What a handler wrote before it failed is never seen.
func TestFence_Handle_DropsWhatWasWritten(t *testing.T) {
	t.Parallel()
	w := post(serve(t, httpfence.Config{}, func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("X-Paid", "yes")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "paid")
		return &tokens.StaleError{Resource: "account/42", Presented: 33, Current: 34}
	}), "", "33")
	if w.Code != 412 || w.Header().Get("X-Paid") != "" || strings.Contains(w.Body.String(), "paid") {
		t.Errorf("status %d, header %v, body %s; want a bare 412", w.Code, w.Header(), w.Body)
	}
}

func TestFence_Handle_SendsWhatWasWritten(t *testing.T) {
	t.Parallel()
	w := post(serve(t, httpfence.Config{}, func(w http.ResponseWriter, r *http.Request) error {
		w.WriteHeader(http.StatusEarlyHints) // cannot be sent ahead
		w.Header().Set("X-Paid", "yes")
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "yes")
		fmt.Fprint(w, "paid")
		fmt.Fprint(w, " twice")
		return nil
	}), "", "33")
	if w.Code != 201 || w.Header().Get("X-Paid") != "yes" || w.Header().Get("X-Late") != "" || w.Body.String() != "paid twice" {
		t.Errorf("status %d, header %v, body %q; want 201, X-Paid only, paid twice", w.Code, w.Header(), w.Body)
	}
}

// What was set around the handler is what it adds to or takes away; after an error it
// stands as it was.
func TestFence_Handle_HeadersSetAround(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		inner := serve(t, httpfence.Config{}, func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Add("Vary", "Accept")
			w.Header().Del("X-Around")
			if fails {
				return tokens.ErrBusy
			}
			return nil
		})
		w := post(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", "Origin")
			w.Header().Set("X-Around", "yes")
			inner.ServeHTTP(w, r)
		}), "", "33")
		vary, around := w.Header().Values("Vary"), w.Header().Get("X-Around")
		if want := "[Origin Accept]"; !fails && (fmt.Sprint(vary) != want || around != "") {
			t.Errorf("success: Vary %v, X-Around %q; want %s and none", vary, around, want)
		}
		if want := "[Origin]"; fails && (fmt.Sprint(vary) != want || around != "yes") {
			t.Errorf("failure: Vary %v, X-Around %q; want %s and yes", vary, around, want)
		}
	}
}

func TestFence_Handle_AnswerTooLarge(t *testing.T) {
	t.Parallel()
	for _, returned := range []bool{true, false} {
		w := post(serve(t, httpfence.Config{}, func(w http.ResponseWriter, r *http.Request) error {
			if _, err := w.Write(make([]byte, httpfence.MaxAnswer)); err != nil {
				t.Errorf("write of the most that is allowed: %v", err)
			}
			_, err := w.Write([]byte{1})
			if !errors.Is(err, httpfence.ErrAnswerTooLarge) {
				t.Errorf("write beyond the limit: %v, want ErrAnswerTooLarge", err)
			}
			if returned {
				return err
			}
			return nil
		}), "", "33")
		if w.Code != 500 || w.Body.Len() > 1<<10 {
			t.Errorf("status %d with %d bytes, want a short 500", w.Code, w.Body.Len())
		}
	}
}

func TestFence_ErrorFunc(t *testing.T) {
	t.Parallel()
	cfg := httpfence.Config{ErrorFunc: func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, "mine: "+err.Error(), http.StatusTeapot)
	}}
	w := post(serve(t, cfg, func(http.ResponseWriter, *http.Request) error { return errors.New("odd") }), "", "1")
	if w.Code != http.StatusTeapot || !strings.Contains(w.Body.String(), "mine: odd") {
		t.Errorf("status %d, body %q; want what ErrorFunc wrote", w.Code, w.Body)
	}
}

func TestFence_Lock(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(*http.Request) (string, error){
		"error":    func(*http.Request) (string, error) { return "account/42", errors.New("no such account") },
		"empty":    func(*http.Request) (string, error) { return "", nil },
		"too long": func(*http.Request) (string, error) { return strings.Repeat("x", 2000), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := post(serve(t, httpfence.Config{Lock: lock}, write(memfence.New())), "", "1")
			if p := readProblem(t, w); w.Code != 400 || p.Code != "malformed" {
				t.Errorf("status %d, %+v; want 400 malformed", w.Code, p)
			}
		})
	}
	if _, err := httpfence.New(httpfence.Config{}); !errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("New without Lock: %v, want ErrInvalid", err)
	}
}

// A handler that asks for another lock than the request's finds no token.
func TestFence_Wrap_PairsLockAndToken(t *testing.T) {
	t.Parallel()
	fence, err := httpfence.New(httpfence.Config{Lock: func(*http.Request) (string, error) { return "a", nil }})
	if err != nil {
		t.Fatal(err)
	}
	h := fence.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, ok := tokens.FromContext(r.Context(), "a"); !ok || token != 7 {
			t.Errorf("token of a: %d, %v; want 7", token, ok)
		}
		if token, ok := tokens.FromContext(r.Context(), "b"); ok {
			t.Errorf("token of b: %d, want none", token)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	if w := post(h, "", "7"); w.Code != http.StatusNoContent {
		t.Errorf("status %d, want 204", w.Code)
	}
}

func TestWriteError_Unknown(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	if httpfence.WriteError(w, errors.New("odd")) || w.Body.Len() > 0 {
		t.Errorf("an unknown error was answered: %s", w.Body)
	}
}
