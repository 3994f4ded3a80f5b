package rewards

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// ErrEventID: the parts of an event id, or an event id, cannot be used. The
// error around it names the part and the reason.
var ErrEventID = errors.New("bad reward event id")

// An Event is what a reward was earned by. Its parts are facts about the game, so
// whoever builds the id again, after a crash, on another machine, next year, gets
// the same one; that is what makes a second payment visible as a second payment.
type Event struct {
	// Season is the number or short name of the season: lower-case letters and
	// digits, such as "2026".
	Season string
	// Content is the part of the season: lower-case letters, digits and inner
	// hyphens, such as "week-34".
	Content string
	// Player is the player's id as the accounts know it: letters, digits, '_',
	// '.' and '-', at most 64 bytes. It may look random, because it is as old as
	// the account and the same on every retry.
	Player string
	// Kind says by what the reward was earned: lower-case letters, such as "rank"
	// or "quest".
	Kind string
	// Item is the rank or the quest: lower-case letters, digits and inner hyphens.
	Item string
	// Version counts deliberate payments for the same thing, from 1: a
	// correction that shall be paid beside the first payment gets 2. 0 means 1.
	Version int
}

var (
	season = regexp.MustCompile(`^[a-z0-9]{1,16}$`)
	slug   = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	player = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	kind   = regexp.MustCompile(`^[a-z]{1,16}$`)
	// event has one reading only: the season and the kind hold no hyphen, so the
	// first hyphen after each ends it, and no part holds a colon.
	event = regexp.MustCompile(`^season-([a-z0-9]+)-([a-z0-9-]+):player-([^:]+):([a-z]+)-([a-z0-9-]+)(?::v([0-9]+))?$`)
)

// maxSlug bounds Content and Item, so that an id, a key and a lock name made of
// it stay within the 512 bytes of a lock name.
const maxSlug = 64

// ID returns the event id, such as "season-2026-week-34:player-42:rank-3", with
// ":v2" and so on behind it for versions above 1. Different events have different
// ids. The error wraps [ErrEventID]: a part is out of bounds, or looks freshly
// random or like the time of day, and then a retry would get another id and be
// paid again.
func (e Event) ID() (string, error) {
	if err := e.validate(); err != nil {
		return "", err
	}
	id := fmt.Sprintf("season-%s-%s:player-%s:%s-%s", e.Season, e.Content, e.Player, e.Kind, e.Item)
	if e.Version > 1 {
		id += ":v" + strconv.Itoa(e.Version)
	}
	return id, nil
}

// ParseEvent returns the parts of an event id that [Event.ID] could have built;
// it accepts no other spelling. The error wraps [ErrEventID].
func ParseEvent(id string) (Event, error) {
	m := event.FindStringSubmatch(id)
	if m == nil {
		return Event{}, fmt.Errorf("%w: %q is not of the form season-S-CONTENT:player-P:KIND-ITEM%s",
			ErrEventID, clip(id), whyRandom(id))
	}
	e := Event{Season: m[1], Content: m[2], Player: m[3], Kind: m[4], Item: m[5], Version: 1}
	if m[6] != "" {
		v, err := strconv.Atoi(m[6])
		if err != nil || v < 2 {
			return Event{}, fmt.Errorf("%w: version %q: only v2 and later are spelt out", ErrEventID, clip(m[6]))
		}
		e.Version = v
	}
	again, err := e.ID()
	if err == nil && again != id {
		err = fmt.Errorf("%w: %q is spelt %q", ErrEventID, id, again)
	}
	return e, err
}

func (e Event) validate() error {
	for _, p := range []struct {
		name, value string
		form        *regexp.Regexp
		max         int
		stable      bool // may look random, as it is older than the event
	}{
		{"season", e.Season, season, 16, false},
		{"content", e.Content, slug, maxSlug, false},
		{"player", e.Player, player, 64, true},
		{"kind", e.Kind, kind, 16, false},
		{"item", e.Item, slug, maxSlug, false},
	} {
		if len(p.value) > p.max || !p.form.MatchString(p.value) {
			return fmt.Errorf("%w: %s %q must be at most %d bytes and match %s", ErrEventID, p.name, clip(p.value), p.max, p.form)
		}
		if why := whyRandom(p.value); why != "" && !p.stable {
			return fmt.Errorf("%w: %s %q%s", ErrEventID, p.name, p.value, why)
		}
	}
	if e.Version < 0 || e.Version > 9999 {
		return fmt.Errorf("%w: version %d is not within 0 to 9999", ErrEventID, e.Version)
	}
	return nil
}

// clip keeps an error readable when the input is not.
func clip(s string) string {
	const most = 96
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
