//go:build linux

package partition_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/clientsdk"
)

// The test binary is also the programs that run on the machines.
const (
	roleEnv      = "FENCED_PARTITION_ROLE"
	endpointsEnv = "FENCED_PARTITION_ENDPOINTS"
	lockEnv      = "FENCED_PARTITION_LOCK"
)

// ttl of all holds: short, so that one can be seen to end.
const ttl = 3 * time.Second

func TestMain(m *testing.M) {
	role := map[string]func(*clientsdk.Client, string) error{"hold": hold, "try": try}[os.Getenv(roleEnv)]
	if role == nil {
		goleak.VerifyTestMain(m) // it exits
	}
	c, err := clientsdk.New(clientsdk.Config{Endpoints: strings.Split(os.Getenv(endpointsEnv), ","), TTL: ttl})
	if err == nil {
		err = role(c, os.Getenv(lockEnv))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// act starts one of the roles on the machine, with the servers that it may ask.
func (m *machine) act(role, endpoints, lock string) *process {
	m.net.t.Helper()
	return m.start([]string{roleEnv + "=" + role, endpointsEnv + "=" + endpoints, lockEnv + "=" + lock}, os.Args[0])
}

// hold waits for the lock, holds it, and tells when it is told that it is lost.
func hold(c *clientsdk.Client, lock string) error {
	for {
		began := time.Now()
		h, err := c.Acquire(context.Background(), lock, nil)
		if err != nil {
			tell(event{What: "refused", Lock: lock, Began: began, Text: err.Error()})
			continue
		}
		tell(event{What: "held", Lock: lock, Began: began, Token: int64(h.Token())})
		<-h.Context().Done()
		at := time.Now()
		cause := context.Cause(h.Context())
		tell(event{What: "lost", Lock: lock, At: at, Token: int64(h.Token()), Text: fmt.Sprint(errors.Is(cause, clientsdk.ErrLost))})
		return nil
	}
}

// tries is how many calls of a prober are under way: one of a minority takes long.
const tries = 4

// try asks for one free lock after another.
func try(c *clientsdk.Client, lock string) error {
	var all sync.WaitGroup
	for i := range tries {
		all.Go(func() {
			for n := 0; ; n++ {
				tryOnce(c, fmt.Sprintf("%s/%d/%d", lock, i, n))
				time.Sleep(10 * time.Millisecond) // the pace of a caller
			}
		})
	}
	all.Wait()
	return nil
}

func tryOnce(c *clientsdk.Client, lock string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	began := time.Now()
	h, err := c.TryAcquire(ctx, lock, nil)
	if err != nil {
		tell(event{What: "refused", Lock: lock, Began: began, Text: err.Error()})
		return
	}
	tell(event{What: "held", Lock: lock, Began: began, Token: int64(h.Token())})
	_ = h.Release(ctx)
}

var telling sync.Mutex

func tell(e event) {
	telling.Lock()
	defer telling.Unlock()
	if e.At.IsZero() {
		e.At = time.Now()
	}
	_ = json.NewEncoder(os.Stdout).Encode(e)
}
