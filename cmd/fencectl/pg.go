package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
)

func (a *app) pgCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "pg", Short: "Work with the fences in a PostgreSQL database"}
	cmd.AddCommand(a.pgAdvanceCommand(), a.pgFloorCommand())
	return cmd
}

func (a *app) pgAdvanceCommand() *cobra.Command {
	var token, database string
	cmd := &cobra.Command{
		Use:   "advance RESOURCE --token N",
		Short: "Make the database refuse lower tokens for a resource at once",
		Long: `Raise the fence of a resource in the guard table, so that every lower token is refused
from now on, without waiting for the next holder's write. It never lowers a fence.

To shut out the holder of token N after a break, advance to N+1 where its writes are
renewable, and to N where they are one-shot: a one-shot write needs a token above the
fence, and N+1 may be the next holder's.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := tokens.Parse(token)
			if err != nil {
				return usage("--token: %v", err)
			}
			return a.advance(cmd, database, tokens.Claim{Resource: args[0], Token: n, Mode: tokens.Renewable})
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "what the fence is raised to")
	databaseFlag(cmd, &database)
	return cmd
}

func databaseFlag(cmd *cobra.Command, url *string) {
	cmd.Flags().StringVar(url, "database", "", "URL of the database (default: FENCED_DATABASE_URL)")
}

// database connects to the database that the flag or the environment names. The
// caller closes it.
func (a *app) database(ctx context.Context, url string) (*pgx.Conn, error) {
	url = cmp.Or(url, a.getenv("FENCED_DATABASE_URL"))
	if url == "" {
		return nil, usage("name the database with --database or FENCED_DATABASE_URL")
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, &exitError{apierr.ExitUnreachable, "is that the URL of a PostgreSQL database?", fmt.Errorf("database: %w", err)}
	}
	return conn, nil
}

func (a *app) advance(cmd *cobra.Command, url string, claim tokens.Claim) error {
	if err := claim.Validate(); err != nil {
		return usage("%v", err)
	}
	conn, err := a.database(cmd.Context(), url)
	if err != nil {
		return err
	}
	defer conn.Close(cmd.Context())
	var current tokens.Token
	err = pgx.BeginFunc(cmd.Context(), conn, func(tx pgx.Tx) error {
		d, err := pgfence.New(conn).Advance(cmd.Context(), tx, claim)
		current = d.Current
		return err
	})
	if errors.Is(err, tokens.ErrStale) {
		// What was asked for is so already, and more.
		return &exitError{apierr.ExitConflict, "", fmt.Errorf("pg advance: the fence of %q is past that already: %w", claim.Resource, err)}
	}
	if err != nil {
		return pgError("pg advance", err)
	}
	return a.print(map[string]any{"resource": claim.Resource, "fence": current}, func(t *table) {
		t.row("RESOURCE", "FENCE")
		t.row(claim.Resource, current)
	})
}

func (a *app) pgFloorCommand() *cobra.Command {
	var database string
	var fromServer bool
	cmd := &cobra.Command{
		Use:   "floor --from-server",
		Short: "Make the database refuse every token issued so far, for all resources",
		Long: `Raise the floor of all fences in the database above the highest token that the server
can have issued. Do it after the database was restored or failed over and may have lost
commits, before the application may connect: what the lost commits had fenced off would
be accepted again.

Who holds a lock now must acquire it again. It waits for transactions that have advanced
a fence. It needs a member of the role fence_owner.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !fromServer {
				return usage("say where the token comes from: --from-server")
			}
			return a.with(func(c *clientsdk.Client) error { return a.pgFloor(cmd, c, database) })
		},
	}
	cmd.Flags().BoolVar(&fromServer, "from-server", false, "take the highest token that the server can have issued")
	databaseFlag(cmd, &database)
	return cmd
}

func (a *app) pgFloor(cmd *cobra.Command, c *clientsdk.Client, url string) error {
	highest, err := highestToken(cmd.Context(), c)
	if err != nil {
		return err
	}
	conn, err := a.database(cmd.Context(), url)
	if err != nil {
		return err
	}
	defer conn.Close(cmd.Context())
	floor, err := pgfence.RaiseFloor(cmd.Context(), conn, highest+1)
	if err != nil {
		return pgError("pg floor", err)
	}
	return a.print(map[string]any{"floor": floor}, func(t *table) { t.row("floor", floor) })
}

// highestToken is the highest token that can have been issued. A server that cannot
// grant may know less than was issued.
func highestToken(ctx context.Context, c *clientsdk.Client) (tokens.Token, error) {
	// Before a server answers a check it has caught up with the store.
	if _, err := c.Check(ctx, []clientsdk.CheckItem{{Lock: "fencectl", Token: 1}}); err != nil {
		return 0, err
	}
	st, err := c.Status(ctx)
	if err != nil {
		return 0, err
	}
	if !st.Ready {
		return 0, apierr.New(apierr.Code(st.NotReady), "the server cannot tell the highest token")
	}
	return st.Highest, nil
}

// pgError gives an error of the database its exit code.
func pgError(op string, err error) error {
	hint := ""
	if errors.Is(err, tokens.ErrUnfenced) {
		hint = `connect as a member of the role that is needed, and see "fencectl doctor --database URL"`
	}
	return &exitError{exitInternal, hint, fmt.Errorf("%s: %w", op, err)}
}
