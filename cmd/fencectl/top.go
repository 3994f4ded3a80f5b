package main

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

const (
	// topPause is the least time between two lists, and topIdle the most.
	topPause = 250 * time.Millisecond
	topIdle  = 10 * time.Second
	// topShare bounds what top costs the server: a list that takes 1 s is followed by
	// a pause of that many seconds.
	topShare = 9
)

func (a *app) topCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "top [PREFIX]",
		Short: "Show the locks on the whole terminal, the most waited for first, as they change",
		Long: `Show the locks that are held or waited for on the whole terminal, the most waited for
first, and after that those that have been held longest. It follows what happens.

Keys: / types a filter for names of locks and owners, enter keeps it and esc clears it;
q quits.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.in == nil || !isTerminal(int(a.in.Fd())) || a.output == "json" {
				return usage("top needs a terminal; use \"fencectl ls\" or \"fencectl watch\"")
			}
			return a.with(func(c *clientsdk.Client) error { return a.top(cmd.Context(), c, strings.Join(args, "")) })
		},
	}
}

// top shows until a key quits it, ctx ends or the terminal is gone.
func (a *app) top(ctx context.Context, c *clientsdk.Client, prefix string) (err error) {
	if _, err := c.Locks(ctx, &clientsdk.LocksQuery{Prefix: prefix, Limit: 1}); err != nil {
		return err // before the screen is taken: nobody could read it there
	}
	s, err := openScreen(a.in, a.out)
	if err != nil {
		return usage("top: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &topLoop{screen: s, keys: s.keys(ctx), news: make(chan topNews)}
	f := topFeed{c: c, prefix: prefix, news: t.news, dirty: make(chan struct{}, 1)}
	var feeders sync.WaitGroup
	feeders.Go(func() { f.lists(ctx) })
	feeders.Go(func() { f.events(ctx) })
	defer func() {
		cancel()
		feeders.Wait()
		for range t.keys { // until its reader has let go of the terminal
		}
		if closeErr := s.close(); err == nil {
			err = closeErr
		}
	}()
	return t.run(ctx)
}

// topNews changes what is shown. It comes from a [topFeed].
type topNews func(*topView)

// topFeed tells how the locks stand. Each event makes it list them again: a list has
// the number of waiters right, whatever events were missed.
type topFeed struct {
	c      *clientsdk.Client
	prefix string
	news   chan<- topNews
	dirty  chan struct{}
}

func (f *topFeed) tell(ctx context.Context, n topNews) {
	select {
	case f.news <- n:
	case <-ctx.Done():
	}
}

// lists lists the locks until ctx ends.
func (f *topFeed) lists(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		locks, err := allLocks(ctx, f.c, f.prefix)
		at := time.Now()
		f.tell(ctx, func(v *topView) {
			if v.fault = ""; err != nil {
				v.fault = oneLine(err.Error())
				return
			}
			v.locks, v.at = locks, at
		})
		rest(ctx, max(topPause, topShare*at.Sub(start)), nil)
		rest(ctx, topIdle, f.dirty)
	}
}

// events follows what happens until ctx ends.
func (f *topFeed) events(ctx context.Context) {
	for ctx.Err() == nil {
		for ev, err := range f.c.Events(ctx, &clientsdk.EventsOptions{Prefix: f.prefix}) {
			f.tell(ctx, func(v *topView) {
				if err != nil {
					v.fault = oneLine(err.Error())
					return
				}
				v.event = safe(ev.Kind) + " " + safe(ev.Lock) + " " + safe(ev.Owner)
			})
			select {
			case f.dirty <- struct{}{}:
			default:
			}
		}
		rest(ctx, time.Second, nil)
	}
}

// rest returns after d, or when ctx ends or wake has something.
func rest(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// topLoop owns the view: keys and news come to it one by one.
type topLoop struct {
	*screen
	view topView
	keys <-chan []byte
	news chan topNews
}

func (t *topLoop) run(ctx context.Context) error {
	sizes, stop := resized()
	defer stop()
	tick := time.NewTicker(time.Second) // what is held grows older
	defer tick.Stop()
	for !t.view.quit {
		if err := t.draw(); err != nil {
			return err
		}
		select {
		case typed, ok := <-t.keys:
			if !ok {
				return nil
			}
			t.view.key(typed)
		case change := <-t.news:
			change(&t.view)
		case <-sizes:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func (t *topLoop) draw() error {
	columns, rows := t.size()
	lines := t.view.render(time.Now(), columns, rows)
	_, err := io.WriteString(t.out, topLeft+strings.Join(lines, "\r\n"))
	return err
}
