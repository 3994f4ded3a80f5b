package httpapi

import (
	"context"
	"time"

	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

// Engine is what the service needs of the lock engine; *lockserver.Server is one.
type Engine interface {
	HoldService
	SessionService
	LockService
	AdminService
	EventService
	UpkeepService
}

// HoldService makes and keeps holds.
type HoldService interface {
	Acquire(ctx context.Context, req lockserver.AcquireRequest) (*lockserver.Hold, error)
	Hold(ctx context.Context, id string) (*lockserver.Hold, error)
	AwaitHold(ctx context.Context, id string, wait time.Duration) (*lockserver.Hold, error)
	Renew(ctx context.Context, id string) (*lockserver.Hold, error)
	Release(ctx context.Context, id string) error
}

// SessionService makes and keeps sessions.
type SessionService interface {
	CreateSession(ctx context.Context, owner string, ttl time.Duration) (*lockserver.Session, error)
	RenewSession(ctx context.Context, id string) (*lockserver.Session, error)
	Session(ctx context.Context, id string) (*lockserver.Session, error)
	AwaitSession(ctx context.Context, id string, wait time.Duration) (*lockserver.Session, error)
	EndSession(ctx context.Context, id string) error
	Sessions(ctx context.Context) ([]lockserver.Session, error)
}

// LockService shows and breaks locks.
type LockService interface {
	Lock(ctx context.Context, name string) (*lockserver.LockInfo, error)
	Locks(ctx context.Context, q lockserver.LocksQuery) (*lockserver.LockPage, error)
	Check(ctx context.Context, pairs []lockserver.Pair) ([]lockserver.CheckResult, error)
	Break(ctx context.Context, req lockserver.BreakRequest) (*lockserver.Ended, error)
}

// AdminService describes the server and raises the token floor.
type AdminService interface {
	Ready() error
	Status(ctx context.Context) (lockserver.Status, error)
	RaiseFloor(ctx context.Context, above tokens.Token) (base int64, err error)
}

// EventService tells what happens to holds.
type EventService interface {
	Subscribe(ctx context.Context, prefix string, after *lockserver.EventID) (*lockserver.Subscription, error)
}
