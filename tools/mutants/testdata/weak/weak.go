// Package weak has code of every kind that mutants are made of, and tests that let half of each through.
package weak

import (
	"errors"
	"slices"
	"sync"
)

const most = 3

// Both lets half a condition through.
func Both(a, b bool) int {
	if a && b {
		return 1
	}
	return 2
}

// Fits lets its boundary through.
func Fits(n int) bool { return n < most }

// Least is tested well.
func Least(a, b int) int { return min(a, b) }

// Kind lets a case through.
func Kind(s string) bool {
	switch s {
	case "a", "b":
		return true
	}
	return false
}

// Disk is what is synced or not.
type Disk struct {
	mu     sync.Mutex
	Synced int
	Fails  bool
}

// Sync counts.
func (d *Disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Fails {
		return errors.New("no")
	}
	d.Synced++
	return nil
}

// Save lets a sync left out through.
func Save(d *Disk) error {
	if err := d.Sync(); err != nil {
		return err
	}
	return nil
}

// Range lets swapped results through.
func Range() (lo, hi int) {
	a, b := 1, 2
	return a, b
}

// Alone is not called.
func Alone(m map[string]int) { delete(m, "a") }

// Sign lets through what it says of some: no test comes to the body of its case.
func Sign(n int) string {
	switch {
	case n < 0:
		return "-"
	}
	return "+"
}

// Any has a condition behind a function.
func Any(ns []int, b bool) bool {
	return slices.ContainsFunc(ns, func(n int) bool { return n == 1 }) &&
		b
}

// Point is what Put changes.
type Point struct {
	X, Y int
	of   []string
}

// Put lets through what it assigns to one of two, and a field that is not set.
func Put(p *Point) *Point {
	p.X = 3
	p.Y += 3
	_ = p
	return &Point{X: p.X, Y: 4, of: nil}
}
