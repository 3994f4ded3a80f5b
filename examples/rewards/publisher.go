package rewards

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenced/fenced/tokens"
)

// PublisherConfig says how a [Publisher] works.
type PublisherConfig struct {
	// Pool leads to the primary with the reward tables. Required.
	Pool *pgxpool.Pool
	// Items is the base URL of the item server. Required.
	Items string
	// HTTPClient defaults to one with a timeout of Lease / 2.
	HTTPClient *http.Client
	// Lease is how long a claimed row is hidden from other publishers. It must be
	// longer than a call to the item server can take. Defaults to 30 s.
	Lease time.Duration
	// Batch is the number of rows claimed and called at once. Defaults to 16.
	Batch int
	// Poll is how long to wait at most where nothing is due. Defaults to 250 ms. A
	// notification of a worker ends the wait early.
	Poll time.Duration
	// FirstRetry and LongestRetry bound the full-jitter backoff, of a row and of the
	// whole publisher while nobody can connect. Default to 500 ms and 5 min.
	FirstRetry, LongestRetry time.Duration
	// Attempts after which a row is dead. Defaults to 20. A call that could not
	// connect is none.
	Attempts int
	// Drain makes Run return once every row is DONE or DEAD, or waits behind a
	// dead one.
	Drain bool
	// Alarm is called with each row that becomes dead, and why. Defaults to
	// nothing; the row is in [DeadLetters] in any case.
	Alarm func(key string, reason error)
	// At is called between the steps, for the injection of faults: [Calling] and
	// [Answered]. Defaults to nothing.
	At func(step Step, key string)
	// Log is told when the database or the item server cannot be reached, and when it
	// can again. nil logs nothing.
	Log *slog.Logger

	_ struct{}
}

// The steps of a publisher, in order.
const (
	Calling  Step = "calling"  // the row is claimed, the call is next
	Answered Step = "answered" // the item server has answered, the row is not marked
)

func (c PublisherConfig) withDefaults() (PublisherConfig, error) {
	if c.Pool == nil || c.Items == "" {
		return c, errors.New("publisher: Pool and Items are required")
	}
	if err := validItems(c.Items); err != nil {
		return c, fmt.Errorf("publisher: Items: %w", err)
	}
	if min(c.Lease, c.Poll, c.FirstRetry, c.LongestRetry) < 0 || min(c.Batch, c.Attempts) < 0 {
		return c, errors.New("publisher: Lease, Poll, FirstRetry, LongestRetry, Batch and Attempts must not be negative")
	}
	c.Lease = orElse(c.Lease, 30*time.Second)
	c.Batch = orElse(c.Batch, 16)
	c.Poll = orElse(c.Poll, 250*time.Millisecond)
	c.FirstRetry = orElse(c.FirstRetry, 500*time.Millisecond)
	c.LongestRetry = orElse(c.LongestRetry, 5*time.Minute)
	c.Attempts = orElse(c.Attempts, 20)
	c.HTTPClient = orElse(c.HTTPClient, &http.Client{Timeout: c.Lease / 2})
	if c.Alarm == nil {
		c.Alarm = func(string, error) {}
	}
	if c.At == nil {
		c.At = func(Step, string) {}
	}
	c.Log = orElse(c.Log, slog.New(slog.DiscardHandler))
	return c, nil
}

// validItems refuses what no call can be made to: it would pass for an item server that
// cannot be reached, for which a publisher waits for ever.
func validItems(base string) error {
	u, err := url.Parse(base)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.ContainsAny(base, "?#") {
		return fmt.Errorf("%q is no base URL such as http://127.0.0.1:7430", u.Redacted())
	}
	return nil
}

// A Publisher tells the item server what the outbox holds. Any number of
// publishers may share one outbox. Polling is what it rests on; it waits between
// polls only where nothing is due, and NOTIFY, over one connection beside the
// pool's, only shortens that wait. Behind a pooler in transaction mode it hears
// nothing and polls.
//
// While the item server cannot be connected to, the publisher pauses as a whole
// and tries one row at a time. Rows lose no attempts by that.
type Publisher struct{ cfg PublisherConfig }

// NewPublisher returns a publisher; nothing runs before Run. The error names the
// field that cannot be used.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{cfg: cfg}, nil
}

// Run publishes until ctx ends, or until nothing can be published any more if
// Drain is set, and returns when all its goroutines are gone: nil after a drain,
// else the cause of ctx.
func (p *Publisher) Run(ctx context.Context) error {
	woken, stop := listen(ctx, p.cfg.Pool)
	defer stop()
	database := outage{log: p.cfg.Log, what: "the database"}
	itemServer := outage{log: p.cfg.Log, what: "the item server"}
	var items lane
	for ctx.Err() == nil {
		letters, err := takeLetters(ctx, p.cfg.Pool, items.batch(p.cfg.Batch), p.cfg.Lease)
		database.note(ctx, err)
		switch {
		case len(letters) > 0:
			unreached := p.publishAll(ctx, letters)
			itemServer.note(ctx, unreached)
			// A pause that ctx ends is no error: the loop looks at ctx.
			_ = pause(ctx, items.after(unreached == nil, p.cfg.FirstRetry, p.cfg.LongestRetry))
		case err == nil && p.cfg.Drain && p.drained(ctx):
			return nil
		default:
			pauseUnless(ctx, woken, backoff(1, p.cfg.Poll, p.cfg.Poll))
		}
	}
	return context.Cause(ctx)
}

// publishAll makes the calls at once. Where none had a connection it returns why not.
func (p *Publisher) publishAll(ctx context.Context, letters []letter) error {
	var calls sync.WaitGroup
	unreached := make([]error, len(letters))
	for i, l := range letters {
		calls.Go(func() { unreached[i] = p.publish(ctx, l) })
	}
	calls.Wait()
	if slices.Contains(unreached, nil) {
		return nil
	}
	return unreached[0]
}

// drained reports whether every row is DONE, DEAD or behind a DEAD one.
func (p *Publisher) drained(ctx context.Context) bool {
	var left bool
	err := p.cfg.Pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM reward_outbox o WHERE o.status = 'READY' AND NOT EXISTS (
		  SELECT FROM reward_outbox p WHERE p.agg_key = o.agg_key AND p.id < o.id AND p.status = 'DEAD'))`).Scan(&left)
	return err == nil && !left
}

// publish makes one call, outside any transaction, and marks the row by its
// answer. A mark that fails is made good by the next claim: the same key is sent
// again and answered with the stored result. It returns why the call had no
// connection, nil where it had one.
func (p *Publisher) publish(ctx context.Context, l letter) (unreached error) {
	p.cfg.At(Calling, l.key)
	v := p.call(ctx, l)
	p.cfg.At(Answered, l.key)
	if ctx.Err() != nil && v.fate == later {
		v.wait, v.free = 0, true // we are stopping; the item server has not failed
	}
	marking, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	switch {
	case v.fate == done:
		_ = closeLetter(marking, p.cfg.Pool, l, "DONE", nil)
	case v.fate == dead || !v.free && l.attempts >= p.cfg.Attempts:
		if closeLetter(marking, p.cfg.Pool, l, "DEAD", v.reason) == nil {
			p.cfg.Alarm(l.key, v.reason)
		}
	default:
		wait := max(v.wait, backoff(l.attempts, p.cfg.FirstRetry, p.cfg.LongestRetry))
		_ = putBack(marking, p.cfg.Pool, l, wait, v.free, v.reason)
	}
	if v.unreached {
		return v.reason
	}
	return nil
}

// markTimeout is how long what has been done may take to be written down, also while
// the process is being stopped.
const markTimeout = 5 * time.Second

// fate is what an answer means for its row.
type fate int

const (
	later fate = iota
	done
	dead
)

type verdict struct {
	fate   fate
	wait   time.Duration // at least this long, as the server asked
	free   bool          // does not count as an attempt
	reason error
	// unreached: there was no connection to send it on. Always free.
	unreached bool
}

// call sends the row and reads the answer:
//
//	2xx             done if it has the row's reward, also as a replay, else later
//	409             the same key is in progress: wait, the attempt is free
//	412             ask the status: granted after all is as 2xx, else dead
//	429, 5xx, none  later, with the same key and bytes
//	no connection   later, the attempt is free
//	others          dead: it is a bug, and no repeat mends it
//
// Behind a redirect that turns the POST into a GET, no answer is one to the grant.
func (p *Publisher) call(ctx context.Context, l letter) verdict {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, trace(&connected))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.Items+"/v1/grants", bytes.NewReader(l.body))
	if err != nil {
		return verdict{fate: dead, reason: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", strconv.Quote(l.key))
	tokens.SetHeader(req.Header, l.token)
	res, err := p.cfg.HTTPClient.Do(req)
	if err != nil {
		return verdict{reason: err, free: !connected.Load(), unreached: !connected.Load()}
	}
	defer discard(res)
	reason := unexpected(res)
	switch {
	case res.Request.Method != http.MethodPost:
		return verdict{fate: dead, reason: fmt.Errorf("item server: the POST was redirected to a %s of %s", res.Request.Method, res.Request.URL)}
	case res.StatusCode/100 == 2:
		return l.confirmed(grantIn(res, l.key))
	case res.StatusCode == http.StatusConflict:
		return verdict{wait: retryAfter(res), free: true, reason: reason}
	case res.StatusCode == http.StatusPreconditionFailed:
		return p.afterStale(ctx, l, reason)
	case res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500:
		return verdict{wait: retryAfter(res), reason: reason}
	default:
		return verdict{fate: dead, reason: reason}
	}
}

// confirmed is the verdict on what an answer says was granted, or on why it says
// nothing. Then the same key asks again: an item server that has granted it says so.
func (l letter) confirmed(granted Reward, err error) verdict {
	var owed Reward
	if err == nil {
		err = json.Unmarshal(l.body, &owed)
	}
	if err == nil && granted != owed {
		err = fmt.Errorf("%d is granted, and %d is owed", granted.Amount, owed.Amount)
	}
	if err != nil {
		return verdict{reason: fmt.Errorf("item server: %w", err)}
	}
	return verdict{fate: done}
}

// afterStale decides about a row whose token was refused: a newer grant has been
// at this reward. Whether it is paid, only the item server knows.
func (p *Publisher) afterStale(ctx context.Context, l letter, reason error) verdict {
	granted, err := Granted(ctx, p.cfg.HTTPClient, p.cfg.Items, l.key)
	switch {
	case err != nil:
		return verdict{reason: errors.Join(reason, err)}
	case granted != nil:
		return l.confirmed(*granted, nil)
	default:
		return verdict{fate: dead, reason: fmt.Errorf(
			"%w; nothing is granted: if its database was restored, replay --items sends this again under a new token", reason)}
	}
}

// retryAfter reads the header in either of its forms, at most an hour.
func retryAfter(res *http.Response) time.Duration {
	h := res.Header.Get("Retry-After")
	if s, err := strconv.ParseUint(h, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(s, 3600)) * time.Second
	}
	if at, err := http.ParseTime(h); err == nil {
		return min(max(time.Until(at), 0), time.Hour)
	}
	return 0
}
