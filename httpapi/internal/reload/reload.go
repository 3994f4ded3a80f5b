package reload

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Interval is how often a [Value] looks whether its files have changed.
const Interval = time.Second

// Value is a T made from files.
type Value[T any] struct {
	load  func() (T, error)
	paths []string
	log   *slog.Logger
	value atomic.Pointer[T]

	// made is when New was called, and looked how long after that the files were looked at
	// last, in nanoseconds: a step of the wall clock must not keep an old key in force.
	made   time.Time
	looked atomic.Int64
	mu     sync.Mutex // held while looking
	seen   []fs.FileInfo
	fault  string // of the last look, so that it is logged once
}

// New makes the value from the files at paths, which load reads. The logger gets
// what happens later; nil means [slog.Default].
func New[T any](log *slog.Logger, load func() (T, error), paths ...string) (*Value[T], error) {
	if log == nil {
		log = slog.Default()
	}
	v := &Value[T]{load: load, paths: paths, log: log, made: time.Now()}
	seen, err := v.stat()
	if err != nil {
		return nil, err
	}
	first, err := load()
	if err != nil {
		return nil, err
	}
	v.seen = seen
	v.value.Store(&first)
	v.looked.Store(int64(time.Since(v.made)))
	return v, nil
}

// Get returns the newest good value.
func (v *Value[T]) Get() T {
	now := int64(time.Since(v.made))
	if now-v.looked.Load() >= int64(Interval) && v.mu.TryLock() {
		v.refresh()
		v.looked.Store(now)
		v.mu.Unlock()
	}
	return *v.value.Load()
}

// refresh looks at the files before it reads them: a change in between is seen
// again at the next look.
func (v *Value[T]) refresh() {
	seen, err := v.stat()
	if err == nil && unchanged(v.seen, seen) {
		return
	}
	var fresh T
	if err == nil {
		fresh, err = v.load()
	}
	if err != nil {
		v.complain(err.Error())
		return
	}
	v.seen, v.fault = seen, ""
	v.value.Store(&fresh)
	v.log.Info("files were read anew", "files", v.paths)
}

func (v *Value[T]) complain(fault string) {
	if fault != v.fault {
		v.fault = fault
		v.log.Error("files are not read anew: what they held before stays in force", "error", fault)
	}
}

func (v *Value[T]) stat() ([]fs.FileInfo, error) {
	infos := make([]fs.FileInfo, len(v.paths))
	for i, path := range v.paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			// To read a pipe or a device may take for ever, and every request with it.
			return nil, fmt.Errorf("%s is not a regular file", path)
		}
		infos[i] = info
	}
	return infos, nil
}

// unchanged compares what a replacement or a write in place changes.
func unchanged(a, b []fs.FileInfo) bool {
	for i := range a {
		same := os.SameFile(a[i], b[i]) && a[i].ModTime().Equal(b[i].ModTime()) &&
			a[i].Size() == b[i].Size() && a[i].Mode() == b[i].Mode()
		if !same {
			return false
		}
	}
	return true
}
