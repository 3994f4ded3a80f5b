package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/apierr"
)

// finding is one thing that is not as it should be.
type finding struct {
	What string `json:"what"`
	// Mend is the command, or what else to do about it.
	Mend string `json:"mend"`
}

const (
	// longestOffset is the difference of clocks that people and logs can live with; no
	// promise depends on it.
	longestOffset = 2 * time.Second
	// longestLag is how long an answer of a healthy server may wait until the server
	// has caught up with its store; it gives up after a second.
	longestLag = 500 * time.Millisecond
	// fullPercent is how much of its quota a store may use before somebody looks.
	fullPercent = 80
	// leastFree is the least room that a disk should have, in bytes: etcd ends the
	// process when it has none.
	leastFree = 1 << 30
	// backupAge is how old a backup may be unless the command line says otherwise.
	backupAge = 24 * time.Hour
)

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	database     string
	long, backup time.Duration
}

func (a *app) doctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with the servers, and with the fences in a database",
		Long: `Look for what is wrong with the servers, each of those that --addr or the context names:
whether it answers, can grant and has a quorum, its version and etcd's, its token floor,
its store's size against the quota and the room on its disk, its clock, the members, and
the age of the newest backup, which is a snapshot that one of these servers has sent.

Where a database is named, it looks at the fences there: protected tables whose guard
trigger is gone or disabled, fence columns that a role may write by itself, fences above
every token that the server can have issued (one of the two was restored), and
transactions that have held guards for long. Connect to the database as a superuser or a
member of fence_owner: others do not see everything.

It says which members of a cluster it was not given a server of: of those it knows
nothing. With -o json that is a line on standard error.

Each finding comes with what mends it. Any finding exits with 78.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.backup < 0 {
				return usage("--backup-age must not be negative, as %s is", f.backup)
			}
			return a.doctor(cmd.Context(), &f)
		},
	}
	databaseFlag(cmd, &f.database)
	cmd.Flags().DurationVar(&f.long, "long", 30*time.Second, "for how long a transaction may hold a guard")
	cmd.Flags().DurationVar(&f.backup, "backup-age", backupAge, "how old the newest backup may be; 0 does not look")
	return cmd
}

func (a *app) doctor(ctx context.Context, f *doctorFlags) error {
	all, found, err := a.examineAll(ctx)
	if err != nil {
		return err
	}
	first := all[0]
	found = append(found, checkTogether(all)...)
	found = append(found, checkFloor(all, notLookedAt(all))...)
	if f.backup > 0 {
		found = append(found, checkBackup(all, f.backup, time.Now())...)
	}
	found = append(found, first.members...)
	if f.database != "" || a.getenv("FENCED_DATABASE_URL") != "" {
		fences, err := a.checkDatabase(ctx, f.database, first.status, f.long)
		if err != nil {
			return err
		}
		found = append(found, fences...)
	}
	return a.printFindings(all, found)
}

func (a *app) printFindings(all []*patient, found []finding) error {
	if len(found) > 0 {
		a.exit = apierr.ExitConflict
	} else {
		found = []finding{}
	}
	missing := notLookedAt(all)
	if missing != "" && a.output == "json" {
		fmt.Fprintln(a.err, "fencectl: not looked at: "+safe(missing))
	}
	return a.print(found, func(t *table) {
		for _, p := range all {
			t.row("server", p.status.Name+" "+p.status.Version+", "+p.status.Mode)
		}
		if missing != "" {
			t.row("not looked at", missing)
		}
		if len(found) == 0 && missing != "" {
			t.row("nothing is wrong with what was looked at")
		} else if len(found) == 0 {
			t.row("nothing is wrong")
		}
		for _, f := range found {
			t.row("wrong", f.What)
			t.row("mend", f.Mend)
		}
	})
}
