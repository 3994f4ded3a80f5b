package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/fenced/fenced/httpapi"
)

// validateAdmin refuses addresses that others can reach: profiles have no keys, and
// show what is in memory.
func (c *Config) validateAdmin() error {
	if c.AdminListen != "" && !loopback(c.AdminListen) {
		return fmt.Errorf("--admin-listen %s can be reached by others: give an address of this machine alone, such as 127.0.0.1:7421", c.AdminListen)
	}
	return nil
}

// listenAdmin returns nil where no address is set.
func (c *Config) listenAdmin(ctx context.Context) (net.Listener, error) {
	if c.AdminListen == "" {
		return nil, nil
	}
	listener, err := httpapi.Listen(ctx, c.AdminListen)
	if err != nil {
		return nil, fmt.Errorf("--admin-listen: %w", err)
	}
	return listener, nil
}

// serveAdmin serves Go's profiles until stop is called, and nothing where listener
// is nil. A profile that is under way is cut.
func serveAdmin(listener net.Listener) (stop func()) {
	if listener == nil {
		return func() {}
	}
	server := &http.Server{Handler: onlyLocal(profiles()), ReadHeaderTimeout: stopTimeout}
	done := make(chan struct{})
	go func() {
		_ = server.Serve(listener)
		close(done)
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// onlyLocal refuses requests by another name: a page of another site could point its
// own name at this address.
func onlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil || !loopback(net.JoinHostPort(host, "0")) {
			http.Error(w, "call this address by its own name", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
