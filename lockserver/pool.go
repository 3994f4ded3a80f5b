package lockserver

import "time"

const (
	// maxIdleLeases bounds the leases that wait for their next hold; the rest
	// lapse in the store by themselves, because a revoke costs more than it saves.
	maxIdleLeases = 1000
	// minLeaseLeft is what an idle lease must have left to be used again.
	minLeaseLeft = 2 * time.Second
)

// pool keeps leases whose holds are gone for reuse: granting one is a write to
// the log, renewing one is not. It is last-in first-out, so the leases at the
// bottom lapse when load falls. The server's mutex guards it.
type pool struct {
	idle map[time.Duration][]lease // by TTL as granted
	size int
}

// put takes a lease that certainly nothing is attached to and no call is open on.
func (p *pool) put(l lease) {
	if p.idle == nil {
		p.idle = make(map[time.Duration][]lease)
	}
	if p.size == maxIdleLeases {
		p.drop(time.Now())
	}
	if p.size < maxIdleLeases {
		p.idle[l.TTL] = append(p.idle[l.TTL], l)
		p.size++
	}
}

// take returns the lease of at least ttl that was used last, if one has enough
// time left to be renewed. The caller must renew it before it relies on it.
func (p *pool) take(ttl time.Duration, now time.Time) (lease, bool) {
	stack := p.idle[ttl]
	if len(stack) == 0 {
		return lease{}, false
	}
	l := stack[len(stack)-1]
	if l.left(now) < minLeaseLeft {
		// Everything below it is older still.
		p.size -= len(stack)
		delete(p.idle, ttl)
		return lease{}, false
	}
	p.idle[ttl] = stack[:len(stack)-1]
	p.size--
	return l, true
}

// drop forgets the leases that lapse soon.
func (p *pool) drop(now time.Time) {
	for ttl, stack := range p.idle {
		kept := stack[:0]
		for _, l := range stack {
			if l.left(now) >= minLeaseLeft {
				kept = append(kept, l)
			}
		}
		p.size -= len(stack) - len(kept)
		p.idle[ttl] = kept
	}
}
