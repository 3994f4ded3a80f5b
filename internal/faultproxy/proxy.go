package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is what happens to one exchange. The zero value is none; fields combine.
type Fault struct {
	// Delay passes before the request is forwarded.
	Delay time.Duration
	// DropRequest resets the connection instead of forwarding.
	DropRequest bool
	// Twice forwards the request two times, one after the other, and gives the
	// second answer.
	Twice bool
	// Status, where it is not 0, answers with Status and Body and forwards nothing.
	Status int
	Body   string
	// DelayAnswer passes between the server's answer and ours.
	DelayAnswer time.Duration
	// DropAnswer resets the connection when the server has answered.
	DropAnswer bool
	// HalfAnswer sends the head and half of the body, then closes.
	HalfAnswer bool
	// KeepOpen does not tell the server when the client leaves.
	KeepOpen bool
	// CutAfter resets the connection, and gives up the request, after that time.
	CutAfter time.Duration
	_        struct{}
}

// Proxy forwards to one server. Make it with [New].
type Proxy struct {
	target   *url.URL
	listener net.Listener
	server   *http.Server
	upstream *http.Transport
	decide   atomic.Pointer[func(*http.Request) Fault]
	gate     *gate
	served   sync.WaitGroup
}

// New returns a proxy on a free port of 127.0.0.1 that forwards to target, a URL of
// scheme, host and port.
func New(target string) (*Proxy, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: u, upstream: &http.Transport{DisableCompression: true}, gate: newGate()}
	p.listener = &gatedListener{Listener: l, gate: p.gate}
	p.Decide(func(*http.Request) Fault { return Fault{} })
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve)}
	p.served.Go(func() { p.server.Serve(p.listener) })
	return p, nil
}

// URL returns what clients call instead of the server.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Decide sets what happens to each later request. f may be called by many goroutines
// at once.
func (p *Proxy) Decide(f func(*http.Request) Fault) { p.decide.Store(&f) }

// Partition stops all bytes from and to clients, without a reset, until it is called
// with false.
func (p *Proxy) Partition(on bool) { p.gate.set(on) }

// CutAll resets all open connections of clients.
func (p *Proxy) CutAll() { p.gate.cutAll() }

// Close resets all connections and frees the port.
func (p *Proxy) Close() error {
	p.gate.set(false)
	err := p.server.Close()
	p.gate.cutAll()
	p.served.Wait()
	p.upstream.CloseIdleConnections()
	return err
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.served.Add(1)
	defer p.served.Done()
	f := (*p.decide.Load())(r)
	ctx := r.Context()
	if f.KeepOpen {
		ctx = context.WithoutCancel(ctx)
	}
	if f.CutAfter > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.CutAfter)
		defer cancel()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || !pause(ctx, f.Delay) || f.DropRequest {
		reset(w)
		return
	}
	if f.Status != 0 {
		w.WriteHeader(f.Status)
		io.WriteString(w, f.Body)
		return
	}
	if f.Twice {
		if resp, err := p.forward(ctx, r, body); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	resp, err := p.forward(ctx, r, body)
	if err != nil {
		reset(w)
		return
	}
	defer resp.Body.Close()
	p.answer(ctx, w, resp, f)
}

func (p *Proxy) forward(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	out := r.Clone(ctx)
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.Host = p.target.Host
	out.Body, out.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 { // an empty body that is not NoBody would be sent as one of unknown length
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	return p.upstream.RoundTrip(out)
}

// answer passes the answer on as it comes, so that event streams flow; with a fault
// of the answer it is read to its end first.
func (p *Proxy) answer(ctx context.Context, w http.ResponseWriter, resp *http.Response, f Fault) {
	if f.DropAnswer || f.HalfAnswer || f.DelayAnswer > 0 {
		body, err := io.ReadAll(resp.Body)
		if err != nil || !pause(ctx, f.DelayAnswer) || f.DropAnswer {
			reset(w)
			return
		}
		if f.HalfAnswer {
			half(w, resp, body)
			return
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	for k, vs := range resp.Header {
		w.Header()[k] = vs
	}
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(flusher{w}, resp.Body); err != nil {
		reset(w)
	}
}

// half promises the whole body and sends half of it.
func half(w http.ResponseWriter, resp *http.Response, body []byte) {
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	flusher{w}.Write(body[:len(body)/2])
	reset(w)
}

// flusher sends every write at once.
type flusher struct{ http.ResponseWriter }

func (f flusher) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	http.NewResponseController(f.ResponseWriter).Flush()
	return n, err
}

// reset breaks the connection off without an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // an answer has begun
	}
	if g, ok := conn.(*gatedConn); ok {
		g.reset()
		return
	}
	conn.Close()
}

// pause returns false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// gate stops the bytes of all connections while it is shut.
type gate struct {
	mu    sync.Mutex
	open  chan struct{} // closed while bytes may pass
	conns map[*gatedConn]struct{}
}

func newGate() *gate {
	g := &gate{open: make(chan struct{}), conns: make(map[*gatedConn]struct{})}
	close(g.open)
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if shut {
			g.open = make(chan struct{})
		}
	default:
		if !shut {
			close(g.open)
		}
	}
}

func (g *gate) cutAll() {
	g.mu.Lock()
	conns := make([]*gatedConn, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	g.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
}

// wait returns when bytes may pass, or an error when done is closed first.
func (g *gate) wait(done <-chan struct{}) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-done:
		return net.ErrClosed
	}
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l *gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.New("faultproxy: not a TCP connection")
	}
	g := &gatedConn{TCPConn: tcp, gate: l.gate, done: make(chan struct{})}
	l.gate.mu.Lock()
	l.gate.conns[g] = struct{}{}
	l.gate.mu.Unlock()
	return g, nil
}

// gatedConn is a client's connection. What arrives while the gate is shut is read
// from the socket and kept back.
type gatedConn struct {
	*net.TCPConn
	gate *gate
	once sync.Once
	done chan struct{}
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if gateErr := c.gate.wait(c.done); gateErr != nil {
		return 0, gateErr
	}
	return n, err
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if err := c.gate.wait(c.done); err != nil {
		return 0, err
	}
	return c.TCPConn.Write(b)
}

// ReadFrom hides that of the TCP connection, which would go around Write.
func (c *gatedConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

func (c *gatedConn) reset() {
	c.SetLinger(0)
	c.Close()
}

func (c *gatedConn) Close() error {
	c.once.Do(func() {
		close(c.done)
		c.gate.mu.Lock()
		delete(c.gate.conns, c)
		c.gate.mu.Unlock()
	})
	return c.TCPConn.Close()
}
