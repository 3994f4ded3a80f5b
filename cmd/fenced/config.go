package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/fenced/fenced/lockserver"
)

const (
	defaultListen  = "127.0.0.1:7420"
	defaultDataDir = "fenced-data"
)

// Config is what fenced serve can be told.
type Config struct {
	// Listen is the address of the HTTP service; port 0 picks a free one.
	Listen string
	// DataDir holds the embedded etcd's data.
	DataDir string
	// IssuedFile keeps the highest issued token. Defaults to DataDir + ".issued".
	IssuedFile string
	// Name tells servers apart in what they write.
	Name string
	// PublicHosts are the names by which clients may call the server, beside
	// loopback names and the listen address.
	PublicHosts []string
	// MaxTTL is the longest TTL a caller may ask for.
	MaxTTL time.Duration
	// LogLevel is debug, info, warn or error; LogFormat is text or json.
	LogLevel, LogFormat string
}

func defaultConfig() *Config {
	return &Config{
		Listen: defaultListen, DataDir: defaultDataDir, Name: "fenced", MaxTTL: lockserver.MaxTTL,
		LogLevel: "info", LogFormat: "text",
	}
}

func (c *Config) flags(f *pflag.FlagSet) {
	f.StringVar(&c.Listen, "listen", c.Listen, "address of the HTTP service")
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory of the embedded etcd's data")
	f.StringVar(&c.IssuedFile, "issued-file", "", "file of the highest issued token (default: the data directory + .issued)")
	f.StringVar(&c.Name, "name", c.Name, "name of this server in lists and logs")
	f.StringSliceVar(&c.PublicHosts, "public-host", nil, "host name by which clients call the server (repeatable)")
	f.DurationVar(&c.MaxTTL, "max-ttl", c.MaxTTL, "longest TTL that a caller may ask for, 1s to 1h")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text or json")
}

func (c *Config) validate() error {
	if c.DataDir == "" {
		return errors.New("--data-dir must not be empty")
	}
	if c.IssuedFile == "" {
		c.IssuedFile = filepath.Clean(c.DataDir) + ".issued"
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return fmt.Errorf("--log-format %q must be text or json", c.LogFormat)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return fmt.Errorf("--log-level %q must be debug, info, warn or error", c.LogLevel)
	}
	return nil
}
