package lab

import (
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
	"github.com/fenced/fenced/examples/racelab/internal/lock"
)

// A Way is a way of locking, by the name it has in the JSON.
type Way string

// The ways, in the order of the table.
const (
	None            Way = "none"
	Redis           Way = "redis"
	Redlock         Way = "redlock"
	EtcdMutex       Way = "etcd_mutex"
	FencedUnguarded Way = "fenced_unguarded"
	FencedGuard     Way = "fenced_guard"
	FencedColumn    Way = "fenced_column"
	// RedlockRestart is Redlock while two servers are unreachable for a moment and a
	// third comes back without its data. It stands beside the seven.
	RedlockRestart Way = "redlock_restart"
)

// Ways returns the seven ways of the table.
func Ways() []Way {
	return []Way{None, Redis, Redlock, EtcdMutex, FencedUnguarded, FencedGuard, FencedColumn}
}

var titles = map[Way]string{
	None: "no lock", Redis: "Redis SET NX PX", Redlock: "Redlock, 5 Redis", RedlockRestart: "Redlock, one restarted empty",
	EtcdMutex: "etcd mutex", FencedUnguarded: "fenced, lock only",
	FencedGuard: "fenced + guard table", FencedColumn: "fenced + column",
}

// Title is the way's name for people.
func (w Way) Title() string { return titles[w] }

// Fenced reports whether the way uses fencing tokens, and so must let nothing
// through.
func (w Way) Fenced() bool { return w == FencedGuard || w == FencedColumn }

// exclusive reports whether the store of the way's locks ends a lease before it grants the
// lock again. Of five servers that lose data no one can, and that is what Redlock's rows
// count.
func (w Way) exclusive() bool { return w != None && w != Redlock && w != RedlockRestart }

func (w Way) needsRedis() bool { return w == Redis || w == Redlock || w == RedlockRestart }

// guard returns what stands between the worker and the tables.
func (w Way) guard() ledger.Guard {
	switch w {
	case FencedGuard:
		return ledger.Central{}
	case FencedColumn:
		return ledger.Column{}
	}
	return ledger.Unguarded{}
}

// Endpoints are the addresses of everything that a worker talks to.
type Endpoints struct {
	DSN, Redis   string
	Redlock      []string
	Etcd, Fenced string
}

func (e Endpoints) maker(w Way, ttl time.Duration) lock.Maker {
	switch w {
	case Redis:
		return lock.Redis(e.Redis, ttl)
	case Redlock, RedlockRestart:
		return lock.Redlock(e.Redlock, ttl)
	case EtcdMutex:
		return lock.EtcdMutex(e.Etcd, ttl)
	case FencedUnguarded, FencedGuard, FencedColumn:
		return lock.Fenced(e.Fenced, ttl)
	}
	return lock.None
}
