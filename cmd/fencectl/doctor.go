package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/clientsdk"
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
	// longestLag is how long a healthy server may not have heard from its store.
	longestLag = 2 * time.Second
)

func (a *app) doctorCommand() *cobra.Command {
	var url string
	var long time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with the server, and with the fences in a database",
		Long: `Look for what is wrong with the server: whether it can grant and has a quorum, its
token floor, its clock and its members; and, where a database is named, with
the fences there: protected tables whose guard trigger is gone or disabled, fence columns
that a role may write by itself, fences above every token that the server can have issued
(one of the two was restored), and transactions that have held guards for long.

Each finding comes with what mends it. Any finding exits with 78. What the server does
not tell, the space on its disk and the age of its backups, is not looked at. Connect to
the database as a superuser or a member of fence_owner: others do not see everything.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.doctor(cmd.Context(), url, long)
		},
	}
	databaseFlag(cmd, &url)
	cmd.Flags().DurationVar(&long, "long", 30*time.Second, "for how long a transaction may hold a guard")
	return cmd
}

func (a *app) doctor(ctx context.Context, url string, long time.Duration) error {
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	clock := &serverClock{base: base}
	c, err := a.client(func(cfg *clientsdk.Config) { cfg.HTTPClient = &http.Client{Transport: clock} })
	if err != nil {
		return err
	}
	defer c.Close()
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	found := append(checkServer(st), clock.check()...)
	members, err := checkMembers(ctx, c)
	if err != nil {
		return err
	}
	found = append(found, members...)
	if url != "" || a.getenv("FENCED_DATABASE_URL") != "" {
		fences, err := a.checkDatabase(ctx, url, st, long)
		if err != nil {
			return err
		}
		found = append(found, fences...)
	}
	return a.printFindings(st, found)
}

func (a *app) printFindings(st *clientsdk.Status, found []finding) error {
	if len(found) > 0 {
		a.exit = apierr.ExitConflict
	} else {
		found = []finding{}
	}
	return a.print(found, func(t *table) {
		t.row("server", st.Name+" "+st.Version+", "+st.Mode)
		if len(found) == 0 {
			t.row("nothing is wrong")
		}
		for _, f := range found {
			t.row("wrong", f.What)
			t.row("mend", f.Mend)
		}
	})
}

// checkServer judges what a server says of itself.
func checkServer(st *clientsdk.Status) (found []finding) {
	lag := time.Duration(st.LagMS) * time.Millisecond
	switch {
	case st.Floor == "closed":
		found = append(found, finding{"granting is closed: the store is older than the tokens it has issued", "fencectl floor raise"})
	case !st.Ready:
		found = append(found, finding{"the server cannot grant: " + st.NotReady, "see that more than half of the members run: fencectl members"})
	case lag > longestLag:
		found = append(found, finding{"the server has not heard from its store for " + lag.String(), "see its log and the network to the leader: fencectl members"})
	}
	if st.Floor == "unprotected" {
		found = append(found, finding{"no issued-token file guards against a store that is rolled back", "start the server with --issued-file on a disk that is not restored with the store"})
	}
	return found
}

// checkMembers looks for members without a vote. A store of its own is somebody
// else's to look after, and so is everything where the key may not ask.
func checkMembers(ctx context.Context, c *clientsdk.Client) (found []finding, err error) {
	all, err := c.Members(ctx)
	switch apierr.CodeOf(err) {
	case "":
	case apierr.Forbidden:
		return nil, nil
	default:
		return nil, err
	}
	voters := 0
	for _, m := range all {
		if m.Voter {
			voters++
		} else {
			found = append(found, finding{"member " + m.ID + " has no vote yet", "start its server, or: fencectl members remove " + m.ID})
		}
	}
	if voters == 2 {
		found = append(found, finding{"a cluster of two stops when either member does", "fencectl members add PEER_URL"})
	}
	return found, nil
}

// serverClock compares the Date of each answer with the clock here.
type serverClock struct {
	base http.RoundTripper

	mu     sync.Mutex
	offset time.Duration // of the server, 0 within what the header can tell
	known  bool
}

// RoundTrip implements http.RoundTripper.
func (s *serverClock) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	resp, err := s.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if date, parseErr := http.ParseTime(resp.Header.Get("Date")); parseErr == nil {
		s.mu.Lock()
		s.offset, s.known = offset(date, sent, time.Now()), true
		s.mu.Unlock()
	}
	return resp, nil
}

// offset is how far a clock that showed date at some time between sent and received is
// off for certain. The header has whole seconds, cut off.
func offset(date, sent, received time.Time) time.Duration {
	switch latest := date.Add(time.Second); {
	case date.After(received):
		return date.Sub(received)
	case latest.Before(sent):
		return latest.Sub(sent)
	}
	return 0
}

func (s *serverClock) check() []finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || s.offset.Abs() <= longestOffset {
		return nil
	}
	return []finding{{"the server's clock is off from the one here by " + s.offset.Round(time.Second).String(), "see that both machines keep time: timedatectl status"}}
}
