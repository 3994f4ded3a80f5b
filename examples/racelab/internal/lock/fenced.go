package lock

import (
	"context"
	"net/http"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

// Fenced returns the way of fenced's lock through its Go SDK: a hold that renews
// itself. Whether its token is used is the caller's affair.
func Fenced(endpoint string, ttl time.Duration) Maker {
	return func(worker string, gate *Gate) (Locker, error) {
		base := &http.Transport{MaxIdleConnsPerHost: 100}
		client, err := clientsdk.New(clientsdk.Config{
			Endpoints: []string{endpoint}, Owner: worker, TTL: ttl,
			HTTPClient: &http.Client{Transport: gatedTransport{gate: gate, base: base}},
		})
		if err != nil {
			return nil, err
		}
		return &fencedLocker{client: client, base: base, ttl: ttl}, nil
	}
}

type fencedLocker struct {
	client *clientsdk.Client
	base   *http.Transport
	ttl    time.Duration
}

// Acquire implements Locker.
func (l *fencedLocker) Acquire(ctx context.Context, name string) (Hold, error) {
	hold, err := l.client.Acquire(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	return &fencedHold{hold: hold, ttl: l.ttl}, nil
}

// Close implements Locker.
func (l *fencedLocker) Close() error {
	err := l.client.Close()
	l.base.CloseIdleConnections()
	return err
}

type fencedHold struct {
	hold *clientsdk.Hold
	ttl  time.Duration
}

func (h *fencedHold) Token() tokens.Token               { return h.hold.Token() }
func (h *fencedHold) Ends(frozen time.Time) time.Time   { return frozen.Add(h.ttl + etcdLag) }
func (h *fencedHold) Release(ctx context.Context) error { return h.hold.Release(ctx) }
