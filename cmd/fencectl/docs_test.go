package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const docsFile = "../../docs/cli.md"

// docs/cli.md is what the commands say of themselves. FENCED_UPDATE=1 writes it anew.
func TestDocs(t *testing.T) {
	t.Parallel()
	root := (&app{}).root()
	var text strings.Builder
	text.WriteString(`# fencectl

<!-- Generated from the commands: FENCED_UPDATE=1 go test ./cmd/fencectl -run TestDocs -->

The servers are named by --addr or FENCED_ADDR and the API key by FENCED_API_KEY, or both by a context. Results go
to standard output, as tables or with -o json; errors are one line on standard error.
"fencectl completion bash|zsh|fish" prints a completion script.

`)
	fmt.Fprintf(&text, "```\n%s```\n", root.PersistentFlags().FlagUsages())
	describe(&text, root)
	if os.Getenv("FENCED_UPDATE") != "" {
		if err := os.WriteFile(docsFile, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text.String() {
		t.Errorf("%s is not what the commands say; run this test with FENCED_UPDATE=1", docsFile)
	}
}

// describe appends cmd's subcommands, each with its help.
func describe(text *strings.Builder, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		about := c.Long
		if about == "" {
			about = c.Short + "."
		}
		fmt.Fprintf(text, "\n## %s\n\n%s\n", strings.TrimPrefix(c.CommandPath(), "fencectl "), about)
		if c.Runnable() {
			fmt.Fprintf(text, "\n```\n%s\n", c.UseLine())
			if flags := c.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
				fmt.Fprintf(text, "\n%s", flags.FlagUsages())
			}
			text.WriteString("```\n")
		}
		describe(text, c)
	}
}
