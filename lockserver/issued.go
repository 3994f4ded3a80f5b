package lockserver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/fenced/fenced/tokens"
)

// issuedFile remembers outside the store the highest token that can have been
// issued, so that a store that was rolled back is noticed. It is one line of fixed
// length, overwritten in place: a process that dies loses nothing, a machine that
// dies at most the second since the last sync, in which the store, which syncs
// each write, cannot have fallen below it.
//
//	fenced issued 1 <highest token, 16 digits> <open or closed>
type issuedFile struct {
	mu      sync.Mutex
	file    *os.File
	highest int64
	closed  bool
	dirty   bool
}

const issuedFormat = "fenced issued 1 %016d %-6s\n"

// openIssued opens or makes the file; fresh says that it was not there. One that is
// made has a line from the start, so that an empty file is one that was cut off.
func openIssued(path string) (f *issuedFile, fresh bool, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		fresh = true
	}
	if err != nil {
		return nil, false, fmt.Errorf("issued-token file: %w", err)
	}
	f = &issuedFile{file: file}
	if fresh {
		f.write()
		err = f.sync()
	}
	if err == nil {
		err = f.read()
	}
	if err != nil {
		_ = file.Close()
		return nil, false, fmt.Errorf("issued-token file %s: %w", path, err)
	}
	return f, fresh, nil
}

// read takes the line in.
func (f *issuedFile) read() error {
	line := make([]byte, len(fmt.Sprintf(issuedFormat, 0, "")))
	n, err := f.file.ReadAt(line, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var state string
	_, err = fmt.Sscanf(string(line[:n]), strings.ReplaceAll(issuedFormat, "%-6s", "%s"), &f.highest, &state)
	if err != nil || f.highest < 0 || f.highest > int64(tokens.Max) || state != "open" && state != "closed" {
		return errors.New("it is cut off, or not a file of this server; where the store is known to be sound, remove it")
	}
	f.closed = state == "closed"
	return nil
}

// raise records that tokens up to n may be issued. A failed write is kept for the
// next sync, which reports it.
func (f *issuedFile) raise(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > f.highest {
		f.highest = n
		f.write()
	}
}

// set records that granting is closed, or open again.
func (f *issuedFile) set(closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != closed {
		f.closed = closed
		f.write()
	}
}

func (f *issuedFile) write() {
	state := "open"
	if f.closed {
		state = "closed"
	}
	f.dirty = true
	_, _ = f.file.WriteAt(fmt.Appendf(nil, issuedFormat, f.highest, state), 0)
}

// sync writes and syncs what is new.
func (f *issuedFile) sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dirty {
		return nil
	}
	f.write()
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("issued-token file: %w", err)
	}
	f.dirty = false
	return nil
}

func (f *issuedFile) close() error { return errors.Join(f.sync(), f.file.Close()) }
