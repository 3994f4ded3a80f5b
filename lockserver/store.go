package lockserver

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/apierr"
)

// How long a call to the store may take before its outcome counts as unknown.
// A keep-alive is short: a grant must not wait long for a quorum.
const (
	writeTimeout = 5 * time.Second
	leaseTimeout = 2 * time.Second
)

// lease is a lease of the store as this server knows it: Sent is the sending of
// the last grant or keep-alive that was confirmed.
type lease struct {
	ID   clientv3.LeaseID
	TTL  time.Duration // as the store granted it
	Sent time.Time
}

// left returns how long the lease lives for certain.
func (l lease) left(now time.Time) time.Duration { return l.Sent.Add(l.TTL).Sub(now) }

// leaseTTL returns the lease that stands behind a hold of ttl: long enough that
// the store acts only when this server is gone.
func leaseTTL(ttl time.Duration) time.Duration {
	return (ttl + time.Second - 1).Truncate(time.Second) + 5*time.Second
}

// errLeaseGone says that the store does not know the lease.
var errLeaseGone = errors.New("lease is gone")

// store is the etcd client with the few calls that the engine makes.
type store struct {
	client *clientv3.Client
}

// grantLease makes a lease; the store may give a longer one than was asked.
func (s store) grantLease(ctx context.Context, ttl time.Duration) (lease, error) {
	call, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	sent := time.Now()
	resp, err := s.client.Grant(call, int64(ttl/time.Second))
	if err != nil {
		return lease{}, unanswered(ctx, err)
	}
	return lease{ID: resp.ID, TTL: time.Duration(resp.TTL) * time.Second, Sent: sent}, nil
}

// keepAlive renews a lease. Only a leader with a recent quorum answers it, so it
// is also the proof of recent contact that a grant needs.
func (s store) keepAlive(ctx context.Context, l lease) (lease, error) {
	call, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	sent := time.Now()
	resp, err := s.client.KeepAliveOnce(call, l.ID)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return l, errLeaseGone
	case err != nil:
		return l, unanswered(ctx, err)
	case resp.TTL <= 0:
		return l, errLeaseGone
	}
	return lease{ID: l.ID, TTL: time.Duration(resp.TTL) * time.Second, Sent: sent}, nil
}

// renewal is what the store tells of a lease: between which times it was renewed last, or
// errLeaseGone.
type renewal struct {
	first, last time.Time
	err         error
}

// renewed asks one member for a renewal; see [Server.renewals]. The member tells whole
// seconds that are rounded down, and counts them at some time before its answer came.
func (s store) renewed(ctx context.Context, id clientv3.LeaseID) renewal {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	sent := time.Now()
	resp, err := s.client.TimeToLive(ctx, id)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return renewal{err: errLeaseGone}
	case err != nil:
		return renewal{err: unavailable(err)}
	case resp.TTL <= 0:
		return renewal{err: errLeaseGone}
	}
	ago := time.Duration(resp.GrantedTTL-resp.TTL) * time.Second // rounded up
	return renewal{first: sent.Add(-ago), last: time.Now().Add(time.Second - ago)}
}

// renewals asks when leases were renewed last, between two reads that a quorum has
// confirmed. A member that led when it was paused answers from its memory as it wakes
// up, though the leases may have been renewed through a new leader: only where both
// reads are of one term has nobody else led meanwhile. Else nothing is known.
func (s *Server) renewals(ctx context.Context, ids ...clientv3.LeaseID) []renewal {
	told := make([]renewal, len(ids))
	_, before, err := s.readQuorum(ctx)
	if err == nil {
		for i, id := range ids {
			told[i] = s.store.renewed(ctx, id)
		}
		var after uint64
		if _, after, err = s.readQuorum(ctx); err == nil && after != before {
			err = errors.New("the store has another leader now")
		}
	}
	if err != nil {
		for i := range told {
			told[i] = renewal{err: unavailable(err)}
		}
	}
	return told
}

// refusals are errors after which certainly nothing was applied. Any other error
// of a write, NOSPACE among them, leaves its outcome unknown.
var refusals = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge,
	rpctypes.ErrDuplicateKey, rpctypes.ErrTooManyRequests, rpctypes.ErrPermissionDenied,
	rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
}

// refused reports whether a write that ended in err was cleanly refused.
func refused(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

// unanswered tells a caller who has left from a store that does not answer.
func unanswered(caller context.Context, err error) error {
	if caller.Err() != nil {
		return context.Cause(caller)
	}
	return unavailable(err)
}

// unavailable wraps an error of a call that changed nothing that matters.
func unavailable(err error) error {
	return &apierr.Error{
		ErrCode: apierr.NoQuorum, Cause: err, RetryAfter: time.Second,
		Detail: "the store did not answer in time; nothing happened",
	}
}

// outcomeUnknown wraps an error of a write that may have taken effect.
func outcomeUnknown(err error) error {
	return &apierr.Error{
		ErrCode: apierr.OutcomeUnknown, Cause: err, RetryAfter: time.Second,
		Detail: "the call may have taken effect; repeat it with the same Idempotency-Key",
	}
}

func behind() error {
	return &apierr.Error{
		ErrCode: apierr.Behind, RetryAfter: time.Second,
		Detail: "this server has not caught up with the store within 1s",
	}
}

func shuttingDown() error {
	return &apierr.Error{
		ErrCode: apierr.ShuttingDown, RetryAfter: time.Second,
		Detail: "the server is shutting down; places in queues stay",
	}
}
