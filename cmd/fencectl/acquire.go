package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

// queueFlags are the flags of commands that acquire.
type queueFlags struct {
	try   bool
	wait  time.Duration
	ttl   time.Duration
	owner string
}

func (q *queueFlags) register(cmd *cobra.Command, ttl time.Duration) {
	cmd.Flags().BoolVar(&q.try, "try", false, "do not wait for the lock")
	cmd.Flags().DurationVar(&q.wait, "wait", 0, "wait that long at most (default: for ever)")
	cmd.Flags().DurationVar(&q.ttl, "ttl", ttl, "how long the hold lasts without renewal, 1s to 1h")
	cmd.Flags().StringVar(&q.owner, "owner", "", "name of this worker, for people (default: host, pid and program)")
}

func (q *queueFlags) validate() error {
	switch {
	case q.try && q.wait != 0:
		return usage("--try and --wait exclude each other")
	case q.wait < 0:
		return outOfBounds("--wait must not be negative, as %s is", q.wait)
	case q.ttl < clientsdk.MinTTL || q.ttl > clientsdk.MaxTTL || q.ttl%time.Millisecond != 0:
		return outOfBounds("--ttl must be %s to %s in whole milliseconds, not %s", clientsdk.MinTTL, clientsdk.MaxTTL, q.ttl)
	}
	return nil
}

// acquire takes the lock with a lease of its own.
func (q *queueFlags) acquire(cmd *cobra.Command, c *clientsdk.Client, lock string) (*clientsdk.Hold, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	opts := &clientsdk.AcquireOptions{Owner: q.owner, TTL: q.ttl, Wait: q.wait, PerHold: true}
	patient := !q.try && !cmd.Flags().Changed("wait")
	acquire := c.Acquire
	if !patient && q.wait == 0 {
		acquire = c.TryAcquire
	}
	h, err := acquire(cmd.Context(), lock, opts)
	if errors.Is(err, clientsdk.ErrUnavailable) && !patient {
		closeSoon(c)
	}
	return h, err
}

// takeBack is how long the removal of what may be left of a request may take once the
// time that was asked for is over. A server that runs answers within it; of one that
// does not, the lease ends what is left.
const takeBack = 500 * time.Millisecond

// closeSoon closes c, and leaves alone what is not done in takeBack.
func closeSoon(c *clientsdk.Client) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Close()
	}()
	select {
	case <-closed:
	case <-time.After(takeBack):
	}
}

func (a *app) acquireCommand() *cobra.Command {
	var q queueFlags
	cmd := &cobra.Command{
		Use:   "acquire LOCK",
		Short: "Take a lock for a script, which must renew and release it",
		Long: `Take a lock and print what a script needs to keep it. Nothing renews it: call
"fencectl renew" before the TTL is over, and "fencectl release" at the end. To run one
command under a lock, "fencectl run" is safer.

  eval "$(fencectl acquire jobs/nightly --ttl 10m)"
  ...
  fencectl release`,
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{formats: "env,json"},
		RunE: func(cmd *cobra.Command, args []string) error {
			closedPipeFails()
			return a.with(func(c *clientsdk.Client) error {
				h, err := q.acquire(cmd, c, args[0])
				if err != nil {
					return err
				}
				if err := a.printHold(newHold{Lock: h.Lock(), Hold: h.ID(), Token: h.Token()}); err != nil {
					// Nobody has its id: nobody could release it.
					released := h.Release(context.WithoutCancel(cmd.Context()))
					return fmt.Errorf("the hold could not be printed and was released: %w", errors.Join(err, released))
				}
				return nil
			})
		},
	}
	q.register(cmd, clientsdk.DefaultTTL)
	return cmd
}

// newHold is what -o json prints; the token is a number, as everywhere.
type newHold struct {
	Lock  string       `json:"lock"`
	Hold  string       `json:"hold"`
	Token tokens.Token `json:"token"`
}

func (a *app) printHold(h newHold) error {
	if a.output == "json" {
		return a.print(h, nil)
	}
	for _, v := range [][2]string{{"FENCED_LOCK", h.Lock}, {"FENCED_HOLD", h.Hold}, {"FENCED_TOKEN", h.Token.String()}} {
		if _, err := fmt.Fprintf(a.out, "export %s=%s\n", v[0], shellQuote(v[1])); err != nil {
			return err
		}
	}
	return nil
}

// shellQuote makes one word of s for any POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
