package keys

import (
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// ReloadInterval is how often a [Store] looks whether its file has changed.
const ReloadInterval = time.Second

// Store answers for a key file and follows its changes.
type Store struct {
	path  string
	log   *slog.Logger
	known atomic.Pointer[map[string]*Key]

	mu     sync.Mutex // held while looking at the file
	seen   fs.FileInfo
	fault  string // of the last look, so that it is logged once
	looked atomic.Int64
}

// Open reads the key file at path. The logger gets what is wrong with later
// versions of it; nil means [slog.Default].
func Open(path string, log *slog.Logger) (*Store, error) {
	if log == nil {
		log = slog.Default()
	}
	known, info, err := read(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, log: log, seen: info}
	s.known.Store(&known)
	s.looked.Store(time.Now().UnixNano())
	return s, nil
}

// Lookup returns the key that text presents, nil where it is none of the file's.
func (s *Store) Lookup(text string) *Key {
	s.refresh(time.Now())
	id, secret, ok := split(text)
	if !ok {
		return nil
	}
	k := (*s.known.Load())[id]
	if k == nil || !k.matches(secret) {
		return nil
	}
	return k
}

// refresh looks at the file where that is due, one goroutine at a time; the
// others go on with what is known.
func (s *Store) refresh(now time.Time) {
	if now.UnixNano()-s.looked.Load() < int64(ReloadInterval) || !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	s.looked.Store(now.UnixNano())
	info, err := os.Stat(s.path)
	if err == nil && unchanged(s.seen, info) {
		return
	}
	known, info, err := read(s.path)
	if err != nil {
		s.complain(err.Error())
		return
	}
	s.seen, s.fault = info, ""
	s.known.Store(&known)
	s.log.Info("API keys were read anew", "file", s.path, "keys", len(known))
}

// unchanged compares what a replacement or a write in place changes.
func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

func (s *Store) complain(fault string) {
	if fault != s.fault {
		s.fault = fault
		s.log.Error("API keys are not read anew: the old ones stay in force", "error", fault)
	}
}
