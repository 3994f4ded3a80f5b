package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"github.com/fenced/fenced/clientsdk"
)

// Control sequences of every terminal that is in use.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the other screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	topLeft     = "\x1b[H"
	reverse     = "\x1b[7m"
	plain       = "\x1b[0m"
)

// topView is what top shows, and what the keys do to it. It is pure: time comes in as
// an argument.
type topView struct {
	locks  []clientsdk.LockSummary
	at     time.Time // when locks were listed; zero before the first list
	filter string
	typing bool // the filter is being typed
	event  string
	fault  string
	quit   bool
}

// Keys that top knows beside letters.
const (
	keyInterrupt = 3
	keyEscape    = 27
	keyDelete    = 127
)

// key takes what one read of the terminal brought: one key, or several typed fast.
func (v *topView) key(typed []byte) {
	for _, r := range string(specialKey.ReplaceAll(typed, nil)) {
		if v.typing && r != keyInterrupt {
			v.typeFilter(r)
			continue
		}
		switch r {
		case 'q', 'Q', keyInterrupt:
			v.quit = true
		case '/':
			v.typing, v.filter = true, ""
		case keyEscape:
			v.filter = ""
		}
	}
}

// specialKey is what a terminal sends for an arrow and the like, none of which top
// knows.
var specialKey = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|O[ -~])`)

func (v *topView) typeFilter(r rune) {
	switch {
	case r == '\r' || r == '\n':
		v.typing = false
	case r == keyEscape:
		v.typing, v.filter = false, ""
	case r == keyDelete || r == '\b':
		runes := []rune(v.filter)
		v.filter = string(runes[:max(0, len(runes)-1)])
	case unicode.IsPrint(r):
		v.filter += string(r)
	}
}

// shown are the locks that pass the filter: the most waited for first, then those that
// have been held longest.
func (v *topView) shown() []clientsdk.LockSummary {
	var list []clientsdk.LockSummary
	for _, l := range v.locks {
		if strings.Contains(l.Lock, v.filter) || l.Holder != nil && strings.Contains(l.Holder.Owner, v.filter) {
			list = append(list, l)
		}
	}
	slices.SortStableFunc(list, func(a, b clientsdk.LockSummary) int {
		return cmp.Or(b.Waiters-a.Waiters, since(a).Compare(since(b)), strings.Compare(a.Lock, b.Lock))
	})
	return list
}

// since is when the holder asked for the lock; now or later where there is none.
func since(l clientsdk.LockSummary) time.Time {
	if l.Holder == nil {
		return time.Unix(1<<40, 0)
	}
	return l.Holder.Since
}

// topColumns are the shares of the width that the columns get.
var topColumns = []struct {
	name   string
	least  int
	weight int // of what is left over
}{{"LOCK", 12, 3}, {"OWNER", 10, 2}, {"TOKEN", 10, 0}, {"HELD", 8, 0}, {"LEFT", 8, 0}, {"WAITERS", 7, 0}}

// render returns one page of that size: each line fills the width, so that nothing of the
// page before is left.
func (v *topView) render(now time.Time, columns, rows int) []string {
	list := v.shown()
	waiters := 0
	for _, l := range v.locks {
		waiters += l.Waiters
	}
	head := fmt.Sprintf("fenced  %d locks  %d waiters", len(v.locks), waiters)
	if v.at.IsZero() {
		head = "fenced  asking the server"
	}
	if v.typing || v.filter != "" {
		head += fmt.Sprintf("  filter: %s (%d)", v.filter, len(list))
	}
	names := make([]string, len(topColumns))
	for i, c := range topColumns {
		names[i] = c.name
	}
	lines := []string{fit(head, columns), reverse + row(names, columns) + plain}
	for _, l := range list[:max(0, min(len(list), rows-3))] {
		lines = append(lines, row(v.cells(l, now), columns))
	}
	for len(lines) < rows-1 {
		lines = append(lines, fit("", columns))
	}
	return append(lines[:max(0, rows-1)], fit(v.foot(), columns))
}

// foot is the last line: what went wrong, or what the keys do and what happened last.
func (v *topView) foot() string {
	switch {
	case v.fault != "":
		return "q quit  " + v.fault
	case v.typing:
		return "enter keep  esc clear"
	}
	return "q quit  / filter  " + v.event
}

func (v *topView) cells(l clientsdk.LockSummary, now time.Time) []string {
	cells := []string{safe(l.Lock), "-", "-", "-", "-", fmt.Sprint(l.Waiters)}
	if h := l.Holder; h != nil {
		cells[1], cells[2] = safe(h.Owner), h.Token.String()
		cells[3] = short(max(0, now.Sub(h.Since)))
		cells[4] = v.left(h.ExpiresInMS, now)
	}
	return cells
}

// left counts down from what the list said.
func (v *topView) left(ms *int64, now time.Time) string {
	if ms == nil {
		return remaining(nil)
	}
	n := max(0, *ms-now.Sub(v.at).Milliseconds())
	return remaining(&n)
}

// row lays cells out in the columns of a line of that width.
func row(cells []string, columns int) string {
	spare := columns
	weights := 0
	for _, c := range topColumns {
		spare -= c.least + 1
		weights += c.weight
	}
	var line strings.Builder
	for i, c := range topColumns {
		line.WriteString(fit(cells[i], c.least+max(0, spare)*c.weight/weights))
		line.WriteByte(' ')
	}
	return fit(line.String(), columns)
}

// fit cuts or fills text to a width in columns of the terminal.
func fit(text string, columns int) string {
	used := 0
	for i, r := range text {
		w := runeWidth(r)
		if used+w > columns {
			return text[:i] + strings.Repeat(" ", columns-used)
		}
		used += w
	}
	return text + strings.Repeat(" ", columns-used)
}

// runeWidth is how many columns a terminal gives to r.
func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
