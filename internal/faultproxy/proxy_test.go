package faultproxy_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/internal/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup returns a proxy before a server that echoes bodies and counts calls, and a
// client of it.
func setup(t *testing.T) (*faultproxy.Proxy, *http.Client, *atomic.Int32) {
	t.Helper()
	calls := new(atomic.Int32)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		io.Copy(w, r.Body)
	}))
	p, err := faultproxy.New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		p.Close()
		srv.Close()
	})
	return p, &http.Client{Transport: tr, Timeout: 5 * time.Second}, calls
}

func post(c *http.Client, url string) (int, string, error) {
	resp, err := c.Post(url, "text/plain", strings.NewReader("hello"))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestProxy_Faults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault  faultproxy.Fault
		calls  int32
		status int // 0 where no whole answer comes
		body   string
	}{
		"none":         {faultproxy.Fault{}, 1, 200, "hello"},
		"drop request": {faultproxy.Fault{DropRequest: true}, 0, 0, ""},
		"drop answer":  {faultproxy.Fault{DropAnswer: true}, 1, 0, ""},
		"half answer":  {faultproxy.Fault{HalfAnswer: true}, 1, 0, ""},
		"twice":        {faultproxy.Fault{Twice: true}, 2, 200, "hello"},
		"status":       {faultproxy.Fault{Status: 502, Body: "bad"}, 0, 502, "bad"},
		"cut":          {faultproxy.Fault{Delay: time.Minute, CutAfter: time.Millisecond}, 0, 0, ""},
		"delays":       {faultproxy.Fault{Delay: time.Millisecond, DelayAnswer: time.Millisecond}, 1, 200, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, c, calls := setup(t)
			p.Decide(func(*http.Request) faultproxy.Fault { return tc.fault })
			status, body, err := post(c, p.URL())
			if (err == nil) != (tc.status != 0) {
				t.Fatalf("answer %d, %q, %v", status, body, err)
			}
			if err == nil && (status != tc.status || body != tc.body) {
				t.Errorf("answer %d, %q; want %d, %q", status, body, tc.status, tc.body)
			}
			if n := calls.Load(); n != tc.calls {
				t.Errorf("the server saw %d calls, want %d", n, tc.calls)
			}
		})
	}
}

func TestProxy_DroppedAnswerIsAReset(t *testing.T) {
	t.Parallel()
	p, c, _ := setup(t)
	p.Decide(func(*http.Request) faultproxy.Fault { return faultproxy.Fault{DropAnswer: true} })
	if _, _, err := post(c, p.URL()); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want a reset", err)
	}
}

func TestProxy_Partition(t *testing.T) {
	t.Parallel()
	p, c, calls := setup(t)
	if _, _, err := post(c, p.URL()); err != nil { // opens a connection
		t.Fatal(err)
	}
	p.Partition(true)
	c.Timeout = 200 * time.Millisecond
	for range 2 { // the open connection, then a new one
		if _, _, err := post(c, p.URL()); err == nil || errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("in a partition: %v, want silence", err)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls reached the server, want 1", n)
	}
	p.Partition(false)
	c.Timeout = 5 * time.Second
	if _, _, err := post(c, p.URL()); err != nil {
		t.Errorf("after the partition: %v", err)
	}
}

func TestProxy_CutAll(t *testing.T) {
	t.Parallel()
	p, c, _ := setup(t)
	arrived := make(chan struct{})
	p.Decide(func(*http.Request) faultproxy.Fault {
		close(arrived)
		return faultproxy.Fault{Delay: time.Minute}
	})
	failed := make(chan error)
	go func() {
		_, _, err := post(c, p.URL())
		failed <- err
	}()
	<-arrived
	p.CutAll()
	if err := <-failed; err == nil {
		t.Error("an exchange survived CutAll")
	}
}
