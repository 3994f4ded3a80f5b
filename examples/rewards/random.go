package rewards

import (
	"regexp"
	"strings"
)

// Shapes that generators of fresh ids and clocks make, and that names of seasons,
// ranks and quests do not have.
var random = []struct {
	shape *regexp.Regexp
	what  string
}{
	{regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "a UUID"},
	{regexp.MustCompile(`(?i)(^|[^0-9a-z])[0-7][0-9a-hjkmnp-tv-z]{25}($|[^0-9a-z])`), "a ULID"},
	{regexp.MustCompile(`(^|[^0-9])1[0-9]{9}([0-9]{3}|[0-9]{6}|[0-9]{9})?($|[^0-9])`), "a clock reading"},
	// A date with hours and minutes at least. A date alone, or with an hour, is a fact.
	{regexp.MustCompile(`(?i)(^|[^0-9])20[0-9]{2}-?[01][0-9]-?[0-3][0-9][-t]?[0-2][0-9]-?[0-5][0-9](-?[0-5][0-9])?(-?[0-9]{3,9})?z?($|[^0-9a-z])`), "a clock reading"},
	{regexp.MustCompile(`[0-9]{15,}`), "a number drawn from a generator"},
}

// longHex finds what a random hexadecimal id looks like; it needs a digit and a
// letter in it, which a regular expression cannot say.
var longHex = regexp.MustCompile(`(?i)[0-9a-f]{12,}`)

// whyRandom says why s looks as if it were made anew on each attempt, or "". It is a
// net for accidents and sees what has a known shape, or is long and reads like no
// word. A counter, a short random id and random words look like facts to it.
func whyRandom(s string) string {
	const so = "; built again on a retry it would be another id, and the reward would be paid again: build it from what was earned"
	for _, r := range random {
		if r.shape.MatchString(s) {
			return " looks like " + r.what + so
		}
	}
	for _, h := range longHex.FindAllString(s, -1) {
		if strings.ContainsAny(h, "0123456789") && strings.ContainsAny(strings.ToLower(h), "abcdef") {
			return " looks like random hexadecimal digits" + so
		}
	}
	if unreadable(strings.ToLower(s)) {
		return " looks like random letters and digits" + so
	}
	return ""
}

// Bounds of unreadable: so many pairs of neighbours are needed for a judgement, and
// this percentage of them must be odd. Random ids of 16 characters and more have 60
// to 90, names 5 to 35.
const (
	leastPairs = 12
	oddPercent = 45
)

// unreadable reports whether s is long and mostly made of pairs that names do not
// have: a letter beside a digit, or two letters that seldom follow each other.
// Pairs of digits say nothing, and a hyphen parts words.
func unreadable(s string) bool {
	pairs, odd := 0, 0
	for i := 1; i < len(s); i++ {
		a, b := s[i-1], s[i]
		switch {
		case isLetter(a) && isLetter(b):
			pairs++
			if strings.IndexByte(followers[a-'a'], b) < 0 {
				odd++
			}
		case isLetter(a) && isDigit(b), isDigit(a) && isLetter(b):
			pairs++
			odd++
		}
	}
	return pairs >= leastPairs && odd*100 >= oddPercent*pairs
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// followers[c] are the letters that often follow the letter c in names of things
// and places: the 260 commonest pairs of English words, and of names in games, also
// Korean, Japanese and German ones in Latin letters.
var followers = [26]string{
	"bcdegiklmnprstuvy",    // a
	"aeilorsu",             // b
	"acehiklortu",          // c
	"adeilorsu",            // d
	"abcdefgilmnopqrstvwx", // e
	"aefiloru",             // f
	"aeghilnorsu",          // g
	"aeiortu",              // h
	"abcdefglmnoprstvxz",   // i
	"eu",                   // j
	"aeis",                 // k
	"adeilostuy",           // l
	"abeimopsu",            // m
	"acdefgiklnostuv",      // n
	"abcdefgiklmnoprstuvw", // o
	"aehiloprstu",          // p
	"u",                    // q
	"acdefgiklmnorstuvy",   // r
	"acehiklmopstuy",       // s
	"acehilorstuy",         // t
	"abcefgilmnprst",       // u
	"aeio",                 // v
	"aehior",               // w
	"eipt",                 // x
	"einops",               // y
	"e",                    // z
}
