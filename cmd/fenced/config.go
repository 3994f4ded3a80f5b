package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/lockserver/embedded"
)

const (
	defaultListen  = "127.0.0.1:7420"
	defaultDataDir = "fenced-data"
)

// Config is what fenced can be told. The table in settings gives each field its
// flag, its environment variable and its key in the config file.
type Config struct {
	Listen      string
	PublicHosts []string
	MaxTTL      time.Duration
	LogLevel    string
	LogFormat   string

	// Who may call: API keys, client certificates, or everybody who can connect.
	Keys           string
	TLSCert        string
	TLSKey         string
	TLSClientCA    string
	InsecureNoAuth bool
	AuditLog       string
	AccessLog      bool

	// What operators see beside /metrics and logs; "" turns each off.
	OTLPEndpoint string
	AdminListen  string

	Name       string
	DataDir    string
	IssuedFile string // "" means DataDir + ".issued"

	// The members of an embedded cluster; InitialCluster turns the mode on.
	InitialCluster string
	ListenPeer     string
	Join           bool
	PeerCert       string
	PeerKey        string
	PeerCA         string
	InsecurePeers  bool

	// An external etcd; EtcdEndpoints turns the mode on.
	EtcdEndpoints    []string
	EtcdCert         string
	EtcdKey          string
	EtcdCA           string
	EtcdUser         string
	EtcdPassword     string
	EtcdPasswordFile string
	Prefix           string
	ClusterID        string
	AllowOldEtcd     bool
}

func defaultConfig() *Config {
	return &Config{
		Listen: defaultListen, DataDir: defaultDataDir, Name: "fenced", MaxTTL: lockserver.MaxTTL,
		LogLevel: "info", LogFormat: "text", Prefix: lockserver.DefaultPrefix,
	}
}

// settings is the one table of what can be set. Flags, environment, config file,
// help, the sample file and the output of fenced config all come from it.
func (c *Config) settings() *pflag.FlagSet {
	f := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&c.Listen, "listen", c.Listen, "address of the HTTP service")
	f.StringSliceVar(&c.PublicHosts, "public-host", c.PublicHosts, "host name by which clients call the server (repeatable)")
	f.DurationVar(&c.MaxTTL, "max-ttl", c.MaxTTL, "longest TTL that a caller may ask for, 1s to 1h")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text or json")
	f.StringVar(&c.Keys, "keys", c.Keys, "file of API keys, made by fencectl key new; changes take effect while the server runs")
	f.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "certificate file of the HTTP service; may be replaced while the server runs")
	f.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "key file of the certificate")
	f.StringVar(&c.TLSClientCA, "tls-client-ca", c.TLSClientCA, "CA file that the certificates of clients must come from (mTLS)")
	f.BoolVar(&c.InsecureNoAuth, "insecure-no-auth", c.InsecureNoAuth, "allow everybody who can reach a non-loopback --listen to do everything")
	f.StringVar(&c.AuditLog, "audit-log", c.AuditLog, "file to append one JSON line to for each call that changes something")
	f.BoolVar(&c.AccessLog, "access-log", c.AccessLog, "log one line a request")
	f.StringVar(&c.OTLPEndpoint, "otlp-endpoint", c.OTLPEndpoint, "URL of a collector that gets OpenTelemetry traces by OTLP over gRPC, such as http://127.0.0.1:4317")
	f.StringVar(&c.AdminListen, "admin-listen", c.AdminListen, "loopback address that serves Go's profiles at /debug/pprof/, such as 127.0.0.1:7421")

	f.StringVar(&c.Name, "name", c.Name, "name of this server in lists and logs, and of this member in --initial-cluster")
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory of the embedded etcd; the server's own files lie beside it")
	f.StringVar(&c.IssuedFile, "issued-file", c.IssuedFile, "file of the highest issued token (default: the data directory + .issued)")

	f.StringVar(&c.InitialCluster, "initial-cluster", c.InitialCluster, "embedded cluster: all 3 or 5 members as name=url,... with the URLs for peers")
	f.StringVar(&c.ListenPeer, "listen-peer", c.ListenPeer, "embedded cluster: URL to await peers at (default: this member's in --initial-cluster)")
	f.BoolVar(&c.Join, "join", c.Join, "embedded cluster: join a running cluster, to which this member was added before")
	f.StringVar(&c.PeerCert, "peer-cert", c.PeerCert, "embedded cluster: certificate file of this member, for both directions")
	f.StringVar(&c.PeerKey, "peer-key", c.PeerKey, "embedded cluster: key file of the certificate")
	f.StringVar(&c.PeerCA, "peer-ca", c.PeerCA, "embedded cluster: CA file that the certificates of peers must come from")
	f.BoolVar(&c.InsecurePeers, "insecure-peers", c.InsecurePeers, "embedded cluster: allow peers without TLS on addresses that others can reach")

	f.StringSliceVar(&c.EtcdEndpoints, "etcd-endpoints", c.EtcdEndpoints, "external etcd: its client URLs, instead of an embedded one")
	f.StringVar(&c.EtcdCert, "etcd-cert", c.EtcdCert, "external etcd: client certificate file")
	f.StringVar(&c.EtcdKey, "etcd-key", c.EtcdKey, "external etcd: key file of the certificate")
	f.StringVar(&c.EtcdCA, "etcd-ca", c.EtcdCA, "external etcd: CA file of its certificate")
	f.StringVar(&c.EtcdUser, "etcd-user", c.EtcdUser, "external etcd: user; it needs a role with readwrite on the prefix and nothing else")
	f.StringVar(&c.EtcdPassword, "etcd-password", c.EtcdPassword, "external etcd: password; rather use --etcd-password-file")
	f.StringVar(&c.EtcdPasswordFile, "etcd-password-file", c.EtcdPasswordFile, "external etcd: file that holds the password")
	f.StringVar(&c.Prefix, "prefix", c.Prefix, "external etcd: where the keys of this deployment lie; ends in a slash")
	f.StringVar(&c.ClusterID, "cluster-id", c.ClusterID, "external etcd: id of this deployment, the same on all its servers (default: made by the first)")
	f.BoolVar(&c.AllowOldEtcd, "allow-old-etcd", c.AllowOldEtcd, "external etcd: accept versions with known faults in watches and reads")
	return f
}

// secrets are the settings that fenced config masks.
var secrets = map[string]bool{"etcd-password": true}

// The three modes, as GET /v1/status tells them.
const (
	modeEmbedded = "embedded"
	modeCluster  = "cluster"
	modeExternal = "external"
)

func (c *Config) mode() string {
	switch {
	case len(c.EtcdEndpoints) > 0:
		return modeExternal
	case c.InitialCluster != "":
		return modeCluster
	}
	return modeEmbedded
}

// where tells people where the data is.
func (c *Config) where() string {
	switch c.mode() {
	case modeExternal:
		return fmt.Sprintf("data is in etcd at %s, under %s", strings.Join(c.EtcdEndpoints, ", "), c.Prefix)
	case modeCluster:
		return fmt.Sprintf("data is in %s, member %s of %s", c.DataDir, c.Name, c.InitialCluster)
	}
	return "data is in " + c.DataDir
}

// validate checks what no package below checks and fills in what depends on other
// settings.
func (c *Config) validate() error {
	if c.DataDir == "" {
		return errors.New("--data-dir must not be empty")
	}
	if _, err := embedded.Canonical(c.DataDir); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if c.IssuedFile == "" {
		c.IssuedFile = c.beside(".issued")
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return fmt.Errorf("--log-format %q must be text or json", c.LogFormat)
	}
	if c.MaxTTL < lockserver.MinTTL || c.MaxTTL > lockserver.MaxTTL || c.MaxTTL%time.Millisecond != 0 {
		return fmt.Errorf("--max-ttl %s must be %s to %s in whole milliseconds", c.MaxTTL, lockserver.MinTTL, lockserver.MaxTTL)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return fmt.Errorf("--log-level %q must be debug, info, warn or error", c.LogLevel)
	}
	checks := []func() error{c.validateAccess, c.validateTraces, c.validateAdmin, c.validateMode, c.validateIssued}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// validateAccess is closed by default: an address that others can reach needs keys
// or client certificates.
func (c *Config) validateAccess() error {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key must be given together")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key")
	case c.Keys != "" || c.TLSClientCA != "" || c.InsecureNoAuth || loopback(c.Listen):
		return nil
	}
	return fmt.Errorf("--listen %s can be reached by others: give --keys or --tls-client-ca, or --insecure-no-auth to let everybody in", c.Listen)
}

// loopback reports whether an address is certainly for this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // Listen says what is wrong with it
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// validateMode refuses settings of one mode in another: they would do nothing, and
// whoever gave them believes otherwise.
func (c *Config) validateMode() error {
	cluster := []string{"listen-peer", "join", "peer-cert", "peer-key", "peer-ca", "insecure-peers"}
	external := []string{
		"etcd-cert", "etcd-key", "etcd-ca", "etcd-user", "etcd-password", "etcd-password-file", "prefix",
		"cluster-id", "allow-old-etcd",
	}
	mode := c.mode()
	switch {
	case mode == modeExternal && c.InitialCluster != "":
		return errors.New("--initial-cluster and --etcd-endpoints exclude each other")
	case mode != modeCluster && c.given(cluster) != "":
		return fmt.Errorf("--%s needs --initial-cluster", c.given(cluster))
	case mode != modeExternal && c.given(external) != "":
		return fmt.Errorf("--%s needs --etcd-endpoints", c.given(external))
	case c.EtcdPassword != "" && c.EtcdPasswordFile != "":
		return errors.New("--etcd-password and --etcd-password-file exclude each other")
	case (c.EtcdUser == "") != (c.EtcdPassword == "" && c.EtcdPasswordFile == ""):
		return errors.New("--etcd-user and a password must be given together")
	case (c.EtcdCert == "") != (c.EtcdKey == ""):
		return errors.New("--etcd-cert and --etcd-key must be given together")
	}
	return nil
}

// validateIssued refuses a file that would be lost, or go back, together with the data
// that it guards the fences against.
func (c *Config) validateIssued() error {
	file, err := embedded.Canonical(c.IssuedFile)
	if err != nil {
		return fmt.Errorf("--issued-file: %w", err)
	}
	if c.mode() != modeExternal && strings.HasPrefix(file, c.beside("")+string(filepath.Separator)) {
		return fmt.Errorf("--issued-file %s must not lie in the data directory: it has to outlive that", c.IssuedFile)
	}
	return nil
}

// given returns the first of the named settings that differs from its default.
func (c *Config) given(names []string) string {
	mine, defaults := c.settings(), defaultConfig().settings()
	for _, name := range names {
		if mine.Lookup(name).Value.String() != defaults.Lookup(name).Value.String() {
			return name
		}
	}
	return ""
}

// beside returns the name of a file of this server: its data directory's and an
// ending, so that a wiped directory does not take the file along.
func (c *Config) beside(ending string) string {
	dir, _ := embedded.Canonical(c.DataDir) // validate has seen its error
	return dir + ending
}
