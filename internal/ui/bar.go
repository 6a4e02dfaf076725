package ui

import (
	"strings"

	"github.com/pawlq/pawl/admin"
)

// bar shows counts as proportions.
type bar struct {
	Label  string
	Pieces []piece
}

// piece is a segment of a bar, in percent of its width.
type piece struct {
	State       string
	Count       int64
	From, Width float64
}

// leastWidth keeps a single task among a million visible.
const leastWidth = 1.2

// barOf makes a bar of labelled counts. The one called rest is left blank.
func barOf(counts []count) bar {
	var total int64
	var shown []count
	for _, c := range counts {
		if c.N > 0 {
			total += c.N
			shown = append(shown, c)
		}
	}
	var b bar
	var said []string
	at, room := 0.0, 100-leastWidth*float64(len(shown))
	for _, c := range shown {
		width := leastWidth + room*float64(c.N)/float64(total)
		b.Pieces = append(b.Pieces, piece{State: c.Word, Count: c.N, From: at, Width: width})
		if c.Word != "rest" {
			said = append(said, number(c.N)+" "+c.Word)
		}
		at += width
	}
	b.Label = strings.Join(said, ", ")
	if b.Label == "" {
		b.Label = "empty"
	}
	return b
}

// count is a labelled count.
type count struct {
	Word string
	N    int64
}

// countsOf returns a queue's counts in the order of a task's life.
func countsOf(d admin.Depth) []count {
	return []count{{"scheduled", d.Scheduled}, {"ready", d.Ready}, {"claimed", d.Claimed}, {"retrying", d.Retrying}, {"dead", d.Dead}, {"poisoned", d.Poisoned}}
}
