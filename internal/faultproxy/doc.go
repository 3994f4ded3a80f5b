// Package faultproxy is a loopback HTTP proxy that fails on command. Tests put it
// between a client and a real server, so that neither needs to be faked:
//
//	p, err := faultproxy.New(serverURL)
//	defer p.Close()
//	p.Decide(func(r *http.Request) faultproxy.Fault {
//		return faultproxy.Fault{DropAnswer: r.Method == http.MethodPost}
//	})
//	p.Partition(true) // swallow everything, reset nothing
//
// Faults of single exchanges are set with [Proxy.Decide]: an answer dropped after the
// effect, a delay, a request delivered twice, a cut. [Proxy.Partition] stops all bytes
// of open and new connections without a reset, as a cable pulled out does, and
// delivers them later when it ends. [Proxy.CutAll] resets every connection.
//
// All methods may be called from any number of goroutines. Close waits for the
// proxy's goroutines.
package faultproxy
