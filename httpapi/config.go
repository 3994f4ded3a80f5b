package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fenced/fenced/httpapi/keys"
)

// Config says what to serve. The zero value of each field but Engine is usable.
type Config struct {
	// Engine does the work. Required.
	Engine Engine
	// Version and Mode stand in GET /v1/status. Mode is embedded, cluster or
	// external. Version defaults to "devel", Mode to embedded.
	Version, Mode string
	// Build says in GET /v1/status what the server was built from. "" says nothing.
	Build string
	// Store tells for GET /v1/status how the store stands. It must return within
	// about a second. Nil means that nothing is known.
	Store func(context.Context) StoreState
	// BackedUp is told each time that a whole snapshot was sent. Nil means that
	// nobody remembers.
	BackedUp func(time.Time)
	// PublicHosts are the names by which clients may call this server beside
	// loopback names and the address that the connection came in on: host names
	// or IP addresses, with or without a port. One without a port allows every
	// port.
	PublicHosts []string
	// Keys are the API keys; nil lets everybody who can connect do everything.
	Keys *keys.Store
	// Audit gets one line for each call that changes something or is refused to:
	// who, what, lock, token, result. Its handler must escape values, as those of
	// log/slog do. Nil means none.
	Audit *slog.Logger
	// Registry gets the metrics of the service, and is what GET /metrics shows; it
	// may hold others too. Defaults to a new one.
	Registry *prometheus.Registry
	// Logger gets faults of the server, once each. Defaults to [slog.Default].
	Logger *slog.Logger
	// AccessLog gets one line a request. Nil means none.
	AccessLog *slog.Logger
	// Tracer makes a span of each call of /v1 but event streams, below the W3C trace
	// context of the request. Nil makes none.
	Tracer trace.Tracer
	_      struct{}
}

// StoreState is how the store stands. A zero field is not known.
type StoreState struct {
	EtcdVersion string
	// Leader is the name of the member that leads, or its id; Leads says that it is
	// this server's own.
	Leader string
	Leads  bool
	// Members counts those without a vote, too.
	Members int
	// Bytes is the size of the store's file, which counts against Quota; Used is the
	// part in use.
	Bytes, Used, Quota int64
	// DiskFree is the room left beside the file, in bytes; nil where not known.
	DiskFree *int64
	// Faults is what the store complains of, in its own words.
	Faults []string
	// LastBackup is when this server last sent a whole snapshot.
	LastBackup time.Time
}

// withDefaults returns c with its defaults filled in.
func (c Config) withDefaults() Config {
	if c.Version == "" {
		c.Version = "devel"
	}
	if c.Mode == "" {
		c.Mode = "embedded"
	}
	if c.Store == nil {
		c.Store = func(context.Context) StoreState { return StoreState{} }
	}
	if c.BackedUp == nil {
		c.BackedUp = func(time.Time) {}
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// validate names the field that is wrong.
func (c Config) validate() error {
	if c.Engine == nil {
		return errors.New("httpapi config: Engine is nil")
	}
	switch c.Mode {
	case "embedded", "cluster", "external":
	default:
		return fmt.Errorf("httpapi config: Mode %q: not embedded, cluster or external", c.Mode)
	}
	for _, host := range c.PublicHosts {
		if !validHost(host) {
			return fmt.Errorf("httpapi config: PublicHosts %q: not a host name or IP address with an optional port", host)
		}
	}
	return nil
}

// validHost accepts what may stand in a Host header: no scheme, no path, no
// wildcard.
func validHost(host string) bool {
	return hostName(host) != "" && !strings.ContainsAny(host, " \t/\\@*?#%\"")
}
