package main

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
)

const (
	// completionTime is how long a person waits for a key press.
	completionTime = time.Second
	maxCompletions = 200
)

// completion is what cobra asks for words that fit.
type completion = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// completeLock offers the locks in use as the first argument. A server that does not
// answer in time offers nothing.
func (a *app) completeLock(after cobra.ShellCompDirective) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, after
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		c, err := a.client(func(cfg *clientsdk.Config) { cfg.RetryFor = completionTime })
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer c.Close()
		page, err := c.Locks(ctx, &clientsdk.LocksQuery{Prefix: typed, Limit: maxCompletions})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return completions(page.Locks), cobra.ShellCompDirectiveNoFileComp
	}
}

// completions leaves out what a shell would not take as it stands: names are other
// people's input, and what is offered is put into a command line.
func completions(locks []clientsdk.LockSummary) []cobra.Completion {
	var names []cobra.Completion
	for _, l := range locks {
		if !strings.ContainsFunc(l.Lock, unfit) && !strings.HasPrefix(l.Lock, "-") {
			names = append(names, l.Lock)
		}
	}
	return names
}

func unfit(r rune) bool {
	return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune("'\"\\`$&|;<>()*?[]{}!#~^", r)
}

// completes gives each command the completion of lock names.
func (a *app) completes(after cobra.ShellCompDirective, cmds ...*cobra.Command) {
	for _, cmd := range cmds {
		cmd.ValidArgsFunction = a.completeLock(after)
	}
}
