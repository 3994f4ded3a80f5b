package clientsdk

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/fenced/fenced/internal/wire"
)

// The calls of this file are for scripts that carry the id of a hold from one
// process to the next. A program uses [Hold], which renews itself.

// RenewID renews a hold once, by its secret id. Count the time that the answer
// promises from before the call. A hold that has ended is an [*APIError] with code
// hold_gone.
func (c *Client) RenewID(ctx context.Context, id string) (*HoldInfo, error) {
	if err := checkID("renew hold", id); err != nil {
		return nil, err
	}
	out := new(HoldInfo)
	r := request{op: "renew hold", method: http.MethodPost, path: "/v1/holds/" + url.PathEscape(id) + "/renew", renewal: true}
	r.check = func() error {
		if out.State != wire.StateHeld || !out.Token.Valid() {
			return fmt.Errorf("answer says %q with token %d", out.State, int64(out.Token))
		}
		return nil
	}
	if err := c.read(ctx, r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// ReleaseID releases a hold by its secret id. One that was released before is no
// error; one that ended otherwise is an [*APIError] with code hold_gone.
func (c *Client) ReleaseID(ctx context.Context, id string) error {
	if err := checkID("release hold", id); err != nil {
		return err
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return fmt.Errorf("release hold: %w", err)
	}
	defer end()
	return c.deleteHold(ctx, "hold", url.PathEscape(id))
}
