package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/apikey"
)

func (a *app) keyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Make API keys"}
	cmd.AddCommand(a.keyNewCommand())
	return cmd
}

func (a *app) keyNewCommand() *cobra.Command {
	var file, role string
	var prefixes []string
	cmd := &cobra.Command{
		Use:   "new NAME --file PATH --prefix PREFIX",
		Short: "Make an API key, add its hash to the server's key file, and print the key",
		Long: `Make an API key. Its hash is added to the key file, which the server reads again while it
runs; the key itself is printed this once and kept nowhere.

A key has a role over the locks whose names start with one of its prefixes: "read" sees
them, "lock" also makes and ends holds, "admin" also breaks holds. What concerns the
whole server, such as a snapshot, needs "admin" over every lock: --prefix "".

Run it as the user of the server, who must be able to read the file:

  fencectl key new "order workers" --file /etc/fenced/keys.json --prefix orders/

To keep the key in a file, say "umask 077" before: one that others may read is refused.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" || len(prefixes) == 0 {
				return usage(`name the key file with --file and the locks with --prefix ("" is every lock)`)
			}
			grant := apikey.Grant{Prefixes: prefixes}
			if err := grant.Role.UnmarshalText([]byte(role)); err != nil {
				return usage("--role: %w", err)
			}
			return a.newKey(file, args[0], grant)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "key file of the server; made if there is none")
	cmd.Flags().StringVar(&role, "role", apikey.Lock.String(), "read, lock or admin")
	cmd.Flags().StringArrayVar(&prefixes, "prefix", nil, `start of the names of the locks; may be repeated; "" is every lock`)
	return cmd
}

func (a *app) newKey(file, name string, grant apikey.Grant) error {
	text, k, err := apikey.Generate(name, []apikey.Grant{grant}, apikey.Quota{})
	if err != nil {
		return usage("%w", err)
	}
	closedPipeFails()
	if err := apikey.Add(file, k); err != nil {
		return usage("%w", err)
	}
	if err := a.printKey(file, text, k); err != nil { // nobody has it
		return fmt.Errorf("the key could not be printed and was taken out of %s: %w", file, errors.Join(err, apikey.Remove(file, k.ID)))
	}
	return nil
}

func (a *app) printKey(file, text string, k apikey.Key) error {
	if a.output == "json" {
		return a.print(map[string]string{"id": k.ID, "name": k.Name, "key": text}, nil)
	}
	fmt.Fprintf(a.err, "key %s is in %s; it is shown this once:\n", k.ID, file)
	_, err := fmt.Fprintln(a.out, text)
	return err
}
