package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

func (a *app) breakCommand() *cobra.Command {
	var token, reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "break LOCK --token N --reason TEXT",
		Short: "End the hold of a lock against its owner's will",
		Long: `End the hold that has this token. It does nothing when another has the lock by now.

A break does not fence. The old holder may still be writing: its writes are refused
once a higher token has reached the store. "fencectl pg advance" does that at once.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := tokens.Parse(token)
			if err != nil {
				return usage("--token: %v; see it with \"fencectl get %s\"", err, args[0])
			}
			if strings.TrimSpace(reason) == "" {
				return usage("--reason must say why; it is kept in the lock's history")
			}
			if !yes && !a.confirm(fmt.Sprintf("break the hold of %s with token %d?", safe(args[0]), n)) {
				return usage("not confirmed; nothing was broken")
			}
			return a.with(func(c *clientsdk.Client) error { return a.breakHold(cmd, c, args[0], n, reason) })
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "token of the hold to end, as seen in \"fencectl get\"")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) breakHold(cmd *cobra.Command, c *clientsdk.Client, lock string, n tokens.Token, reason string) error {
	if err := c.Break(cmd.Context(), lock, n, reason); err != nil {
		return err
	}
	if a.output == "json" {
		return a.print(map[string]any{"lock": lock, "token": n, "ended": "broken"}, nil)
	}
	fmt.Fprintf(a.out, "broken: %s, token %d\n", safe(lock), n)
	fmt.Fprintf(a.err, "its holder may still write; make the store refuse it at once with: fencectl pg advance RESOURCE --token %d (one-shot writers: %d)\n", n+1, n)
	return nil
}

// confirm asks on a terminal; without one there is nobody to ask, and the command
// line is taken at its word.
func (a *app) confirm(question string) bool {
	if a.in == nil || !isTerminal(int(a.in.Fd())) {
		return true
	}
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(line), "y")
}
