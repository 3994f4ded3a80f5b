package clientsdk

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// DefaultEndpoint is where a server listens unless it was told otherwise.
const DefaultEndpoint = "http://127.0.0.1:7420"

// Bounds of a TTL. A server may allow less than MaxTTL.
const (
	DefaultTTL = 15 * time.Second
	MinTTL     = time.Second
	MaxTTL     = time.Hour
)

const (
	maxOwner       = 128 // bytes
	defaultRetries = 15 * time.Second
)

// Config says how a [Client] reaches the servers and what its holds are like. The
// zero value talks to [DefaultEndpoint].
type Config struct {
	// Endpoints are the base URLs of the servers of one cluster, with scheme http
	// or https and no path. The client stays with one that answers and goes to the
	// next when it does not. Defaults to DefaultEndpoint.
	Endpoints []string
	// APIKey is sent as a bearer token: printable ASCII without spaces. Defaults to
	// none.
	APIKey string
	// HTTPClient sends the requests; give it a tracing transport to trace them.
	// Renewals get a copy of its transport with connections of their own where it
	// is an *http.Transport, and share any other. Defaults to a client that speaks
	// HTTP/1.1, keeps up to 100 idle connections and honours proxy variables.
	HTTPClient *http.Client
	// TLS is for https endpoints. Refused beside HTTPClient, which has its own.
	TLS *tls.Config
	// Owner names this worker for people, at most 128 bytes. Defaults to
	// "host:pid program".
	Owner string
	// TTL is how long a hold lasts without renewal, [MinTTL] to [MaxTTL] in whole
	// milliseconds. It is the time that others wait after this process dies.
	// Defaults to [DefaultTTL].
	TTL time.Duration
	// RetryFor is how long a call goes on after its first failure while no server gives
	// a usable answer, before it returns [ErrUnavailable]. One answer is waited for 5 s,
	// beside the wait asked for. The caller's context may end the call sooner, and so
	// may AcquireOptions.Wait.
	// Defaults to 15 s, after which a place in a queue may be gone.
	RetryFor time.Duration
	// Logger is told of lost holds and failed releases. Defaults to none.
	Logger *slog.Logger
	_      struct{}
}

// withDefaults returns a copy of cfg with its zero fields filled in.
func (cfg Config) withDefaults() Config {
	if len(cfg.Endpoints) == 0 {
		cfg.Endpoints = []string{DefaultEndpoint}
	}
	if cfg.Owner == "" {
		cfg.Owner = defaultOwner()
	}
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.RetryFor == 0 {
		cfg.RetryFor = defaultRetries
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// validate names the field and the limit of the first bad value.
func (cfg Config) validate() error {
	for _, e := range cfg.Endpoints {
		if err := validEndpoint(e); err != nil {
			return err
		}
	}
	if strings.ContainsFunc(cfg.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("config: APIKey must be printable ASCII without spaces and line breaks") // not shown: it is a secret
	}
	if cfg.TLS != nil && cfg.HTTPClient != nil {
		return fmt.Errorf("config: TLS must be set in HTTPClient's own transport where HTTPClient is given")
	}
	if len(cfg.Owner) > maxOwner {
		return fmt.Errorf("config: Owner must be at most %d bytes, not %d", maxOwner, len(cfg.Owner))
	}
	if cfg.RetryFor < 0 {
		return fmt.Errorf("config: RetryFor must not be negative, as %s is", cfg.RetryFor)
	}
	if !utf8.ValidString(cfg.Owner) {
		return fmt.Errorf("config: Owner must be valid UTF-8")
	}
	if !validTTL(cfg.TTL) {
		return fmt.Errorf("config: TTL must be %s, not %s", ttlLimit, cfg.TTL)
	}
	return nil
}

func validEndpoint(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("config: Endpoints must be URLs like %q, and one cannot be read", DefaultEndpoint) // not shown: it may hold a password
	}
	if u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("config: Endpoints must be URLs like %q, not %q", DefaultEndpoint, u.Redacted())
	}
	if strings.Trim(u.Path, "/") != "" || strings.ContainsAny(s, "?#") || u.User != nil {
		return fmt.Errorf("config: Endpoints must be scheme, host and port only, not %q", u.Redacted())
	}
	return nil
}

var ttlLimit = fmt.Sprintf("%s to %s in whole milliseconds", MinTTL, MaxTTL)

func validTTL(ttl time.Duration) bool {
	return ttl >= MinTTL && ttl <= MaxTTL && ttl%time.Millisecond == 0
}

// defaultOwner is "host:pid program", cut to what a server takes.
func defaultOwner() string {
	owner := hostname() + ":" + strconv.Itoa(os.Getpid()) + " " + program()
	for len(owner) > maxOwner {
		_, size := utf8.DecodeLastRuneInString(owner)
		owner = owner[:len(owner)-size]
	}
	return owner
}

// processMetadata tells people which process holds a lock.
func processMetadata() map[string]string {
	m := map[string]string{
		"host":    hostname(),
		"pid":     strconv.Itoa(os.Getpid()),
		"program": program(),
	}
	if b := build(); b != "" {
		m["build"] = b
	}
	return m
}

func hostname() string {
	if h, err := os.Hostname(); err == nil {
		return h
	}
	return "unknown"
}

func program() string { return filepath.Base(os.Args[0]) }

// build is the main module's version or, for a development build, its commit.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
