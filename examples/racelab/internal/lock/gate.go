package lock

import (
	"context"
	"net/http"
	"sync"

	"google.golang.org/grpc"
)

// A Gate stands between a worker's lock client and the network. The zero value is
// open.
type Gate struct {
	// mu is read-locked for a moment by whatever wants to leave, and locked for as
	// long as the worker stalls.
	mu sync.RWMutex
}

// Close stops all that wants to leave from now on. It blocks while the gate is
// closed already.
func (g *Gate) Close() { g.mu.Lock() }

// Open lets go what has waited. Every Close has one Open.
func (g *Gate) Open() { g.mu.Unlock() }

// pass blocks while the gate is closed, whatever contexts say: a stopped process
// notices no deadline.
func (g *Gate) pass() {
	g.mu.RLock()
	defer g.mu.RUnlock()
}

// gatedTransport is HTTP through a gate.
type gatedTransport struct {
	gate *Gate
	base *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t gatedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.gate.pass()
	return t.base.RoundTrip(r)
}

// gateStreams returns an interceptor that takes the messages of gRPC streams, where
// etcd's keep-alives travel, through g.
func gateStreams(g *Gate) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, err
		}
		return gatedStream{ClientStream: s, gate: g}, nil
	}
}

type gatedStream struct {
	grpc.ClientStream
	gate *Gate
}

// SendMsg implements grpc.ClientStream.
func (s gatedStream) SendMsg(m any) error {
	s.gate.pass()
	return s.ClientStream.SendMsg(m)
}
