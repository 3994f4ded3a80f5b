package rewards

import (
	"fmt"
	"math/rand/v2"
)

//go:generate go run ./rewardctl season --week 34 --players 180 --out testdata/season-week-34.ndjson

// Season returns the deliveries of a week's end for so many players: for each
// the reward for the rank and for two quests, and a fifth of all rewards a second
// time, as brokers do, from 1 to 150 places later. The same arguments give the
// same deliveries for ever: the order comes from a generator that is part of Go's
// promise of compatibility.
func Season(week, players int) []Reward {
	dice := rand.New(rand.NewPCG(uint64(week), uint64(players)))
	var owed []Reward
	for rank, p := range dice.Perm(players) {
		owed = append(owed,
			reward(week, p+1, "rank", fmt.Sprint(rank+1), rankAmount(rank+1)),
			reward(week, p+1, "quest", "daily-"+fmt.Sprint(1+dice.IntN(7)), 50),
			reward(week, p+1, "quest", "boss-"+fmt.Sprint(1+dice.IntN(3)), 150))
	}
	dice.Shuffle(len(owed), func(i, j int) { owed[i], owed[j] = owed[j], owed[i] })

	again := make(map[int][]Reward) // by the place after which they come
	for _, i := range dice.Perm(len(owed))[:len(owed)/5] {
		at := min(i+1+dice.IntN(150), len(owed)-1)
		again[at] = append(again[at], owed[i])
	}
	var deliveries []Reward
	for i, r := range owed {
		deliveries = append(append(deliveries, r), again[i]...)
	}
	return deliveries
}

// rankAmount pays the top three, the top ten, the top hundred and the rest.
func rankAmount(rank int) int64 {
	switch {
	case rank <= 3:
		return 10_000 / int64(rank)
	case rank <= 10:
		return 2_000
	case rank <= 100:
		return 500
	default:
		return 100
	}
}

func reward(week, number int, kind, item string, amount int64) Reward {
	p := fmt.Sprint(number)
	id, err := Event{Season: "2026", Content: fmt.Sprintf("week-%d", week), Player: p, Kind: kind, Item: item}.ID()
	if err != nil {
		panic(err) // the parts are ours
	}
	return Reward{Player: p, Event: id, Amount: amount}
}
