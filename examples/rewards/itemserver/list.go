package itemserver

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fenced/fenced/examples/rewards"
)

// pageSize is the number of grants on a page, far from what an answer may weigh.
const pageSize = 500

// list answers the grants in the order of their numbers, a page at a time. It shows
// rows and not keys, so that whoever compares sees also what stands there twice, or
// that nobody has asked for. A grant that is being made may get a number below one
// that is listed: compare when nothing is under way.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	after, err := position(r.URL.Query())
	if err != nil {
		s.refuse(w, err)
		return
	}
	page, err := s.page(r.Context(), after)
	if err != nil {
		s.refuse(w, err)
		return
	}
	reply(w, http.StatusOK, "application/json", page)
}

func position(q url.Values) (int64, error) {
	if !q.Has("after") {
		return 0, nil
	}
	after, err := strconv.ParseInt(q.Get("after"), 10, 64)
	if err != nil || after < 0 {
		return 0, malformed("after must be the next of the page before")
	}
	return after, nil
}

func (s *Server) page(ctx context.Context, after int64) (page rewards.GrantPage, err error) {
	rows, err := s.cfg.Pool.Query(ctx, `
		SELECT id, player_id, reward_event_id, amount FROM item_grant WHERE id > $1 ORDER BY id LIMIT $2`, after, pageSize)
	if err != nil {
		return page, err
	}
	var last int64
	page.Grants, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g rewards.Reward, err error) {
		return g, row.Scan(&last, &g.Player, &g.Event, &g.Amount)
	})
	if len(page.Grants) == pageSize {
		page.Next = last
	}
	return page, err
}
