package embedded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/pkg/v3/featuregate"
	"go.etcd.io/etcd/server/v3/embed"
)

// Cluster makes a node a member of a cluster of 3 or 5.
type Cluster struct {
	// Name is this member's name in Initial. Required.
	Name string
	// Initial lists all members, this one too, with the URLs by which the others
	// reach them: "n1=http://10.0.0.1:7421,n2=...". It is read on the first start
	// only; afterwards the members are what the log says. Required.
	Initial string
	// Listen is the URL of an IP address and port where the others are awaited.
	// Defaults to this member's URL in Initial.
	Listen string
	// Existing says that the member was added to a running cluster: it joins and
	// makes none. Then Initial may have any number of members.
	Existing bool
	// TLS secures the traffic between members both ways; the URLs are https then.
	TLS PeerTLS
	// Insecure allows peers without TLS on addresses that other machines can reach.
	// Whoever reaches them can read and write the store.
	Insecure bool
	_        struct{}
}

// PeerTLS names the files of a member's certificate. All three or none are set:
// a peer without a certificate of the same CA is refused.
type PeerTLS struct {
	Cert, Key, CA string
}

// apply checks the cluster and writes it into etcd's config.
func (k *Cluster) apply(c *embed.Config) error {
	members, err := k.members()
	if err != nil {
		return fmt.Errorf("embedded: Cluster.%w", err)
	}
	advertise := members[k.Name]
	listen := advertise
	if k.Listen != "" {
		if listen, err = peerURL(k.Listen); err != nil {
			return fmt.Errorf("embedded: Cluster.Listen: %w", err)
		}
	}
	urls := []*url.URL{listen}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		urls = append(urls, members[name])
	}
	if err := k.checkTLS(urls); err != nil {
		return fmt.Errorf("embedded: Cluster.%w", err)
	}
	c.Name, c.InitialCluster = k.Name, k.Initial
	c.AdvertisePeerUrls, c.ListenPeerUrls = []url.URL{*advertise}, []url.URL{*listen}
	c.TickMs, c.ElectionMs = clusterTick, clusterElection
	if k.Existing {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	if k.TLS != (PeerTLS{}) {
		c.PeerTLSInfo = transport.TLSInfo{
			CertFile: k.TLS.Cert, KeyFile: k.TLS.Key, TrustedCAFile: k.TLS.CA, ClientCertAuth: true,
		}
	}
	// A member whose data differs from the others' does not start; one that begins
	// to differ stops all writes of the cluster with the alarm CORRUPT.
	return c.ServerFeatureGate.(featuregate.MutableFeatureGate).Set("InitialCorruptCheck=true,CompactHashCheck=true")
}

// members parses Initial.
func (k *Cluster) members() (map[string]*url.URL, error) {
	members := make(map[string]*url.URL)
	for entry := range strings.SplitSeq(k.Initial, ",") {
		name, text, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("Initial: %q is not name=url", entry)
		}
		u, err := peerURL(text)
		if err != nil {
			return nil, fmt.Errorf("Initial: member %s: %w", name, err)
		}
		if members[name] != nil {
			return nil, fmt.Errorf("Initial: member %s is listed twice", name)
		}
		members[name] = u
	}
	switch n := len(members); {
	case members[k.Name] == nil:
		return nil, fmt.Errorf("Name: %q is no member of Initial", k.Name)
	case !k.Existing && n != 3 && n != 5:
		return nil, fmt.Errorf("Initial: %d members; a new cluster has 3 or 5", n)
	}
	return members, nil
}

func peerURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%q must start with http:// or https://", text)
	case u.Port() == "" || u.Hostname() == "":
		return nil, fmt.Errorf("%q must have a host and a port", text)
	case strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "":
		return nil, fmt.Errorf("%q must have nothing after the port", text)
	}
	return u, nil
}

// checkTLS refuses peers that other machines can reach without TLS.
func (k *Cluster) checkTLS(urls []*url.URL) error {
	secured := k.TLS != (PeerTLS{})
	if secured && (k.TLS.Cert == "" || k.TLS.Key == "" || k.TLS.CA == "") {
		return errors.New("TLS: cert, key and ca must be given together")
	}
	for _, u := range urls {
		switch {
		case secured && u.Scheme != "https":
			return fmt.Errorf("TLS: %s is not https", u)
		case !secured && u.Scheme == "https":
			return fmt.Errorf("TLS: %s needs cert, key and ca", u)
		case !secured && !k.Insecure && !loopback(u.Hostname()):
			return fmt.Errorf("TLS: %s is open to other machines; give cert, key and ca, or allow insecure peers", u)
		}
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Leader reports whether the cluster has a leader as far as this node knows, and
// whether it is this node. A node that is alone leads.
func (n *Node) Leader() (known, self bool) {
	leader := n.etcd.Server.Leader()
	return leader != 0, leader == n.etcd.Server.MemberID()
}

// MemberID returns this node's id as etcd's logs show it.
func (n *Node) MemberID() string { return n.etcd.Server.MemberID().String() }

// Promote makes voters of the learners that have caught up. It does nothing on a
// node that does not lead.
func (n *Node) Promote(ctx context.Context) error {
	if _, self := n.Leader(); !self {
		return nil
	}
	resp, err := n.client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("embedded: list members: %w", err)
	}
	for _, m := range resp.Members {
		if !m.IsLearner {
			continue
		}
		_, err := n.client.MemberPromote(ctx, m.ID)
		if err != nil && !errors.Is(err, rpctypes.ErrMemberLearnerNotReady) && !errors.Is(err, rpctypes.ErrUnhealthy) {
			return fmt.Errorf("embedded: promote member %x: %w", m.ID, err)
		}
	}
	return nil
}
