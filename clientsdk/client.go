package clientsdk

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"
)

// releaseTimeout bounds what a release does over the network, whatever the
// caller's context says. A hold that could not be released ends with its lease.
const releaseTimeout = 5 * time.Second

// Client acquires locks. Its methods may be called from any number of goroutines.
type Client struct {
	cfg Config
	t   *transport
	log *slog.Logger

	// life ends with Close; calls in flight end with it.
	life context.Context
	kill context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	slots  map[time.Duration]*sessionSlot // by TTL
	leases map[*lease]struct{}            // not over yet
	work   sync.WaitGroup                 // every goroutine and call of this client
}

// New returns a client for the servers of cfg. It makes no contact with them; the
// error names the field of cfg that is out of bounds.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	life, kill := context.WithCancelCause(context.Background())
	return &Client{
		cfg:    cfg,
		t:      newTransport(cfg),
		log:    cfg.Logger,
		life:   life,
		kill:   kill,
		slots:  make(map[time.Duration]*sessionSlot),
		leases: make(map[*lease]struct{}),
	}, nil
}

// Close ends the sessions of this client, and with them every hold that was not
// taken with PerHold; those are left to their leases, so that whoever has the id
// can go on. The contexts of all holds end with cause [ErrClosed], and calls in
// flight return it. Close returns when all of the client's goroutines are gone, at
// most 5 s after the calls in flight have returned. Later calls do nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()

	c.kill(ErrClosed)
	for _, l := range c.openLeases() {
		l.finish(func(*Hold) error { return ErrClosed })
		if l.end != nil {
			c.spawn(l.end)
		}
	}
	c.work.Wait()
	c.t.close()
	return nil
}

func (c *Client) openLeases() []*lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*lease, 0, len(c.leases))
	for l := range c.leases {
		all = append(all, l)
	}
	return all
}

// begin starts a call: its context ends with the caller's or with Close. Every
// begin has an end.
func (c *Client) begin(ctx context.Context) (context.Context, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	c.work.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		c.work.Done()
	}, nil
}

// spawn runs fn in a goroutine that Close waits for. It is called only while a
// call or goroutine of the client runs, or by Close.
func (c *Client) spawn(fn func()) {
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		fn()
	}()
}

// newKey names one attempt. It is never derived from the work: two deliveries of
// one job must not share a hold.
func newKey() string {
	var b [16]byte
	rand.Read(b[:]) // never fails; see crypto/rand
	return hex.EncodeToString(b[:])
}
