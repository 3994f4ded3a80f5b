package rewards

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxAmount is the highest amount of one reward. It keeps sums over any season
// far from the end of a bigint, and a misplaced decimal point from being paid.
const MaxAmount = 1_000_000_000

// ErrReward: a reward is malformed. The error around it names the field.
var ErrReward = errors.New("bad reward")

// A Reward says who gets how much for what. Player and Event together are its
// identity, and the only one: it is the same in the inbox, the ledger, the outbox
// and the item server, however often and by whomever it is delivered.
type Reward struct {
	// Player is the player's id.
	Player string `json:"player"`
	// Event is an event id; see [Event.ID].
	Event string `json:"event"`
	// Amount is what to pay, from 1 to MaxAmount.
	Amount int64 `json:"amount"`
}

// Lock returns the name of the lock that workers hold while they pay r, which is
// also the name of the fenced resource.
func (r Reward) Lock() string { return "reward/" + r.Player + "/" + r.Event }

// Key returns the key under which r is paid outside: the outbox key and the
// Idempotency-Key of the item server. It is made of the reward's identity, never
// of a row's id: a failover that loses the claim makes a new row with a new id, and
// an item server that has never seen it would pay again.
func (r Reward) Key() string { return "reward:" + r.Player + ":" + r.Event }

// Validate returns an error that wraps [ErrReward] or [ErrEventID] unless r can
// be paid.
func (r Reward) Validate() error {
	e, err := ParseEvent(r.Event)
	switch {
	case err != nil:
		return err
	case e.Player != r.Player:
		return fmt.Errorf("%w: player %q is not the player of event %q", ErrReward, clip(r.Player), r.Event)
	case r.Amount < 1 || r.Amount > MaxAmount:
		return fmt.Errorf("%w: amount %d is not within 1 to %d", ErrReward, r.Amount, MaxAmount)
	}
	return nil
}

// ParseReward returns the reward that is the whole of text: a JSON object with no
// field twice, each spelt as it is written, and nothing beside it. encoding/json alone
// would stop at the end of the first value and let the last of two amounts win, and
// a reward would be lost or changed without a word. The error wraps [ErrReward].
// Whether the reward can be paid, [Reward.Validate] says.
func ParseReward(text []byte) (r Reward, err error) {
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil { // checks that it is one value
		return r, fmt.Errorf("%w: %w", ErrReward, err)
	}
	d := json.NewDecoder(bytes.NewReader(whole))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return r, fmt.Errorf("%w: not an object", ErrReward)
	}
	missing := map[string]any{"player": &r.Player, "event": &r.Event, "amount": &r.Amount}
	for d.More() {
		if err := field(d, missing); err != nil {
			return Reward{}, err
		}
	}
	return r, nil
}

// field reads one field into its place among the missing.
func field(d *json.Decoder, missing map[string]any) error {
	name, err := d.Token()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReward, err)
	}
	key, _ := name.(string)
	into, ok := missing[key]
	if !ok {
		return fmt.Errorf("%w: field %q is unknown, or there twice", ErrReward, clip(key))
	}
	delete(missing, key)
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: field %q: %w", ErrReward, key, err)
	}
	return nil
}

// Read returns the rewards of an NDJSON stream, one a line, in order, with
// repeated deliveries as often as they stand there. It reads to the end of r.
// The first bad line ends it with an error that names the line.
func Read(r io.Reader) ([]Reward, error) {
	var all []Reward
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		reward, err := ParseReward(lines.Bytes())
		if err == nil {
			err = reward.Validate()
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, reward)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", len(all)+1, err)
	}
	return all, nil
}

// Write writes rewards as NDJSON, in the form that [Read] reads.
func Write(w io.Writer, all []Reward) error {
	buf := bufio.NewWriter(w)
	enc := json.NewEncoder(buf)
	for _, r := range all {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return buf.Flush()
}

// Distinct returns each reward of deliveries once, in the order of its first
// delivery, and the number of further deliveries. Two deliveries of one reward
// that differ in the amount give an error that wraps [ErrReward]: nobody can say
// which one is owed.
func Distinct(deliveries []Reward) (owed []Reward, repeats int, err error) {
	amounts := make(map[string]int64, len(deliveries))
	for _, r := range deliveries {
		switch amount, seen := amounts[r.Key()]; {
		case !seen:
			amounts[r.Key()] = r.Amount
			owed = append(owed, r)
		case amount != r.Amount:
			return nil, 0, fmt.Errorf("%w: %s is delivered with %d and with %d", ErrReward, r.Key(), amount, r.Amount)
		}
	}
	return owed, len(deliveries) - len(owed), nil
}
