package rewards_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/fenced/fenced/examples/rewards"
)

// Fault: something between here and the item server answers in its place, and well. Only
// an answer that is the reward says that it was granted.
func TestPublisher_wants_the_reward_in_the_answer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"a login page":   "<!doctype html><title>Sign in</title>",
		"nothing":        "",
		"broken off":     `{"player":"0","event":"season-2026-week-34:pla`,
		"the list":       `{"grants":[]}`,
		"another player": `{"player":"1","event":"season-2026-week-34:player-1:rank-0","amount":1}`,
		"another amount": `{"player":"0","event":"season-2026-week-34:player-0:rank-0","amount":2}`,
	} {
		for _, first := range []int{http.StatusOK, http.StatusPreconditionFailed} {
			t.Run(name+" "+http.StatusText(first), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, 1, 1)
				var healed atomic.Bool
				gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case healed.Load():
						s.items.Config.Handler.ServeHTTP(w, r)
					case r.Method == http.MethodPost:
						w.WriteHeader(first)
						_, _ = io.WriteString(w, answer)
					default: // the status, after 412
						_, _ = io.WriteString(w, answer)
					}
				}))
				t.Cleanup(gateway.Close)
				cfg := s.config(t)
				cfg.Items, cfg.HTTPClient, cfg.Attempts = gateway.URL, gateway.Client(), 3
				var alarm error
				cfg.Alarm = func(_ string, reason error) { alarm = reason }
				publish(t, cfg)
				if v := verdict(t, s.pool, s.owed); v.DeadLetters != 1 || alarm == nil {
					t.Errorf("%d dead, %d unpublished, alarm %v; want the row dead, as nobody was granted anything", v.DeadLetters, v.Unpublished, alarm)
				}
				healed.Store(true)
				if _, err := rewards.Replay(t.Context(), s.pool); err != nil {
					t.Fatal(err)
				}
				publish(t, s.config(t))
				s.check(t)
			})
		}
	}
}

// Fault: the words of a refusal are none that PostgreSQL can store. The row must be
// marked all the same: else it is taken again for ever, and nobody hears of it.
func TestPublisher_marks_a_row_whatever_the_answer_says(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"NUL in the detail":     "HTTP/1.1 422 Unprocessable Entity\r\nContent-Length: 31\r\n\r\n" + `{"code":"x","detail":"a\u0000"}`,
		"Latin-1 in the status": "HTTP/1.1 403 Acc\xe8s refus\xe9\r\nContent-Length: 0\r\n\r\n",
		"Latin-1, to come back": "HTTP/1.1 500 Erreur g\xe9n\xe9rale\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1, 1)
			s.spoil = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				_, _ = io.Copy(io.Discard, r.Body)
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return true
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, answer)
				return true
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			cfg := s.config(t)
			cfg.Attempts = 2
			var alarms atomic.Int64
			cfg.Alarm = func(string, error) { alarms.Add(1) }
			cfg.At = func(rewards.Step, string) {
				if s.asked.Load() > 2 {
					stop()
				}
			}
			cfg.Lease = cfg.LongestRetry // a row that is not marked comes back at once
			p, err := rewards.NewPublisher(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Run(ctx); err != nil || alarms.Load() != 1 {
				t.Errorf("Run = %v with %d alarms, want one for the dead row", err, alarms.Load())
			}
			if dead, err := rewards.DeadLetters(t.Context(), s.pool); err != nil || len(dead) != 1 || dead[0].Reason == "" {
				t.Errorf("DeadLetters = %+v, %v", dead, err)
			}
		})
	}
}
