package lockserver

import (
	"fmt"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// DefaultPrefix is where everything of one deployment lives.
const DefaultPrefix = "/fenced/v1/"

// Config tells a [Server] where its store is and how it may use it.
type Config struct {
	// Client talks to the store. The server never closes it. Required.
	Client *clientv3.Client
	// Prefix starts every key; it ends in a slash. Defaults to [DefaultPrefix].
	Prefix string
	// Name tells servers apart in what they write. Defaults to "fenced".
	Name string
	// Alone says that no other server uses the store: answers that say no need no
	// read of the store then, and expiry need not ask whether another server
	// renewed. Set it for the embedded single node only.
	Alone bool
	// IssuedFile remembers, outside the store, the highest token that can have been
	// issued; a store below it grants nothing until the floor is raised. It must not
	// lie in the store's own directory. "" keeps none: a store that was rolled back
	// while no server ran is not noticed then.
	IssuedFile string
	// MaxTTL is the longest TTL a caller may ask for, [MinTTL] to [MaxTTL].
	// Defaults to [MaxTTL].
	MaxTTL time.Duration
	// Logger gets what an operator should know. Defaults to discarding.
	Logger *slog.Logger
	_      struct{}
}

// withDefaults returns a copy of c with empty fields filled in.
func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Name == "" {
		c.Name = "fenced"
	}
	if c.MaxTTL == 0 {
		c.MaxTTL = MaxTTL
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.Client == nil {
		return fmt.Errorf("lockserver: Config.Client is required")
	}
	if n := len(c.Prefix); n < 2 || n > 256 || c.Prefix[n-1] != '/' {
		return fmt.Errorf("lockserver: Config.Prefix must be 2 to 256 bytes and end in a slash")
	}
	if err := validateText("Name", c.Name, 1, 64); err != nil {
		return fmt.Errorf("lockserver: Config.%w", err)
	}
	if c.MaxTTL < MinTTL || c.MaxTTL > MaxTTL || c.MaxTTL%time.Millisecond != 0 {
		return fmt.Errorf("lockserver: Config.MaxTTL must be %s to %s in whole milliseconds", MinTTL, MaxTTL)
	}
	return nil
}
