package httpapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// fakeUpkeep is that part of the fake engine.
type fakeUpkeep struct {
	snapshot func(io.Writer) error
}

func (f fakeUpkeep) Snapshot(_ context.Context, w io.Writer) error {
	if f.snapshot == nil {
		return nil
	}
	return f.snapshot(w)
}

func (fakeUpkeep) Members(context.Context) ([]lockserver.Member, error) { return nil, nil }

func (fakeUpkeep) AddMember(context.Context, string) (lockserver.Member, error) {
	return lockserver.Member{}, nil
}

func (fakeUpkeep) RemoveMember(context.Context, string) error { return nil }

func (fakeUpkeep) Compact(context.Context) (int64, error) { return 1, nil }

// The store as a whole is for a key with the role admin over every lock.
func TestUpkeep_access(t *testing.T) {
	t.Parallel()
	ring := newKeyring(t)
	callers := []string{
		ring.add("lock", keys.Lock, "", apikey.Quota{}), ring.add("admin", keys.Admin, "orders/", apikey.Quota{}), ring.add("root", keys.Admin, "", apikey.Quota{}),
	}
	handler, err := httpapi.New(httpapi.Config{Engine: agreeable(), Keys: ring.open(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, target, body string
		want                 int
	}{
		{"GET", "/v1/snapshot", "", 200},
		{"GET", "/v1/members", "", 200},
		{"POST", "/v1/members", `{"peer_url":"https://a:1"}`, 201},
		{"DELETE", "/v1/members?id=0000000000000001", "", 204},
		{"POST", "/v1/compact", "", 200},
	} {
		for i, want := range []int{403, 403, tt.want} {
			r := badInput{method: tt.method, target: tt.target, body: tt.body}.request()
			r.Header.Set("Authorization", "Bearer "+callers[i])
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s %s, caller %d: status %d, want %d", tt.method, tt.target, i, w.Code, want)
			}
		}
	}
}

func TestUpkeep(t *testing.T) {
	t.Parallel()
	engine, _ := etcdtest.Run(t, lockserver.Config{Client: etcdtest.Node(t).Client(), Alone: true, Managed: true})
	srv := serve(t, engine)
	c := &client{srv, srv.Client()}
	t.Cleanup(c.http.CloseIdleConnections)

	list := decode[wire.MemberList](t, c.send(t, "GET", "/v1/members", ""), http.StatusOK)
	if len(list.Members) != 1 || !list.Members[0].Leader || !list.Members[0].Voter {
		t.Fatalf("members %+v", list)
	}
	body, err := io.ReadAll(c.send(t, "GET", "/v1/snapshot", "").Body)
	if err != nil || len(body) <= sha256.Size {
		t.Fatalf("snapshot of %d bytes, %v", len(body), err)
	}
	content, sum := body[:len(body)-sha256.Size], body[len(body)-sha256.Size:]
	if got := sha256.Sum256(content); !bytes.Equal(got[:], sum) {
		t.Error("the snapshot does not end in its SHA-256")
	}
	if got := decode[wire.Compacted](t, c.send(t, "POST", "/v1/compact", ""), http.StatusOK); got.Revision < 1 {
		t.Errorf("compacted %+v", got)
	}
	if p := checkProblem(t, c.send(t, "POST", "/v1/members", `{"peer_url":"a:1"}`), apierr.Malformed); p.Field != "peer_url" {
		t.Errorf("field %q", p.Field)
	}
	for _, target := range []string{"/v1/members", "/v1/members?id=x", "/v1/members?id=0000000000000001"} {
		checkProblem(t, c.send(t, "DELETE", target, ""), apierr.OutOfBounds)
	}
	added := decode[wire.Member](t, c.send(t, "POST", "/v1/members", `{"peer_url":"http://127.0.0.1:2"}`), http.StatusCreated)
	if added.Voter || len(added.ID) != 16 {
		t.Errorf("added %+v", added)
	}
	if resp := c.send(t, "DELETE", "/v1/members?id="+added.ID, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("remove: status %d", resp.StatusCode)
	}
}

// A store that somebody else runs is left alone.
func TestUpkeep_is_refused_on_an_external_store(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	for _, target := range []string{"/v1/members", "/v1/snapshot"} {
		checkProblem(t, c.send(t, "GET", target, ""), apierr.Forbidden)
	}
}

// A snapshot that fails half-way must not end like a whole one, and leaves its line in
// the audit log: most of the store may be out.
func TestSnapshot_cuts_the_connection_when_it_fails(t *testing.T) {
	t.Parallel()
	engine := agreeable()
	engine.snapshot = func(w io.Writer) error {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
		return errors.New("the store went away")
	}
	var audit lines
	c := newClientWith(t, httpapi.Config{Engine: engine, Logger: quiet(), Audit: slog.New(slog.NewJSONHandler(&audit, nil))})
	resp, err := c.http.Get(c.URL + "/v1/snapshot")
	if err == nil {
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil {
		t.Error("the client saw a whole answer")
	}
	audit.await(t, `"what":"getSnapshot"`)
	if !strings.Contains(audit.String(), `"result":"internal"`) {
		t.Errorf("audit %s", audit.String())
	}
}

// What a call has done before its handler panicked is done.
func TestAudit_tells_of_a_panic(t *testing.T) {
	t.Parallel()
	engine := agreeable()
	engine.breakHold = func(context.Context, lockserver.BreakRequest) (*lockserver.Ended, error) { panic("after the break") }
	var audit lines
	c := newClientWith(t, httpapi.Config{Engine: engine, Logger: quiet(), Audit: slog.New(slog.NewJSONHandler(&audit, nil))})
	checkProblem(t, c.send(t, "POST", "/v1/break", `{"lock":"a","token":7,"reason":"stuck"}`), apierr.Internal)
	if n := strings.Count(audit.String(), `"what":"breakHold"`); n != 1 || !strings.Contains(audit.String(), `"lock":"a"`) {
		t.Errorf("%d lines: %s", n, audit.String())
	}
}

// A client that leaves in the middle of a snapshot is no fault of the server.
func TestSnapshot_knows_a_client_that_left(t *testing.T) {
	t.Parallel()
	engine := agreeable()
	done := make(chan error, 1)
	engine.snapshot = func(w io.Writer) error {
		part := bytes.Repeat([]byte("x"), 1<<20)
		for {
			if _, err := w.Write(part); err != nil {
				done <- err
				return err
			}
		}
	}
	var log, audit lines
	c := newClientWith(t, httpapi.Config{
		Engine: engine, Logger: slog.New(slog.NewTextHandler(&log, nil)), Audit: slog.New(slog.NewJSONHandler(&audit, nil)),
	})
	resp := c.send(t, "GET", "/v1/snapshot", "")
	_ = resp.Body.Close()
	<-done
	audit.await(t, `"result":"client_gone"`)
	if log.String() != "" {
		t.Errorf("log %q", log.String())
	}
}
