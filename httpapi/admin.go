package httpapi

import (
	"context"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// admin serves what concerns the server and not one lock.
type admin struct {
	engine               AdminService
	version, build, mode string
	store                func(context.Context) StoreState
}

func (s admin) routes(a *api) {
	handle(a, statusOp, s.status)
	handle(a, whoamiOp, whoami)
	handle(a, raiseFloorOp, s.raiseFloor)
	handle(a, healthOp, s.health)
	handle(a, readyOp, s.ready)
}

// health says that the process answers, and nothing about the store: whoever
// restarts a server for a store without a quorum makes matters worse.
func (s admin) health(context.Context, *call, *none) (*wire.Health, error) {
	return &wire.Health{Status: "ok"}, nil
}

func (s admin) ready(context.Context, *call, *none) (*wire.Health, error) {
	if err := s.engine.Ready(); err != nil {
		return nil, err
	}
	return &wire.Health{Status: "ok"}, nil
}

func (s admin) status(ctx context.Context, _ *call, _ *none) (*wire.Status, error) {
	st, err := s.engine.Status(ctx)
	if err != nil {
		return nil, err
	}
	out := s.wireStatus(&st)
	s.store(ctx).describe(out)
	if err := s.engine.Ready(); err != nil {
		out.NotReady = string(apierr.CodeOf(err))
	} else {
		out.Ready = true
	}
	return out, nil
}

// whoami tells a caller what it may do, so that a page offers nothing else.
func whoami(_ context.Context, c *call, _ *none) (*wire.Caller, error) {
	out := &wire.Caller{Name: c.who(), Grants: []wire.Grant{}}
	if c.key == nil {
		out.Grants = append(out.Grants, wire.Grant{Role: keys.Admin.String(), Prefixes: []string{""}})
		return out, nil
	}
	out.Key = c.key.ID
	for _, g := range c.key.Grants {
		out.Grants = append(out.Grants, wire.Grant{Role: g.Role.String(), Prefixes: g.Prefixes})
	}
	return out, nil
}

func (s admin) wireStatus(st *lockserver.Status) *wire.Status {
	return &wire.Status{
		Name:         st.Name,
		Version:      s.version,
		Build:        s.build,
		Mode:         s.mode,
		Cluster:      st.Cluster,
		Revision:     st.Revision,
		Base:         st.Base,
		Highest:      st.Highest,
		LagMS:        st.Lag.Milliseconds(),
		Holds:        st.Holds,
		Waiters:      st.Waiters,
		Locks:        st.Locks,
		Sessions:     st.Sessions,
		Floor:        st.Floor.String(),
		Started:      st.Started.UTC(),
		HistorySince: st.HistorySince.UTC(),
	}
}

// describe fills in what is known of the store.
func (s StoreState) describe(out *wire.Status) {
	out.Leader, out.Leads = s.Leader, s.Leads
	out.Store = wire.Store{
		EtcdVersion: s.EtcdVersion, Members: s.Members,
		Bytes: s.Bytes, UsedBytes: s.Used, QuotaBytes: s.Quota, DiskFree: s.DiskFree,
		Faults: s.Faults,
	}
	if !s.LastBackup.IsZero() {
		at := s.LastBackup.UTC()
		out.Store.LastBackup = &at
	}
}

// raiseFloor ends every hold, so it needs the role over every lock.
func (s admin) raiseFloor(ctx context.Context, c *call, in *wire.FloorRequest) (*wire.Floor, error) {
	c.record.token = in.Above
	if err := c.permitPrefix(keys.Admin, ""); err != nil {
		return nil, err
	}
	base, err := s.engine.RaiseFloor(ctx, in.Above)
	if err != nil {
		return nil, err
	}
	return &wire.Floor{Base: base}, nil
}
