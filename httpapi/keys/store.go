package keys

import (
	"log/slog"

	"github.com/fenced/fenced/httpapi/internal/reload"
	"github.com/fenced/fenced/internal/apikey"
)

// What stands in the file; see package apikey.
type (
	// Role is what a key may do. A higher role includes the lower ones.
	Role = apikey.Role
	// Key is one entry of the file.
	Key = apikey.Key
)

// The roles, over the locks that a key's grants name.
const (
	Read  = apikey.Read
	Lock  = apikey.Lock
	Admin = apikey.Admin
)

// ReloadInterval is how often a [Store] looks whether its file has changed.
const ReloadInterval = reload.Interval

// Store answers for a key file and follows its changes.
type Store struct {
	known *reload.Value[apikey.Set]
}

// Open reads the key file at path. The logger gets what is wrong with later
// versions of it; nil means [slog.Default].
func Open(path string, log *slog.Logger) (*Store, error) {
	known, err := reload.New(log, func() (apikey.Set, error) { return apikey.Load(path) }, path)
	if err != nil {
		return nil, err
	}
	return &Store{known}, nil
}

// Lookup returns the key that text presents, nil where it is none of the file's.
func (s *Store) Lookup(text string) *Key { return s.known.Get().Lookup(text) }
