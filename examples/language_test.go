//go:build linux

package examples_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// simulated is what the simulation of each language prints.
var simulated = []string{
	"no fence: the late write lands", "the worker that had lost the lock",
	"a fence: the database refuses it", "the newest holder",
	"a look at the hold in time: nothing is sent", "the newest holder",
}

// stalls stops one worker that writes over HTTP past its lease, once after its last
// look at the hold, so that only the store can refuse it (412), and once before.
func (p *place) stalls(ttl string, pay ...string) {
	p.t.Helper()
	pay = append(pay, "--store", p.store)
	for where, want := range map[string]string{
		"write": "worker-a is refused by the store: token ",
		"look":  "worker-a stops before the write: ",
	} {
		a := p.start(append(pay[:len(pay):len(pay)], "--owner", "worker-a", "--stall", where, "--ttl", ttl)...)
		if err := a.WaitStopped(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
		p.prints([]string{"worker-b has paid with token"}, append(pay[:len(pay):len(pay)], "--owner", "worker-b")...)
		if err := a.Signal(syscall.SIGCONT); err != nil {
			p.t.Fatal(err)
		}
		p.fails(a, want)
	}
}

// keeps wants a program that holds the lock "kept" with a TTL of 3 s to have it for
// longer, by renewals, and to say that it is lost once it was broken.
func (p *place) keeps(args ...string) {
	p.t.Helper()
	process := p.start(args...)
	token := strings.TrimPrefix(p.line(process, "token "), "token ")
	time.Sleep(4 * time.Second) // more than the TTL, and the margin of expiry, must pass
	if now := p.holder("kept"); fmt.Sprint(now) != token {
		p.t.Errorf("after the first TTL token %d holds the lock, want %s", now, token)
	}
	p.fencectl("break", "kept", "--token", token, "--reason", "test", "--yes")
	p.line(process, "the hold of kept with token "+token+" is over")
	if err := p.wait(process); err != nil {
		p.t.Error(err)
	}
}

// survives wants a program that writes and then keeps a lock, as keeps does, to take a
// fault of the store for an outcome that is not known, and half of a refusal for none. It
// asks anew where its first attempt has ended.
func (p *place) survives(args ...string) {
	p.t.Helper()
	const renewals = 3
	var mu sync.Mutex
	renewed, first := 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/renew") {
			renewed++
		}
		switch {
		case r.Method == http.MethodPut:
			refuse(w, http.StatusInternalServerError, `{"code":"internal","title":"No"}`, 0)
		case r.URL.Path == "/v1/holds" && (first == "" || first == r.Header.Get("Idempotency-Key")):
			first = r.Header.Get("Idempotency-Key") // of an attempt that ended unheard
			refuse(w, http.StatusGone, `{"code":"hold_gone","title":"Gone"}`, 0)
		case r.URL.Path == "/v1/holds":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"hold":"id","lock":"kept","token":7,"ttl_ms":3000,"expires_in_ms":3000}`)
		case renewed == 1:
			refuse(w, http.StatusGone, `{"code":"hold_`, 20)
		case renewed < renewals:
			fmt.Fprint(w, `{"expires_in_ms":3000}`)
		default:
			refuse(w, http.StatusGone, `{"code":"hold_gone","title":"Gone"}`, 0)
		}
	}))
	defer server.Close()
	p.prints([]string{"not known: ", "token 7", "the hold of kept with token 7 is over"}, append([]string{"FENCED_ADDR=" + server.URL}, args...)...)
	mu.Lock()
	defer mu.Unlock()
	if renewed < renewals {
		p.t.Errorf("%s: %d renewals, want %d", args[0], renewed, renewals)
	}
}

// refuse answers with a problem that breaks off before its last missing bytes.
func refuse(w http.ResponseWriter, status int, body string, missing int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+missing))
	w.WriteHeader(status)
	fmt.Fprint(w, body)
}

// givesUp wants a program to say so, after some tries, where no server answers.
func (p *place) givesUp(pay ...string) {
	p.t.Helper()
	p.env = append(p.env, "FENCED_ADDR=http://127.77.77.77:47420") // nobody listens there
	p.fails(p.start(pay...), "Unavailable")
}

// holder returns the token of the hold of a lock, 0 where it is free.
func (p *place) holder(lock string) int64 { return p.get(lock).Holder.Token }

type lockState struct {
	Holder  struct{ Token int64 }
	Waiters int
}

func (p *place) get(lock string) (found lockState) {
	p.t.Helper()
	out := p.fencectl("get", lock, "-o", "json")
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		p.t.Fatalf("%v in %s", err, out)
	}
	return found
}
