package main

import (
	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/buildinfo"
)

// version is set by the linker in releases.
var version = "devel"

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of fencectl and how it was built",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			build := buildinfo.Build()
			return a.print(map[string]string{"version": version, "build": build}, func(t *table) {
				t.row("fencectl", version, build)
			})
		},
	}
}
