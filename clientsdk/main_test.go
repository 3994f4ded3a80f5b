package clientsdk_test

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(holderEnv); url != "" {
		holderMain(url)
	}
	goleak.VerifyTestMain(m)
}

const ttl = 15 * time.Second

// bundle is a fake server and a client in a bubble of virtual time.
type bundle struct {
	*testing.T
	srv    *sdktest.Server
	client *clientsdk.Client
}

// bubble runs test in virtual time. Both the default, shared sessions, and a lease
// for each hold go through it.
func bubble(t *testing.T, test func(b *bundle, opts *clientsdk.AcquireOptions)) {
	t.Helper()
	for name, opts := range map[string]*clientsdk.AcquireOptions{
		"session":  nil,
		"per hold": {PerHold: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(setup(t), opts) })
		})
	}
}

func setup(t *testing.T) *bundle {
	srv := sdktest.New()
	client, err := clientsdk.New(srv.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		srv.Close()
	})
	return &bundle{t, srv, client}
}

func (b *bundle) acquire(lock string, opts *clientsdk.AcquireOptions) *clientsdk.Hold {
	b.Helper()
	h, err := b.client.Acquire(context.Background(), lock, opts)
	if err != nil {
		b.Fatalf("Acquire(%q): %v", lock, err)
	}
	return h
}

func (b *bundle) release(h *clientsdk.Hold) {
	b.Helper()
	if err := h.Release(context.Background()); err != nil {
		b.Fatalf("Release: %v", err)
	}
}

// free fails the test unless nothing of lock is left on the server.
func (b *bundle) free(lock string) {
	b.Helper()
	if n := b.srv.Live(lock); n != 0 {
		b.Errorf("%d holds of %q are left on the server, want none", n, lock)
	}
}
