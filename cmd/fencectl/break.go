package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
)

// breakFlags say which holds a break is for.
type breakFlags struct {
	token, session, owner, reason string
	yes                           bool
}

func (a *app) breakCommand() *cobra.Command {
	var f breakFlags
	cmd := &cobra.Command{
		Use:   "break {LOCK --token N | --session REF | --owner NAME} --reason TEXT",
		Short: "End holds against their owner's will",
		Long: `End the hold of a lock that has this token, or all locks that a session or an owner of
exactly this name holds. A hold is ended by its token: one that another has taken by then
is left alone. Places in queues stay.

A break does not fence. The old holder may still be writing: its writes are refused
once a higher token has reached the store. "fencectl pg advance" does that at once.

On a terminal it asks first.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			return a.with(func(c *clientsdk.Client) error {
				if len(args) == 1 {
					return a.breakOne(cmd, c, args[0], &f)
				}
				return a.breakMany(cmd, c, &f)
			})
		},
	}
	cmd.Flags().StringVar(&f.token, "token", "", "token of the hold to end, as seen in \"fencectl get\"")
	cmd.Flags().StringVar(&f.session, "session", "", "end what this session holds, by its ref in \"fencectl sessions\"")
	cmd.Flags().StringVar(&f.owner, "owner", "", "end what owners of this name hold")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the record")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	return cmd
}

// check demands one way to name the holds, and a reason.
func (f *breakFlags) check(args []string) error {
	ways := len(args)
	for _, name := range []string{f.session, f.owner} {
		if name != "" {
			ways++
		}
	}
	switch {
	case ways != 1:
		return usage("name what to break: a lock with --token, or --session, or --owner, and one of them only")
	case len(args) == 0 && f.token != "":
		return usage("--token goes with a lock")
	case strings.TrimSpace(f.reason) == "":
		return usage("--reason must say why; it is kept in the lock's history")
	}
	return nil
}

// broken is what a break did to one hold.
type broken struct {
	Lock  string       `json:"lock"`
	Owner string       `json:"owner,omitempty"`
	Token tokens.Token `json:"token"`
	// Ended is "broken", or "" where the hold had ended by itself.
	Ended string `json:"ended,omitempty"`
}

func (a *app) breakOne(cmd *cobra.Command, c *clientsdk.Client, lock string, f *breakFlags) error {
	n, err := tokens.Parse(f.token)
	if err != nil {
		return usage("--token: %v; see it with \"fencectl get %s\"", err, lock)
	}
	if err := a.confirmBreak(fmt.Sprintf("break the hold of %s with token %d?", safe(lock), n), f.yes); err != nil {
		return err
	}
	if err := c.Break(cmd.Context(), lock, n, f.reason); err != nil {
		return err
	}
	if a.output == "json" {
		return a.print(broken{Lock: lock, Token: n, Ended: "broken"}, nil)
	}
	fmt.Fprintf(a.out, "broken: %s, token %d\n", safe(lock), n)
	fmt.Fprintf(a.err, "its holder may still write; make the store refuse it at once with: fencectl pg advance RESOURCE --token %d (one-shot writers: %d)\n", n+1, n)
	return nil
}

func (a *app) breakMany(cmd *cobra.Command, c *clientsdk.Client, f *breakFlags) error {
	found, err := holdsOf(cmd, c, f)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &exitError{apierr.ExitConflict, `see who holds what with "fencectl ls"`, apierr.New(apierr.HolderChanged, "nothing is held by that session or owner")}
	}
	if !f.yes {
		for _, b := range found {
			fmt.Fprintf(a.err, "%s  token %d  %s\n", safe(b.Lock), b.Token, safe(b.Owner))
		}
	}
	if err := a.confirmBreak(fmt.Sprintf("break these %d holds?", len(found)), f.yes); err != nil {
		return err
	}
	done, err := breakAll(cmd, c, found, f.reason)
	if printErr := a.printBroken(done); err == nil {
		err = printErr
	}
	return err
}

// holdsOf lists the holds that f names and that hold their lock.
func holdsOf(cmd *cobra.Command, c *clientsdk.Client, f *breakFlags) ([]broken, error) {
	locks, err := allLocks(cmd.Context(), c, "")
	if err != nil {
		return nil, err
	}
	var found []broken
	for _, l := range locks {
		h := l.Holder
		if h != nil && (f.owner != "" && h.Owner == f.owner || f.session != "" && h.Session == f.session) {
			found = append(found, broken{Lock: l.Lock, Owner: h.Owner, Token: h.Token})
		}
	}
	return found, nil
}

// breakAll breaks one after the other and returns those that it came to.
func breakAll(cmd *cobra.Command, c *clientsdk.Client, all []broken, reason string) ([]broken, error) {
	for i := range all {
		err := c.Break(cmd.Context(), all[i].Lock, all[i].Token, reason)
		switch {
		case err == nil:
			all[i].Ended = "broken"
		case apierr.CodeOf(err) != apierr.HolderChanged:
			return all[:i], fmt.Errorf("after %d of %d: %w", i, len(all), err)
		}
	}
	return all, nil
}

func (a *app) printBroken(done []broken) error {
	if a.output != "json" && len(done) > 0 {
		fmt.Fprintln(a.err, "their holders may still write; make the store refuse each at once with: fencectl pg advance RESOURCE --token N, where N is its token and 1 more (one-shot writers: its token)")
	}
	return a.print(done, func(t *table) {
		t.row("LOCK", "OWNER", "TOKEN", "ENDED")
		for _, b := range done {
			ended := b.Ended
			if ended == "" {
				ended = "by itself"
			}
			t.row(b.Lock, b.Owner, b.Token, ended)
		}
	})
}

// confirmBreak asks, and says what a break does not do.
func (a *app) confirmBreak(question string, yes bool) error {
	return a.confirm("A break does not fence: what is broken may still write until \"fencectl pg advance\" or the next holder's write.\n"+question, yes)
}

// confirm asks on a terminal unless yes; without one there is nobody to ask, and the
// command line is taken at its word.
func (a *app) confirm(question string, yes bool) error {
	if yes || a.in == nil || !isTerminal(int(a.in.Fd())) {
		return nil
	}
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	if !strings.EqualFold(strings.TrimSpace(line), "y") {
		return usage("not confirmed; nothing was done")
	}
	return nil
}
