package itemserver

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/examples/rewards"
	"github.com/fenced/fenced/tokens"
)

// Config says what a [Server] rests on.
type Config struct {
	// Pool leads to the item server's own database. Required.
	Pool *pgxpool.Pool
	// Guard keeps the fences, in the same database. nil makes a server that
	// ignores tokens.
	Guard tokens.Guard[pgx.Tx]
	// Log is told why an answer was 503. nil logs nothing.
	Log *slog.Logger

	_ struct{}
}

// A Server grants items over HTTP.
type Server struct {
	cfg Config
	mux *http.ServeMux
}

var _ http.Handler = (*Server)(nil)

// New returns a server; it asks nothing of the database. The tables must exist:
// see [Install].
func New(cfg Config) (*Server, error) {
	if cfg.Pool == nil {
		return nil, errors.New("item server: Pool is required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /v1/grants", s.grant)
	s.mux.HandleFunc("GET /v1/grants", s.ask)
	return s, nil
}

//go:embed schema.sql
var schema string

// schemaLock makes installers take turns. The number is arbitrary.
const schemaLock = 0x6974656d

// Install makes the tables of the item server in the first schema of the pool's
// search_path where they do not exist, all or none. The fences are the guard's own.
func Install(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", schemaLock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schema)
		return err
	})
	if err != nil {
		return fmt.Errorf("item server schema: %w", err)
	}
	return nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// order is one request for a grant, checked.
type order struct {
	rewards.Reward
	key   string
	token tokens.Token // 0 on a server that ignores tokens
}

// fingerprint is what two requests under one key must agree on: the business, not
// the token or the attempt, which rightly differ.
func (o order) fingerprint() []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", o.Player, o.Event, o.Amount))
	return sum[:]
}

func (s *Server) grant(w http.ResponseWriter, r *http.Request) {
	o, err := s.read(w, r)
	var replay bool
	if err == nil {
		replay, err = s.effect(r.Context(), o)
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	if replay {
		w.Header().Set("Idempotent-Replay", "true")
	}
	reply(w, http.StatusCreated, "application/json", o.Reward)
}

// maxBody is many times the size of a reward.
const maxBody = 8 << 10

// read checks the request before the database is asked.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (o order, err error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return o, problem{Status: http.StatusUnsupportedMediaType, Code: "malformed", Detail: "Content-Type must be application/json"}
	}
	if o.key, err = key(r.Header.Values("Idempotency-Key")); err != nil {
		return o, err
	}
	if s.cfg.Guard != nil {
		if o.token, err = tokens.FromHeader(r.Header); err != nil {
			return o, err
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return o, malformed("body cannot be read: " + err.Error())
	}
	if o.Reward, err = rewards.ParseReward(body); err != nil {
		return o, malformed("body is not a reward: " + err.Error())
	}
	if err := o.Validate(); err != nil {
		return o, problem{Status: http.StatusUnprocessableEntity, Code: "out_of_bounds", Detail: err.Error()}
	}
	return o, nil
}

// key reads the header, quoted as the draft has it, or bare as many send it.
func key(values []string) (string, error) {
	if len(values) != 1 {
		return "", problem{Status: http.StatusBadRequest, Code: "idempotency_key_missing", Detail: "one Idempotency-Key is required"}
	}
	k := values[0]
	if strings.HasPrefix(k, `"`) {
		var err error
		if k, err = strconv.Unquote(k); err != nil {
			return "", malformed("Idempotency-Key is not a quoted string")
		}
	}
	if len(k) < 1 || len(k) > 400 || strings.ContainsFunc(k, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", malformed("Idempotency-Key must be 1 to 400 bytes of printable ASCII")
	}
	return k, nil
}

// standstill is how long an instance that does nothing may keep a key in progress.
const standstill = "5s"

// effect looks the key up, then asks the fence, then grants, all in one
// transaction. replay reports that the key was known.
func (s *Server) effect(ctx context.Context, o order) (replay bool, err error) {
	err = pgx.BeginFunc(ctx, s.cfg.Pool, func(tx pgx.Tx) error {
		// The lock ends with the transaction, and the transaction of an instance that
		// stands still with its time. Keys that share a hash only hear an "in progress"
		// too many.
		var mine bool
		err := tx.QueryRow(ctx, `
			SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))
			FROM set_config('idle_in_transaction_session_timeout', $2, true)`, o.key, standstill).Scan(&mine)
		if err != nil {
			return err
		}
		if !mine {
			return problem{Status: http.StatusConflict, Code: "in_progress", Detail: "the same key is being worked on"}
		}
		if replay, err = known(ctx, tx, o); replay || err != nil {
			return err
		}
		if s.cfg.Guard != nil {
			claim := tokens.Claim{Resource: o.Lock(), Token: o.token, Mode: tokens.Renewable}
			if _, err := s.cfg.Guard.Advance(ctx, tx, claim); err != nil {
				return err
			}
		}
		return give(ctx, tx, o)
	})
	return replay, err
}

// known reports whether the key has been answered, and refuses another payload
// under it.
func known(ctx context.Context, tx pgx.Tx, o order) (bool, error) {
	var same bool
	err := tx.QueryRow(ctx, `SELECT fingerprint = $2 FROM item_key WHERE idem_key = $1`, o.key, o.fingerprint()).Scan(&same)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err == nil && !same:
		return false, problem{Status: http.StatusUnprocessableEntity, Code: "idempotency_key_reused", Detail: "the key was used with another payload"}
	}
	return err == nil, err
}

// give makes the grant and remembers the key.
func give(ctx context.Context, tx pgx.Tx, o order) error {
	tag, err := tx.Exec(ctx, `
		WITH given AS (
		  INSERT INTO item_grant (player_id, reward_event_id, amount) VALUES ($1, $2, $3)
		  ON CONFLICT ON CONSTRAINT item_grant_once DO NOTHING RETURNING id)
		INSERT INTO item_key (idem_key, grant_id, fingerprint, fence_token)
		SELECT $4, id, $5, nullif($6, 0::bigint) FROM given`,
		o.Player, o.Event, o.Amount, o.key, o.fingerprint(), int64(o.token))
	if err == nil && tag.RowsAffected() == 0 {
		return problem{Status: http.StatusUnprocessableEntity, Code: "granted_under_another_key",
			Detail: "this player has the reward of this event, under another key: the caller builds its keys wrongly"}
	}
	return err
}

// ask is the status of one key where one is named, else the list.
func (s *Server) ask(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("key") {
		s.status(w, r)
		return
	}
	s.list(w, r)
}

// status answers what was granted under a key. It waits for nothing: 404 is no
// proof while a request with that key may be on its way.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	var granted rewards.Reward
	err := s.cfg.Pool.QueryRow(r.Context(), `
		SELECT g.player_id, g.reward_event_id, g.amount
		FROM item_key k JOIN item_grant g ON g.id = k.grant_id WHERE k.idem_key = $1`, r.URL.Query().Get("key")).
		Scan(&granted.Player, &granted.Event, &granted.Amount)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		s.refuse(w, problem{Status: http.StatusNotFound, Code: "not_granted", Detail: "nothing was granted under this key"})
	case err != nil:
		s.refuse(w, err)
	default:
		reply(w, http.StatusOK, "application/json", granted)
	}
}
