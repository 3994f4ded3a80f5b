//go:build windows

package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/windows"
)

// Windows has neither process groups nor signals, without which run could not keep its
// promise that the command is dead before the lease can end. Half a promise is none.
func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "run LOCK [flags] -- COMMAND [ARG...]",
		Short:              "Not on Windows: run a command under a lock",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usage("run needs process groups and signals, which Windows has not: use it in WSL, or acquire, renew and release")
		},
	}
}

func isSupervisor([]string) bool { return false }

func superviseMain([]string) int { return exitInternal }

func isTerminal(fd int) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(fd), &mode) == nil
}

// screen is for terminals of the other systems.
type screen struct{ out io.Writer }

func openScreen(*os.File, io.Writer) (*screen, error) {
	return nil, errors.New("top has no full screen on Windows: use \"fencectl ls\" or \"fencectl watch\"")
}

func (*screen) close() error { return nil }

func (*screen) size() (columns, rows int) { return 80, 24 }

func (*screen) keys(context.Context) <-chan []byte { return nil }

func resized() (changes <-chan os.Signal, stop func()) { return nil, func() {} }
