package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/etcdversion"
)

// patient is one server, and what was seen of it.
type patient struct {
	endpoint string
	status   *clientsdk.Status
	cluster  []clientsdk.Member // empty where it did not tell
	members  []finding          // of its cluster
}

// visit is what the look at one server has brought.
type visit struct {
	*patient
	found []finding
	err   error
}

// examineAll looks at each server that is named, at all of them at once: one that does
// not answer takes its time. It is a finding where another does.
func (a *app) examineAll(ctx context.Context) (all []*patient, found []finding, err error) {
	endpoints, err := a.endpoints()
	if err != nil {
		return nil, nil, err
	}
	visits := make([]visit, len(endpoints))
	var under sync.WaitGroup
	for i, endpoint := range endpoints {
		under.Go(func() { visits[i] = a.examine(ctx, endpoint) })
	}
	under.Wait()
	var errs []error
	for i, v := range visits {
		switch {
		case errors.Is(v.err, clientsdk.ErrUnavailable) && len(endpoints) > 1:
			errs = append(errs, v.err)
			found = append(found, finding{"no server answers at " + endpoints[i] + ": " + oneLine(v.err.Error()), startAgain})
			continue
		case v.err != nil:
			return nil, nil, v.err
		}
		all = append(all, v.patient)
		for _, f := range v.found {
			if len(endpoints) > 1 {
				f.What = v.status.Name + ": " + f.What
			}
			found = append(found, f)
		}
	}
	if len(all) == 0 {
		return nil, nil, errs[0]
	}
	return all, found, nil
}

// startAgain is the cure of a server that is down. Where the data of one member alone was
// put back to an older state, etcd ends at once.
const startAgain = `start it on its machine: fenced serve; where it ends again, its log says why: after "tocommit ... is out of range" ` +
	"its data is older than what it has promised the others: fencectl members remove ID, then fencectl members add PEER_URL and an empty data directory"

// endpoints are the servers that are named, one at least.
func (a *app) endpoints() ([]string, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	all, err := t.tls.endpoints(t.addr)
	if err == nil && len(all) == 0 {
		all = []string{clientsdk.DefaultEndpoint}
	}
	return all, err
}

func (a *app) examine(ctx context.Context, endpoint string) visit {
	clock := &serverClock{}
	c, err := a.client(func(cfg *clientsdk.Config) {
		cfg.Endpoints = []string{endpoint}
		clock.base = transport(cfg.TLS)
		cfg.HTTPClient, cfg.TLS = &http.Client{Transport: clock}, nil
	})
	if err != nil {
		return visit{err: err}
	}
	defer clock.base.CloseIdleConnections()
	defer c.Close()
	p := &patient{endpoint: endpoint}
	if p.status, err = c.Status(ctx); err != nil {
		return visit{err: err}
	}
	found := append(checkServer(p.status, endpoint), clock.check()...)
	if p.status.Ready { // the list needs a quorum
		p.cluster, p.members, err = checkMembers(ctx, c)
	}
	return visit{p, found, err}
}

func transport(secured *tls.Config) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = secured
	return t
}

// checkServer judges what a server says of itself.
func checkServer(st *clientsdk.Status, endpoint string) (found []finding) {
	found = append(found, checkGrants(st)...)
	found = append(found, checkVersion(st.Version, version)...)
	if etcd := st.Store.EtcdVersion; etcd != "" {
		if err := etcdversion.Check(etcd); err != nil {
			found = append(found, finding{"etcd's " + err.Error(), "upgrade etcd, one member after the other"})
		}
	}
	return append(found, checkDisk(st, endpoint)...)
}

// checkVersion compares a server's version with that of this fencectl. Two builds of one
// tree have two versions where make has built the one and go run the other, so that only
// those of releases say something.
func checkVersion(server, own string) []finding {
	if server == own || !released(server) || !released(own) {
		return nil
	}
	return []finding{{"the server is of version " + server + " and this fencectl of " + own,
		"use the fencectl of " + server + ", or upgrade the server: see fencectl version"}}
}

// releaseVersion has no second hyphen: git describe gives that to a commit after a tag.
var releaseVersion = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`)

func released(version string) bool {
	return releaseVersion.MatchString(version) && !strings.HasSuffix(version, "-dirty")
}

// checkGrants asks whether the server can grant, and will go on to.
func checkGrants(st *clientsdk.Status) (found []finding) {
	lag := time.Duration(st.LagMS) * time.Millisecond
	switch {
	case st.Floor == "closed":
		found = append(found, finding{"granting is closed: the store is older than the tokens it has issued", "fencectl floor raise"})
	case !st.Ready:
		found = append(found, finding{"the server cannot grant: " + st.NotReady + quorumOf(st),
			"start the members that are down, more than half must run; ask each server by itself: fencectl status --addr URL"})
	case lag > longestLag:
		found = append(found, finding{"the server is behind its store: an answer has waited for " + lag.String(), "see its log and the network to the leader: fencectl members"})
	}
	return found
}

// checkFloor asks whether any server knows that the store was not rolled back. One that
// does tells the others, whatever happened to their own data: the floor is fine then.
// Where none does, only people can know.
func checkFloor(all []*patient, missing string) []finding {
	var unprotected, protected []string
	for _, p := range all {
		switch p.status.Floor {
		case "unprotected":
			unprotected = append(unprotected, p.status.Name)
		case "protected":
			protected = append(protected, p.status.Name)
		}
	}
	names := strings.Join(unprotected, ", ")
	switch {
	case len(unprotected) == 0:
		return nil
	case len(protected) > 0:
		return []finding{{names + ": no issued-token file was there when the server met its store, and " + strings.Join(protected, ", ") + " has not vouched for that yet",
			"look again in a minute; if it stays, " + protected[0] + " is of a version that does not vouch: restart " + unprotected[0] + " once"}}
	case missing != "":
		return []finding{{names + ": no issued-token file was there when the server met its store: it cannot know whether that was rolled back before, and not looked at is " + missing,
			"look at all servers together, one that has its file vouches for the store; if none has: fencectl floor raise --above N, " + highestSeen}}
	}
	return []finding{{names + ": no issued-token file was there when the server met its store, and no server knows whether that was rolled back before",
		"fencectl floor raise --above N, " + highestSeen + "; only if the store was certainly not restored: restart " + unprotected[0] + " once, its file is beside --data-dir now"}}
}

const highestSeen = "with the highest token that any database has seen"

func quorumOf(st *clientsdk.Status) string {
	if st.Store.Members > 0 && st.Leader == "" {
		return fmt.Sprintf("; its store of %d members has no leader", st.Store.Members)
	}
	return ""
}

// checkDisk looks at the store's size and at the room beside it.
func checkDisk(st *clientsdk.Status, endpoint string) (found []finding) {
	s, compact := st.Store, "fencectl compact --addr "+endpoint
	full := slices.ContainsFunc(s.Faults, func(f string) bool { return strings.Contains(f, "NOSPACE") })
	switch {
	case full:
		found = append(found, finding{"the store is full and takes no new holds (alarm NOSPACE)", compact})
	case s.QuotaBytes > 0 && s.Bytes > s.QuotaBytes/100*fullPercent:
		found = append(found, finding{fmt.Sprintf("the store's file has %s of the %s that it may have", size(s.Bytes), size(s.QuotaBytes)), compact})
	}
	if s.DiskFree != nil && *s.DiskFree < leastFree {
		found = append(found, finding{fmt.Sprintf("the disk of the data directory has %s left: a full one ends the server", size(*s.DiskFree)),
			"make room on it: df -h, on the machine of " + endpoint})
	}
	for _, fault := range s.Faults {
		if strings.Contains(fault, "CORRUPT") {
			found = append(found, finding{"the data of a member differs from the others': " + fault,
				"find it in the servers' logs, and replace it: fencectl members remove ID, then fencectl members add PEER_URL"})
		}
	}
	return found
}

// checkTogether compares the servers with each other.
func checkTogether(all []*patient) []finding {
	for _, p := range all[1:] {
		switch st, first := p.status, all[0].status; {
		case st.Cluster != first.Cluster:
			return []finding{{st.Name + " and " + first.Name + " are of two deployments: a lock of one is free on the other",
				"name the servers of one deployment only, with --addr or in the context"}}
		case st.Version != first.Version:
			return []finding{{st.Name + " is of version " + st.Version + " and " + first.Name + " of " + first.Version,
				"bring all servers to one version, one after the other"}}
		}
	}
	return nil
}

// checkBackup wants one of the servers to have sent a snapshot not long ago. Who keeps
// an etcd of his own backs it up himself.
func checkBackup(all []*patient, oldest time.Duration, now time.Time) []finding {
	var newest time.Time
	for _, p := range all {
		if p.status.Mode == "external" {
			return nil
		}
		if at := p.status.Store.LastBackup; at != nil && at.After(newest) {
			newest = *at
		}
	}
	const mend = "fencectl snapshot save FILE"
	switch age := now.Sub(newest); {
	case newest.IsZero():
		return []finding{{"no backup is known", mend}}
	case age > oldest:
		return []finding{{"the last backup is " + short(age) + " old", mend}}
	}
	return nil
}

// checkMembers looks for members without a vote. A store of its own is somebody
// else's to look after, and so is everything where the key may not ask.
func checkMembers(ctx context.Context, c *clientsdk.Client) (all []clientsdk.Member, found []finding, err error) {
	all, err = c.Members(ctx)
	switch apierr.CodeOf(err) {
	case "":
	case apierr.Forbidden:
		return nil, nil, nil
	default:
		return nil, nil, err
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
	return all, found, nil
}

// notLookedAt says how many members of the cluster none of the servers stands for, and
// which, where that is known; empty where there are none. The members of an external
// etcd are no servers of ours.
func notLookedAt(all []*patient) string {
	if all[0].status.Mode != "cluster" {
		return ""
	}
	seen, total := map[string]bool{}, 0
	var members []clientsdk.Member
	for _, p := range all {
		seen[p.status.Name] = true
		total = max(total, p.status.Store.Members)
		if len(p.cluster) > 0 {
			members = p.cluster
		}
	}
	missing := total - len(seen)
	if missing <= 0 {
		return ""
	}
	var names []string
	for _, m := range members {
		if m.Name != "" && !seen[m.Name] {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	which := ""
	if len(names) > 0 {
		which = " (" + strings.Join(names, ", ") + ")"
	}
	return fmt.Sprintf("%d of the %d members%s: name their servers with --addr as well, any of them may be down", missing, total, which)
}

// serverClock compares the Date of each answer with the clock here.
type serverClock struct {
	base *http.Transport

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
