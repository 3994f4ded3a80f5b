package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// progress is a bar on a terminal, and nothing anywhere else.
type progress struct {
	out io.Writer // nil where there is no terminal

	mu   sync.Mutex
	last time.Time
}

const (
	barWidth = 30
	// barEvery bounds how often the bar is drawn.
	barEvery = 50 * time.Millisecond
)

func newProgress(out io.Writer) *progress {
	f, ok := out.(*os.File)
	if !ok {
		return &progress{}
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || os.Getenv("TERM") == "dumb" {
		return &progress{}
	}
	return &progress{out: f}
}

// show draws the bar of one part of the run.
func (p *progress) show(part string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil || done < total && time.Since(p.last) < barEvery {
		return
	}
	p.last = time.Now()
	full := barWidth * done / total
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%-28s [%s%s] %d/%d", part, strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), done, total)
}

// clear removes the bar.
func (p *progress) clear() {
	if p.out != nil {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
