package httpapi

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/lockserver"
)

// UpkeepService looks after the store where it is the deployment's own.
type UpkeepService interface {
	Snapshot(ctx context.Context, w io.Writer) error
	Members(ctx context.Context) ([]lockserver.Member, error)
	AddMember(ctx context.Context, peerURL string) (lockserver.Member, error)
	RemoveMember(ctx context.Context, id string) error
	Compact(ctx context.Context) (revision int64, err error)
}

// snapshotTime bounds a snapshot as a whole; each part of it has writeTimeout to
// reach the client.
const snapshotTime = 30 * time.Minute

var snapshotOp = operation{
	method: http.MethodGet, path: "/v1/snapshot", id: "getSnapshot", tag: tagAdmin,
	role: keys.Admin, audited: true, waits: true,
	summary: "Copy the store",
	text:    "The whole store as one file, for `fenced restore`. The last 32 bytes are the SHA-256 of all before them; an answer that breaks off is no snapshot.",
	status:  http.StatusOK, content: "application/octet-stream", codes: readCodes,
}

var listMembersOp = operation{
	method: http.MethodGet, path: "/v1/members", id: "listMembers", tag: tagAdmin,
	role:    keys.Admin,
	summary: "List the members of the store's cluster",
	status:  http.StatusOK, codes: readCodes,
}

var addMemberOp = operation{
	method: http.MethodPost, path: "/v1/members", id: "addMember", tag: tagAdmin,
	role: keys.Admin, audited: true,
	summary: "Announce a new member",
	text:    "Then start its server with the present members as its cluster. It votes once it has caught up, so an address that nobody starts costs no quorum.",
	status:  http.StatusCreated, example: wire.MemberRequest{PeerURL: "https://10.0.0.4:7422"}, codes: writeCodes,
}

var removeMemberOp = operation{
	method: http.MethodDelete, path: "/v1/members", id: "removeMember", tag: tagAdmin,
	role: keys.Admin, audited: true,
	summary: "Take a member out for good",
	text:    "Its data directory is worth nothing afterwards.",
	query:   []param{{name: "id", text: "Id of the member: 16 hex digits", example: "8e9e05c52164694d", required: true}},
	status:  http.StatusNoContent, codes: writeCodes,
}

var compactOp = operation{
	method: http.MethodPost, path: "/v1/compact", id: "compactStore", tag: tagAdmin,
	role: keys.Admin, audited: true,
	summary: "Drop the store's history",
	text:    "The servers do it by themselves; this is for a store that is full.",
	status:  http.StatusOK, codes: readCodes,
}

// upkeep serves what concerns the store as a whole, so that it needs the role over
// every lock.
type upkeep struct {
	engine   UpkeepService
	backedUp func(time.Time)
}

func (s upkeep) routes(a *api) {
	a.route(snapshotOp, s.snapshot)
	handle(a, listMembersOp, s.members)
	handle(a, addMemberOp, s.addMember)
	handle(a, removeMemberOp, s.removeMember)
	handle(a, compactOp, s.compact)
}

// snapshot sends the copy as it is made. An error before the first byte is an
// answer; a later one cuts the connection, so that nobody takes the rest for all.
func (s upkeep) snapshot(c *call) error {
	if err := c.permitPrefix(keys.Admin, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), snapshotTime)
	defer cancel()
	out := &download{w: c.w, control: http.NewResponseController(c.w)}
	err := s.engine.Snapshot(ctx, out)
	if err == nil {
		out.failed = out.control.Flush() // a client that left before the end has no backup
	}
	switch {
	case out.failed != nil:
		return errClientGone
	case err == nil:
		s.backedUp(time.Now())
		return nil
	case !out.begun:
		return err
	}
	recorderOf(c.w).logFault(c.r.Context(), err)
	panic(http.ErrAbortHandler)
}

// download sends a file of unknown length, for as long as the client takes it.
type download struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	failed  error // the client does not take it any more
}

// Write implements io.Writer.
func (d *download) Write(b []byte) (int, error) {
	if !d.begun {
		d.begun = true
		d.w.Header().Set("Content-Type", snapshotOp.content)
	}
	_ = d.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer without a connection has none
	n, err := d.w.Write(b)
	if err != nil {
		d.failed = err
	}
	return n, err
}

func (s upkeep) members(ctx context.Context, c *call, _ *none) (*wire.MemberList, error) {
	if err := c.permitPrefix(keys.Admin, ""); err != nil {
		return nil, err
	}
	all, err := s.engine.Members(ctx)
	if err != nil {
		return nil, err
	}
	out := &wire.MemberList{Members: make([]wire.Member, len(all))}
	for i, m := range all {
		out.Members[i] = wireMember(m)
	}
	return out, nil
}

func (s upkeep) addMember(ctx context.Context, c *call, in *wire.MemberRequest) (*wire.Member, error) {
	if err := c.permitPrefix(keys.Admin, ""); err != nil {
		return nil, err
	}
	m, err := s.engine.AddMember(ctx, in.PeerURL)
	if err != nil {
		return nil, err
	}
	out := wireMember(m)
	return &out, nil
}

func wireMember(m lockserver.Member) wire.Member {
	return wire.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, Voter: m.Voter, Leader: m.Leader}
}

func (s upkeep) removeMember(ctx context.Context, c *call, _ *none) (*none, error) {
	if err := c.permitPrefix(keys.Admin, ""); err != nil {
		return nil, err
	}
	id := c.query.Get("id")
	if id == "" {
		return nil, apierr.Bounds("id", "the id of a member")
	}
	return nil, s.engine.RemoveMember(ctx, id)
}

func (s upkeep) compact(ctx context.Context, c *call, _ *none) (*wire.Compacted, error) {
	if err := c.permitPrefix(keys.Admin, ""); err != nil {
		return nil, err
	}
	revision, err := s.engine.Compact(ctx)
	if err != nil {
		return nil, err
	}
	return &wire.Compacted{Revision: revision}, nil
}
