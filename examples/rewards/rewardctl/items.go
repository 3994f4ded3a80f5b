package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/examples/rewards/itemserver"
	"github.com/fenced/fenced/tokens/pgfence"
)

func itemsCmd(open openFunc) *cobra.Command {
	var listen string
	var ignoreTokens bool
	cmd := &cobra.Command{
		Use:   "serve-items",
		Short: "Run the item server on the database of --dsn; prints its address as a JSON object",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			pool, err := open(ctx)
			if err != nil {
				return err
			}
			defer pool.Close()
			if err := itemserver.Install(ctx, pool); err != nil {
				return err
			}
			cfg := itemserver.Config{Pool: pool, Log: logger(cmd)}
			if !ignoreTokens {
				if err := pgfence.Install(ctx, pool); err != nil {
					return err
				}
				cfg.Guard = pgfence.New(pool)
			}
			items, err := itemserver.New(cfg)
			if err != nil {
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			(&printer{w: cmd.OutOrStdout()}).print(rewards.Record{Kind: "ready", Key: "http://" + l.Addr().String()})
			return serve(ctx, l, items)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7430", "address to listen on")
	cmd.Flags().BoolVar(&ignoreTokens, "ignore-tokens", false, "be a server that does not understand tokens, as many are")
	return cmd
}

// serve answers until ctx ends, then lets open requests finish.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopped <- srv.Shutdown(finish)
	})
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	return <-stopped
}
