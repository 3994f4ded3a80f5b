package lockserver_test

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
)

// format1 is a store as servers of format 1 have left it.
//
//go:embed testdata/format-1.txt
var format1 string

const formatKey = lockserver.DefaultPrefix + "format"

// fill writes key and value of each line.
func fill(t *testing.T, client *clientv3.Client, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || key == "#" {
			continue
		}
		if _, err := client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFormat_TheStoreOfVersion1IsRead: its holds keep their order and tokens, fields
// that this build does not know do no harm, and the format that it lacks is written.
func TestFormat_TheStoreOfVersion1IsRead(t *testing.T) {
	t.Parallel()
	node := etcdtest.Node(t)
	fill(t, node.Client(), format1)
	s, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client()})
	st, err := s.Status(t.Context())
	if err != nil || st.BadKeys != 0 || st.Holds != 3 || st.Waiters != 1 || st.Sessions != 2 || st.Base != 1e12 || st.Cluster != "zkqw7w4ldz2f3r6yzdlm4jqd3e" {
		t.Fatalf("status %+v, %v", st, err)
	}
	lock, err := s.Lock(t.Context(), "orders/42")
	if err != nil || lock.Holder == nil || lock.Holder.Owner != "worker-1" || lock.Holder.Token != 1e12+5 || lock.Holder.Metadata["host"] != "a" {
		t.Fatalf("orders/42 is %+v, %v", lock, err)
	}
	if lock, err = s.Lock(t.Context(), "jobs/nightly"); err != nil || lock.Holder == nil || lock.Holder.Owner != "worker-3" {
		t.Fatalf("jobs/nightly is %+v, %v", lock, err)
	}
	resp, err := node.Client().Get(t.Context(), formatKey)
	if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "1" {
		t.Fatalf("the format is %v, %v", resp.Kvs, err)
	}
}

// TestFormat_AClosureOfVersion1Closes with a field that this build does not know.
func TestFormat_AClosureOfVersion1Closes(t *testing.T) {
	t.Parallel()
	node := etcdtest.Node(t)
	fill(t, node.Client(), lockserver.DefaultPrefix+`closed {"v":1,"h":77,"w":"the store was rolled back","field":1}`+"\n")
	s, _ := etcdtest.Run(t, lockserver.Config{Client: node.Client()})
	_, err := s.Acquire(t.Context(), try("a"))
	wantCode(t, err, apierr.TokenFloor)
	if !strings.Contains(err.Error(), "the store was rolled back") {
		t.Fatalf("got %v", err)
	}
}

// TestFormat_ANewerOneIsRefused, and nothing is written into its store: this build
// would not see what is held.
func TestFormat_ANewerOneIsRefused(t *testing.T) {
	t.Parallel()
	for _, found := range []string{"2", "2.1", "", "0"} {
		node := etcdtest.Node(t)
		put, err := node.Client().Put(t.Context(), formatKey, found)
		if err != nil {
			t.Fatal(err)
		}
		s, err := lockserver.New(lockserver.Config{Client: node.Client(), Cluster: "mine", Restored: "r"})
		if err != nil {
			t.Fatal(err)
		}
		wantFormatError(t, runUntilItEnds(t, s), found)
		resp, err := node.Client().Get(t.Context(), lockserver.DefaultPrefix, clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) != 1 || resp.Header.Revision != put.Header.Revision {
			t.Fatalf("the store was written to: %v, %v", resp, err)
		}
	}
}

// TestFormat_ANewerOneThatTakesOverEndsTheServer while it runs.
func TestFormat_ANewerOneThatTakesOverEndsTheServer(t *testing.T) {
	t.Parallel()
	node := etcdtest.Node(t)
	s, err := lockserver.New(lockserver.Config{Client: node.Client()})
	if err != nil {
		t.Fatal(err)
	}
	done := runUntilItEnds(t, s)
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, s, try("a"))
	if _, err := node.Client().Put(t.Context(), formatKey, "2"); err != nil {
		t.Fatal(err)
	}
	wantFormatError(t, done, "2")
	_, err = s.Acquire(t.Context(), try("b"))
	wantCode(t, err, apierr.ShuttingDown)
}

// TestClaim_AnotherDeploymentThatTakesOverEndsTheServer has the prefix wiped and claimed
// anew while a server runs on it: two deployments would end each other's holds.
func TestClaim_AnotherDeploymentThatTakesOverEndsTheServer(t *testing.T) {
	t.Parallel()
	node := etcdtest.Node(t)
	s, err := lockserver.New(lockserver.Config{Client: node.Client(), Cluster: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	done := runUntilItEnds(t, s)
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, s, try("a"))
	if _, err := node.Client().Put(t.Context(), lockserver.DefaultPrefix+"cluster", "theirs"); err != nil {
		t.Fatal(err)
	}
	err = <-done
	var foreign *lockserver.ForeignError
	if !errors.As(err, &foreign) || foreign.Found != "theirs" {
		t.Fatalf("the server ended with %v", err)
	}
	_, err = s.Acquire(t.Context(), try("b"))
	wantCode(t, err, apierr.ShuttingDown)
}

// runUntilItEnds runs a server that is expected to end by itself.
func runUntilItEnds(t *testing.T, s *lockserver.Server) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return done
}

func wantFormatError(t *testing.T, done <-chan error, found string) {
	t.Helper()
	err := <-done
	var format *lockserver.FormatError
	if !errors.As(err, &format) || format.Found != found || format.Prefix != lockserver.DefaultPrefix {
		t.Fatalf("the server ended with %v", err)
	}
	if text := err.Error(); !strings.Contains(text, "newer") || !strings.Contains(text, "up to 1") {
		t.Fatalf("the error says %q", text)
	}
}
