package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/httpapi/keys"
)

// Config says what to serve. The zero value of each field but Engine is usable.
type Config struct {
	// Engine does the work. Required.
	Engine Engine
	// Version and Mode stand in GET /v1/status. Mode is embedded, cluster or
	// external. Version defaults to "devel", Mode to embedded.
	Version, Mode string
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
	_         struct{}
}

// withDefaults returns c with its defaults filled in.
func (c Config) withDefaults() Config {
	if c.Version == "" {
		c.Version = "devel"
	}
	if c.Mode == "" {
		c.Mode = "embedded"
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
