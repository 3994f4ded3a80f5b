package report

import (
	"strconv"
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
)

// The places of a picture, in its own units. It is so narrow that its text can be
// read on a telephone.
const (
	width   = 412
	laneA   = 86
	laneDB  = 222
	laneB   = 358
	head    = 64 // the first moment
	rowStep = 46
	gapStep = 26 // more where much time passes
	foot    = 30
)

// longGap is how much time must pass between two moments to be drawn as a gap.
const longGap = 100 * time.Millisecond

// A picture is the sequence of one reward, laid out.
type picture struct {
	Height, Bottom int
	Rows           []pictureRow
	// Holds and Stalls are bars on the workers' lines.
	Holds, Stalls []bar
	// Over is where A's lease was over; 0 where it never was.
	Over int
	Alt  string
}

type pictureRow struct {
	moment
	// T is the time since the first moment in milliseconds.
	T string
	Y int
	// X is the worker's line, To where the arrow ends, TextX and Anchor where the
	// text stands.
	X, To, TextX int
	Anchor       string
	// StoreY is where the database's answer stands.
	StoreY int
	Gap    bool
}

// Arrow reports whether the worker asks something of the database.
func (r pictureRow) Arrow() bool { return r.Store != "" }

// Pill reports whether the token is drawn: where the lock is got and where something
// is written.
func (r pictureRow) Pill() bool {
	switch r.Kind {
	case granted, writes, again, refused:
		return r.Token != 0
	}
	return false
}

// PillWidth is as wide as the token is long.
func (r pictureRow) PillWidth() int { return 6 + 6*len(strconv.FormatInt(r.Token, 10)) }

// PillX is where the token stands, on the far side of the worker's line.
func (r pictureRow) PillX() int {
	const apart = 9
	if r.Lane == 0 {
		return r.X - apart - r.PillWidth()
	}
	return r.X + apart
}

type bar struct {
	X, Y, Height int
	// Over marks the part of a hold for which the lease was over.
	Over bool
}

// draw lays the moments out from top to bottom.
func draw(moments []moment, alt string) *picture {
	p := &picture{Alt: alt}
	y := head
	for i, m := range moments {
		row := pictureRow{moment: m, T: thousands(m.At.Sub(moments[0].At).Milliseconds()), Y: y, X: laneA, TextX: laneA + 12, Anchor: "start", To: laneDB - 6}
		if m.Lane == 1 {
			row.X, row.TextX, row.Anchor, row.To = laneB, laneB-12, "end", laneDB+6
		}
		row.StoreY = y + 19
		if i > 0 && m.At.Sub(moments[i-1].At) > longGap {
			row.Gap = true
			row.Y += gapStep
			row.StoreY += gapStep
		}
		p.Rows = append(p.Rows, row)
		y = row.Y + rowStep
	}
	p.Bottom = y
	p.Height = y + foot
	p.bars()
	return p
}

// bars draws how long each worker had the lock, or thought so, and where it stood
// still. A's lease is over when B is granted: that is how B could be.
func (p *picture) bars() {
	begin, stalled := map[int]int{}, map[int]int{}
	for _, r := range p.Rows {
		switch r.Kind {
		case granted:
			begin[r.Lane] = r.Y
			if r.Lane == 1 && begin[0] > 0 && stalled[0] > 0 {
				p.Over = r.Y
			}
		case stalls:
			stalled[r.Lane] = r.Y
		case wakes:
			p.Stalls = append(p.Stalls, bar{X: r.X, Y: stalled[r.Lane], Height: r.Y - stalled[r.Lane]})
		case writes, again, refused:
			p.hold(r, begin[r.Lane])
			begin[r.Lane] = 0
		}
	}
}

// hold draws the bar of a hold that ends with row r.
func (p *picture) hold(r pictureRow, begin int) {
	if begin == 0 {
		return
	}
	if r.Lane == 0 && p.Over > begin {
		p.Holds = append(p.Holds, bar{X: r.X, Y: begin, Height: p.Over - begin}, bar{X: r.X, Y: p.Over, Height: r.Y - p.Over, Over: true})
		return
	}
	p.Holds = append(p.Holds, bar{X: r.X, Y: begin, Height: r.Y - begin})
}

// pictures draws both sides of a story.
func pictures(alone, guarded []ledger.Event, step int) (left, right *picture) {
	return draw(tell(alone, step, false), "Sequence without a fence: worker A stalls, its lease ends, worker B pays, A wakes up and pays again."),
		draw(tell(guarded, step, true), "Sequence with a fence: worker A stalls, its lease ends, worker B pays, A wakes up and its payment is refused.")
}
