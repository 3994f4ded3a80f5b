package clientsdk

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

// Member is one member of the store's cluster: ID, Name, PeerURLs, Voter, Leader.
type Member = wire.Member

// The calls of this file need the role admin over every lock. Those that change
// something are not repeated once they may have arrived; see [OutcomeKnown].

// RaiseFloor makes every token to come higher than above, and than every token that
// the server knows to have been issued. It ends all holds and sessions, and opens
// granting where it was closed. It returns what is now added to a revision to make a
// token. 0 names no token beside those that the server knows; 2^52 is the highest.
func (c *Client) RaiseFloor(ctx context.Context, above tokens.Token) (base int64, err error) {
	if above < 0 || above > wire.MaxFloor {
		return 0, bounds("raise floor", "above", fmt.Sprintf("0 to %d", int64(wire.MaxFloor)))
	}
	var out wire.Floor
	err = c.once(ctx, request{op: "raise floor", method: http.MethodPost, path: "/v1/floor",
		body: wire.FloorRequest{Above: above}}, &out)
	return out.Base, err
}

// Members lists the members of the store's cluster. A store that is not the
// deployment's own refuses it with code forbidden, as it does the calls below.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	var out wire.MemberList
	err := c.read(ctx, request{op: "list members", method: http.MethodGet, path: "/v1/members"}, &out)
	return out.Members, err
}

// AddMember announces a new member by the URL at which the others will reach it. It
// votes once it has started and caught up.
func (c *Client) AddMember(ctx context.Context, peerURL string) (*Member, error) {
	out := new(Member)
	r := request{op: fmt.Sprintf("add member %q", peerURL), method: http.MethodPost, path: "/v1/members",
		body: wire.MemberRequest{PeerURL: peerURL}}
	if err := c.once(ctx, r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// RemoveMember takes the member of that ID out of the cluster for good.
func (c *Client) RemoveMember(ctx context.Context, id string) error {
	return c.once(ctx, request{op: fmt.Sprintf("remove member %q", id), method: http.MethodDelete,
		path: "/v1/members?id=" + url.QueryEscape(id)}, nil)
}

// Compact drops the history of the store and returns the revision that it now starts
// at. The servers drop what is old by themselves; this is for a store that is full.
// Doing it twice does no more than once.
func (c *Client) Compact(ctx context.Context) (revision int64, err error) {
	var out wire.Compacted
	err = c.read(ctx, request{op: "compact", method: http.MethodPost, path: "/v1/compact"}, &out)
	return out.Revision, err
}

// snapshotSilence is how long a snapshot may bring nothing before it is given up.
const snapshotSilence = 30 * time.Second

// Snapshot writes a copy of the server's whole store to w, for "fenced restore". It
// blocks until all is written; after an error, what was written is no snapshot. The
// last 32 bytes are the SHA-256 of those before them.
func (c *Client) Snapshot(ctx context.Context, w io.Writer) error {
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(snapshotSilence, func() { cancel(fmt.Errorf("no data for %s", snapshotSilence)) })
	defer silence.Stop()
	var body io.ReadCloser
	r := request{op: "snapshot", method: http.MethodGet, path: "/v1/snapshot"}
	err = c.t.retry(ctx, c.cfg.RetryFor, func(context.Context) (err error) {
		body, err = c.t.stream(ctx, r, "application/octet-stream")
		return err
	})
	if err != nil {
		return err
	}
	defer body.Close()
	in := &watched{Reader: body, silence: silence}
	_, err = io.Copy(w, in)
	switch {
	case in.err != nil:
		return fmt.Errorf("%w: snapshot broke off: %w", ErrUnavailable, cmp.Or(context.Cause(ctx), in.err))
	case err != nil:
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// watched bounds the silence of a read, and of no write between two. It keeps the error of
// the read that failed: it is not the writer's.
type watched struct {
	io.Reader
	silence *time.Timer
	err     error
}

// Read implements io.Reader.
func (r *watched) Read(b []byte) (int, error) {
	r.silence.Reset(snapshotSilence)
	n, err := r.Reader.Read(b)
	r.silence.Stop()
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// once makes a call that changes something and is not safe to repeat: as often as it
// takes to reach a server, and never again once it may have.
func (c *Client) once(ctx context.Context, r request, out any) error {
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", r.op, err)
	}
	defer end()
	var unknown error
	err = c.t.retry(ctx, c.cfg.RetryFor, func(context.Context) error {
		_, err := c.t.exchange(ctx, r, out)
		if !OutcomeKnown(err) {
			unknown = &onceError{err}
			return nil
		}
		return err
	})
	if unknown != nil {
		return unknown
	}
	return err
}
