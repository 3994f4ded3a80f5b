package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/pgfence"
)

func (a *app) pgCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "pg", Short: "Work with the fences in a PostgreSQL database"}
	cmd.AddCommand(a.pgAdvanceCommand())
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
			url := cmp.Or(database, a.getenv("FENCED_DATABASE_URL"))
			if url == "" {
				return usage("name the database with --database or FENCED_DATABASE_URL")
			}
			return a.advance(cmd, url, tokens.Claim{Resource: args[0], Token: n, Mode: tokens.Renewable})
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "what the fence is raised to")
	cmd.Flags().StringVar(&database, "database", "", "URL of the database (default: FENCED_DATABASE_URL)")
	return cmd
}

func (a *app) advance(cmd *cobra.Command, url string, claim tokens.Claim) error {
	if err := claim.Validate(); err != nil {
		return usage("%v", err)
	}
	conn, err := pgx.Connect(cmd.Context(), url)
	if err != nil {
		return &storeError{apierr.ExitUnreachable, fmt.Errorf("pg advance: %w", err)}
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
		return &storeError{apierr.ExitConflict, fmt.Errorf("pg advance: the fence of %q is past that already: %w", claim.Resource, err)}
	}
	if err != nil {
		return &storeError{exitInternal, fmt.Errorf("pg advance: %w", err)}
	}
	return a.print(map[string]any{"resource": claim.Resource, "fence": current}, func(t *table) {
		t.row("RESOURCE", "FENCE")
		t.row(claim.Resource, current)
	})
}

// storeError is an error of a store that holds fences, with its exit code.
type storeError struct {
	exit int
	error
}

func (e *storeError) Unwrap() error { return e.error }
