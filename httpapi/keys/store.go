package keys

import (
	"log/slog"

	"github.com/fenced/fenced/httpapi/internal/reload"
)

// ReloadInterval is how often a [Store] looks whether its file has changed.
const ReloadInterval = reload.Interval

// Store answers for a key file and follows its changes.
type Store struct {
	known *reload.Value[map[string]*Key]
}

// Open reads the key file at path. The logger gets what is wrong with later
// versions of it; nil means [slog.Default].
func Open(path string, log *slog.Logger) (*Store, error) {
	known, err := reload.New(log, func() (map[string]*Key, error) { return read(path) }, path)
	if err != nil {
		return nil, err
	}
	return &Store{known}, nil
}

// Lookup returns the key that text presents, nil where it is none of the file's.
func (s *Store) Lookup(text string) *Key {
	known := s.known.Get()
	id, secret, ok := split(text)
	if !ok {
		return nil
	}
	k := known[id]
	if k == nil || !k.matches(secret) {
		return nil
	}
	return k
}
