package rewards

import (
	"errors"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/tokens"
)

// A Record is what rewardctl prints, one JSON object a line: what happened to which
// reward, under which token.
type Record struct {
	// Kind is ready (Key: the address of a server), fault, attempt, dead (an outbox
	// row) or dead_message (of the inbox).
	Kind string `json:"kind"`
	// ID and Amount are those of a dead message.
	ID     int64 `json:"id,omitempty"`
	Amount int64 `json:"amount,omitempty"`
	// Step is where a fault was injected.
	Step Step   `json:"step,omitempty"`
	Key  string `json:"key,omitempty"`
	// Token is that of the attempt; none where no lock was held.
	Token tokens.Token `json:"token,omitempty"`
	// Outcome of an attempt is an [Outcome], or stale, lost, held or failed.
	Outcome string `json:"outcome,omitempty"`
	// Current is the token that a stale attempt met.
	Current tokens.Token `json:"current,omitempty"`
	Error   string       `json:"error,omitempty"`
}

// Record returns a as a record.
func (a Attempt) Record() Record {
	r := Record{Kind: "attempt", Key: a.Reward.Key(), Token: a.Token, Outcome: string(a.Outcome)}
	if a.Err == nil {
		return r
	}
	r.Error = a.Err.Error()
	var stale *tokens.StaleError
	switch {
	case errors.As(a.Err, &stale):
		r.Outcome, r.Current = "stale", stale.Current
	case errors.Is(a.Err, clientsdk.ErrLost):
		r.Outcome = "lost"
	case errors.Is(a.Err, clientsdk.ErrHeld):
		r.Outcome = "held"
	default:
		r.Outcome = "failed"
	}
	return r
}
