package chart

import (
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
)

// Bar shows counts as proportions.
type Bar struct {
	Label  string
	Pieces []BarPiece
}

// BarPiece is a segment of a bar, in percent of its width.
type BarPiece struct {
	State       string
	Count       int64
	From, Width float64
}

// leastWidth keeps a single task among a million visible.
const leastWidth = 1.2

// NewBar makes a bar of labeled counts. The one called rest is left blank.
func NewBar(counts []Count) Bar {
	var total int64
	var shown []Count
	for _, c := range counts {
		if c.N > 0 {
			total += c.N
			shown = append(shown, c)
		}
	}
	var b Bar
	var parts []string
	at, room := 0.0, 100-leastWidth*float64(len(shown))
	for _, c := range shown {
		width := leastWidth + room*float64(c.N)/float64(total)
		b.Pieces = append(b.Pieces, BarPiece{State: c.Word, Count: c.N, From: at, Width: width})
		if c.Word != "rest" {
			parts = append(parts, format.Number(c.N)+" "+c.Word)
		}
		at += width
	}
	b.Label = strings.Join(parts, ", ")
	if b.Label == "" {
		b.Label = "empty"
	}
	return b
}

// Count is a labeled count.
type Count struct {
	Word string
	N    int64
}

// DepthCounts returns a queue's counts in the order of a task's life.
func DepthCounts(d admin.Depth) []Count {
	return []Count{{"scheduled", d.Scheduled}, {"ready", d.Ready}, {"claimed", d.Claimed}, {"retrying", d.Retrying}, {"dead", d.Dead},
		{"poisoned", d.Poisoned}}
}
