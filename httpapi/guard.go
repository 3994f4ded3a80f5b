package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/fenced/fenced/internal/apierr"
)

// guard keeps pages of other sites away from the service: a page may make a
// browser send requests to a loopback address, and may point a name of its own at
// it. Neither passes.
type guard struct {
	hosts  map[string]bool
	origin *http.CrossOriginProtection
}

func newGuard(publicHosts []string) *guard {
	g := &guard{hosts: map[string]bool{"localhost": true}, origin: http.NewCrossOriginProtection()}
	for _, host := range publicHosts {
		g.hosts[strings.ToLower(host)] = true
	}
	g.origin.SetDenyHandler(http.HandlerFunc(denyForeign))
	return g
}

func denyForeign(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, r, apierr.New(apierr.Forbidden, "requests from pages of other sites are refused"))
}

// wrap puts the checks and the headers of every answer before next.
func (g *guard) wrap(next http.Handler) http.Handler {
	checked := g.origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header(), r.URL.Path)
		if !g.allows(r) {
			writeProblem(w, r, apierr.New(apierr.Misdirected, "the Host header names neither this server's address nor one of its public hosts"))
			return
		}
		if foreignCall(r) {
			denyForeign(w, r)
			return
		}
		checked.ServeHTTP(w, r)
	})
}

// foreignCall reports whether a browser says that a page of another site makes this call.
// [http.CrossOriginProtection] lets each GET pass, since the page cannot read the answer:
// but a snapshot that an image asks for would count as a backup.
func foreignCall(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/v1/") {
		return false // a link to a page of ours
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return true
}

// allows checks the Host header. An IP address is allowed where the connection
// came in on it: only a name can be pointed at a server by somebody else. A request
// without the header, as HTTP/1.0 health checks send it, is no browser's.
func (g *guard) allows(r *http.Request) bool {
	if r.Host == "" {
		return true
	}
	name := strings.ToLower(hostName(r.Host))
	if g.hosts[name] || g.hosts[strings.ToLower(r.Host)] {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && (ip.IsLoopback() || ip.Unmap() == localAddr(r))
}

// hostName is host without its port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

func localAddr(r *http.Request) netip.Addr {
	tcp, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// Header values that are the same in every answer, shared by all of them.
var (
	noStore    = []string{"no-store"}
	noSniff    = []string{"nosniff"}
	deny       = []string{"DENY"}
	noReferrer = []string{"no-referrer"}
	sameOrigin = []string{"same-origin"}
	nothing    = []string{"default-src 'none'; frame-ancestors 'none'"}
)

// setSecurityHeaders sets what every answer carries; pages set a policy of their
// own in place of the one that allows nothing.
func setSecurityHeaders(h http.Header, path string) {
	h["X-Content-Type-Options"] = noSniff
	h["X-Frame-Options"] = deny
	h["Referrer-Policy"] = noReferrer
	h["Cross-Origin-Resource-Policy"] = sameOrigin
	h["Content-Security-Policy"] = nothing
	if strings.HasPrefix(path, "/v1/") {
		h["Cache-Control"] = noStore
	}
}
