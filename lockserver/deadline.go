package lockserver

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A server knows the deadlines of the holds and sessions that it has granted or renewed
// itself. Where servers share the store, one of the others may have renewed them since,
// so only the store can tell that a deadline which has passed here is the last one. It is
// asked before the renewal, of which it knows afterwards, and so also about a deadline
// that may pass while the renewal is under way.

// unexpired refuses a hold that is past its deadline. unknown says that the store is
// asked too about one with a lease of its own whose deadline this server does not know:
// a place in the queue has none.
func (s *Server) unexpired(ctx context.Context, l *local, unknown bool) error {
	var alive bool
	var err error
	if l.session != nil {
		alive, err = s.sessionAlive(ctx, l.session)
	} else {
		alive, err = s.holdAlive(ctx, l, unknown)
	}
	if err == nil && !alive {
		err = &GoneError{Ref: refText(l.hold.Ref), End: Expired}
	}
	return err
}

// holdAlive reports whether a hold with a lease of its own is within its deadline, after
// it has learnt a later one from the store.
func (s *Server) holdAlive(ctx context.Context, l *local, unknown bool) (bool, error) {
	s.mu.Lock()
	now := time.Now()
	known, overdue, leased := l.place.Answered, s.overdueLocked(l, now), l.lease.ID
	near := s.overdueLocked(l, now.Add(nearFor(l.hold.TTL)))
	s.mu.Unlock()
	if s.config.Alone || !near && (known || !unknown) {
		return !overdue, nil
	}
	latest, err := s.latestDeadline(ctx, leased, l.hold.TTL)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.place.Answered && latest.After(l.place.Deadline) {
		l.place.Deadline = latest
	}
	return time.Now().Before(latest), err
}

// sessionAlive is holdAlive for a session, which always has a deadline.
func (s *Server) sessionAlive(ctx context.Context, o *session) (bool, error) {
	s.mu.Lock()
	now := time.Now()
	known, overdue, leased := !o.deadline.IsZero(), o.overdue(now), o.lease.ID
	near := o.overdue(now.Add(nearFor(o.ttl)))
	s.mu.Unlock()
	if s.config.Alone || known && !near {
		return !overdue, nil
	}
	latest, err := s.latestDeadline(ctx, leased, o.ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	if latest.After(o.deadline) {
		o.deadline = latest
	}
	return time.Now().Before(latest), err
}

// nearFor returns how close to its deadline the renewal of what has a TTL may be passed by
// it. One that takes longer is of a store that is no store to hold from.
func nearFor(ttl time.Duration) time.Duration { return min(leaseTimeout, ttl/3) }

// latestDeadline returns when what stands on a lease ends at the latest, as the store
// knows of its renewals: it tells whole seconds, so up to one too late. It is the zero
// time where the lease is gone.
func (s *Server) latestDeadline(ctx context.Context, id clientv3.LeaseID, ttl time.Duration) (time.Time, error) {
	told := s.renewals(ctx, id)[0]
	switch {
	case errors.Is(told.err, errLeaseGone):
		return time.Time{}, nil
	case told.err != nil:
		return time.Time{}, told.err
	}
	return told.last.Add(ttl), nil
}
