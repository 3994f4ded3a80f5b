package lockserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fenced/fenced/internal/apierr"
)

// Member is one member of the store's cluster.
type Member struct {
	ID       string // 16 hex digits
	Name     string // "" until the member has started
	PeerURLs []string
	// Voter is false for a new member that has not caught up yet: it counts for no
	// quorum.
	Voter  bool
	Leader bool
}

// memberTimeout bounds a change of the members: it goes through the log.
const memberTimeout = 5 * time.Second

// managed refuses what only the operator of the store may do.
func (s *Server) managed() error {
	if s.config.Managed {
		return nil
	}
	return apierr.New(apierr.Forbidden, "the etcd cluster is not this deployment's own; use etcdctl")
}

// Snapshot writes a copy of the whole store to w, as fenced restore takes it. It
// blocks until all is written or ctx ends; what was written before an error is no
// snapshot. Errors: code forbidden on an external store, no_quorum, and those of w.
func (s *Server) Snapshot(ctx context.Context, w io.Writer) error {
	if err := s.managed(); err != nil {
		return err
	}
	r, err := s.store.client.Snapshot(ctx)
	if err != nil {
		return unavailable(err)
	}
	_, err = io.Copy(w, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// Members lists the members of the store's cluster. Errors: codes forbidden and
// no_quorum.
func (s *Server) Members(ctx context.Context) ([]Member, error) {
	if err := s.managed(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	resp, err := s.store.client.MemberList(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	status, err := s.store.client.Status(ctx, "")
	if err != nil {
		return nil, unavailable(err)
	}
	members := make([]Member, 0, len(resp.Members))
	for _, m := range resp.Members {
		members = append(members, Member{
			ID: memberID(m.ID), Name: m.Name, PeerURLs: m.PeerURLs, Voter: !m.IsLearner, Leader: m.ID == status.Leader,
		})
	}
	return members, nil
}

func memberID(id uint64) string { return fmt.Sprintf("%016x", id) }

// AddMember announces a new member by the URL at which the others will reach it.
// It votes once it has started and caught up, so an address that nobody starts
// costs no quorum. Errors: codes forbidden, malformed, no_quorum and
// outcome_unknown.
func (s *Server) AddMember(ctx context.Context, peerURL string) (Member, error) {
	if err := s.managed(); err != nil {
		return Member{}, err
	}
	if u, err := url.Parse(peerURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" {
		return Member{}, &apierr.Error{
			ErrCode: apierr.Malformed, Field: "peer_url", Limit: "http:// or https:// with a host and a port",
			Detail: "peer_url must be http:// or https:// with a host and a port",
		}
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	resp, err := s.store.client.MemberAddAsLearner(ctx, []string{peerURL})
	if err != nil {
		return Member{}, memberError(err)
	}
	return Member{ID: memberID(resp.Member.ID), PeerURLs: resp.Member.PeerURLs}, nil
}

// RemoveMember takes a member out for good; its data directory is worth nothing
// afterwards. Errors: codes forbidden, out_of_bounds for an id that is none or
// names no member, no_quorum and outcome_unknown.
func (s *Server) RemoveMember(ctx context.Context, id string) error {
	if err := s.managed(); err != nil {
		return err
	}
	n, err := strconv.ParseUint(id, 16, 64)
	if err != nil || len(id) != 16 {
		return apierr.Bounds("member", "an id of 16 hex digits that the list of members shows")
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	if _, err := s.store.client.MemberRemove(ctx, n); err != nil {
		return memberError(err)
	}
	return nil
}

// memberRefusals are etcd's refusals of a change, and what to answer.
var memberRefusals = []struct{ err, answer error }{
	{rpctypes.ErrMemberNotFound, apierr.Bounds("member", "the id of a member")},
	{rpctypes.ErrMemberExist, apierr.Bounds("peer_url", "one that no member has")},
	{rpctypes.ErrPeerURLExist, apierr.Bounds("peer_url", "one that no member has")},
	{rpctypes.ErrTooManyLearners, apierr.Bounds("peer_url", "added when the last new member has caught up or is removed")},
	{rpctypes.ErrUnhealthy, apierr.New(apierr.NoQuorum, "a member is down, or up for less than 5s; nothing happened")},
	{rpctypes.ErrMemberNotEnoughStarted, apierr.New(apierr.NoQuorum, "the rest would have no quorum; nothing happened")},
}

func memberError(err error) error {
	for _, r := range memberRefusals {
		if errors.Is(err, r.err) {
			return r.answer
		}
	}
	if refused(err) {
		return unavailable(err)
	}
	return outcomeUnknown(err)
}

// Compact drops the store's history up to now and returns the revision. The
// servers do it by themselves, little and often; this is for a store that is full.
// A watch that is behind reads anew. Errors: codes forbidden and no_quorum.
func (s *Server) Compact(ctx context.Context) (int64, error) {
	if err := s.managed(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	rev := s.mirrorRev()
	if _, err := s.store.client.Compact(ctx, rev); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return 0, unavailable(err)
	}
	return rev, nil
}
