//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// screen is a terminal that shows one full page and tells each key at once.
type screen struct {
	in  *os.File
	out io.Writer
	was unix.Termios
}

// openScreen takes over the terminal until close.
func openScreen(in *os.File, out io.Writer) (*screen, error) {
	was, err := unix.IoctlGetTermios(int(in.Fd()), ioctlReadTermios)
	if err != nil {
		return nil, err
	}
	s := &screen{in: in, out: out, was: *was}
	raw := *was
	raw.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG // ^C comes as a key: it must not end us here
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 1      // a read returns within 100 ms, so that reading can end
	if err := unix.IoctlSetTermios(int(in.Fd()), ioctlWriteTermios, &raw); err != nil {
		return nil, err
	}
	_, err = io.WriteString(out, enterScreen)
	return s, err
}

// close gives the terminal back as it was.
func (s *screen) close() error {
	_, err := io.WriteString(s.out, leaveScreen)
	return errors.Join(err, unix.IoctlSetTermios(int(s.in.Fd()), ioctlWriteTermios, &s.was))
}

// size is what fits, and a guess where the terminal does not know.
func (s *screen) size() (columns, rows int) {
	ws, err := unix.IoctlGetWinsize(int(s.in.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 || ws.Row == 0 {
		return 80, 24
	}
	return int(ws.Col), int(ws.Row)
}

// keys sends what is typed, until ctx ends or the terminal is gone, and then closes
// the channel.
func (s *screen) keys(ctx context.Context) <-chan []byte {
	typed := make(chan []byte)
	go func() {
		defer close(typed)
		buf := make([]byte, 64)
		for ctx.Err() == nil {
			n, err := s.in.Read(buf)
			if n == 0 && errors.Is(err, io.EOF) {
				continue // nothing typed for 100 ms
			}
			if err != nil {
				return
			}
			select {
			case typed <- append([]byte(nil), buf[:n]...):
			case <-ctx.Done():
			}
		}
	}()
	return typed
}

// resized tells of every new size, until stop is called.
func resized() (changes <-chan os.Signal, stop func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGWINCH)
	return ch, func() { signal.Stop(ch) }
}
