package lockserver

import (
	"errors"
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
	// Watch is a client of its own for the watch, so that a crowd of writes on one
	// connection does not starve it. Defaults to Client.
	Watch *clientv3.Client
	// Prefix starts every key; it ends in a slash. Defaults to [DefaultPrefix].
	Prefix string
	// Cluster is the id of this server's deployment, 1 to 64 bytes. It is written
	// where the prefix has none; another one there ends Run with a [*ForeignError].
	// "" takes whatever is there: right for a store that only this deployment can
	// reach.
	Cluster string
	// Restored is the id of the restore that the store's data comes from, "" where
	// it comes from none. See endRestored.
	Restored string
	// MaxOps is the most operations that the store takes in one transaction, 2 or
	// more. Defaults to 128, etcd's default.
	MaxOps int
	// Name tells servers apart in what they write. Defaults to "fenced".
	Name string
	// Alone says that no other server uses the store: answers that say no need no
	// read of the store then, and expiry need not ask whether another server
	// renewed. Set it for the embedded single node only.
	Alone bool
	// Managed says that the store is this deployment's own: its members and its
	// history may be changed, and it may be copied. Set it for embedded stores only.
	Managed bool
	// IssuedFile remembers, outside the store, the highest token that can have been
	// issued; a store below it grants nothing until the floor is raised. It must not
	// lie in the store's own directory. "" keeps none: a store that was rolled back
	// while no server ran is not noticed then.
	IssuedFile string
	// Throwaway says that nobody but its user's own programs can reach the server, and
	// that it is alone: where granting is closed it also tells how to start over without
	// the issued-token file, which alone remembers the closure then.
	Throwaway bool
	// MaxTTL is the longest TTL a caller may ask for, [MinTTL] to [MaxTTL].
	// Defaults to [MaxTTL].
	MaxTTL time.Duration
	// Logger gets what an operator should know. Defaults to discarding.
	Logger *slog.Logger
	// Observer gets what a scraper should know.
	Observer Observer
	_        struct{}
}

// withDefaults returns a copy of c with empty fields filled in.
func (c Config) withDefaults() Config {
	if c.Watch == nil {
		c.Watch = c.Client
	}
	if c.MaxOps == 0 {
		c.MaxOps = 128
	}
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
	c.Observer = c.Observer.withDefaults()
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
	if err := errors.Join(validateText("Cluster", c.Cluster, 0, 64), validateText("Restored", c.Restored, 0, 64)); err != nil {
		return fmt.Errorf("lockserver: Config.%w", err)
	}
	if c.Throwaway && (!c.Alone || c.IssuedFile == "") {
		return fmt.Errorf("lockserver: Config.Throwaway needs Alone and IssuedFile")
	}
	if c.MaxOps < 2 {
		return fmt.Errorf("lockserver: Config.MaxOps must be 2 or more")
	}
	if c.MaxTTL < MinTTL || c.MaxTTL > MaxTTL || c.MaxTTL%time.Millisecond != 0 {
		return fmt.Errorf("lockserver: Config.MaxTTL must be %s to %s in whole milliseconds", MinTTL, MaxTTL)
	}
	return nil
}
