package lanes

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// With all candidates at hand, turns are in proportion to the weights and spread out.
func TestSmooth(t *testing.T) {
	c, weights := make(Credit, 3), []int{5, 1, 3}
	turns := ""
	for range 9 {
		turns += string(rune('a' + c.Next(func(i int) int { return weights[i] })))
	}
	if turns != "acaabacac" && turns != "acabacaca" {
		t.Errorf("turns by weights %v: %s", weights, turns)
	}
	if fmt.Sprint(c) != "[0 0 0]" {
		t.Errorf("after a whole round the credit is %v", c)
	}
	if at := c.Next(func(int) int { return 0 }); at != -1 || fmt.Sprint(c) != "[0 0 0]" {
		t.Errorf("with nothing at hand, %d is next, and the credit %v", at, c)
	}
}

// Whichever candidates have something for each claim, no candidate is ever owed two turns, nor does it owe them.
func TestDeviationIsBounded(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 2 + rng.IntN(9)
		weights, all := make([]int, n), 0
		for i := range weights {
			weights[i] = []int{1, 2, 10, 70, 1000}[rng.IntN(5)]
			all += weights[i]
		}
		mixes := make([][]bool, 5) // of what claims find
		for i := range mixes {
			mixes[i] = make([]bool, n)
			for k := range mixes[i] {
				mixes[i][k] = rng.IntN(2) == 0
			}
		}
		c, owed := make(Credit, n), make([]int, n)
		for step := range 5000 {
			mix := mixes[(step*(1+int(seed)%3)+rng.IntN(1+int(seed)%2))%len(mixes)]
			at := c.Next(func(i int) int {
				if mix[i] {
					return weights[i]
				}
				return 0
			})
			for i := range owed {
				if mix[i] {
					owed[i] += weights[i]
					owed[at] -= weights[i]
				}
			}
			for i, o := range owed {
				if o >= 2*all || o <= -2*all {
					t.Fatalf("seed %d, step %d: candidate %d of weights %v is owed %d", seed, step, i, weights, o)
				}
			}
		}
	}
}

// A candidate that is skipped keeps its place: one that is often held gets its share of what it could have had.
func TestSkippedKeepsItsPlace(t *testing.T) {
	c, weights, got := make(Credit, 2), []int{9, 1}, make([]int, 2)
	for step := range 2000 {
		at := c.Next(func(i int) int {
			if i == 1 && step%2 == 0 {
				return 0
			}
			return weights[i]
		})
		got[at]++
	}
	if got[1] < 99 || got[1] > 101 {
		t.Errorf("a candidate with a tenth of the weights got %d of 1,000 claims that could take it", got[1])
	}
}

// Claims for the same types share a credit, in whatever order they name them; others have their own.
func TestCreditsByTypes(t *testing.T) {
	var b CreditsByTypes
	xy := b.Of([]string{"x", "y"}, 2)
	if yx := b.Of([]string{"y", "x"}, 2); &yx[0] != &xy[0] {
		t.Error("the order of types matters")
	}
	for _, types := range [][]string{nil, {"x"}, {"y"}, {"xy"}, {"x", "z"}} {
		if o := b.Of(types, 2); &o[0] == &xy[0] {
			t.Errorf("types %q have the credit of x and y", types)
		}
	}
}

// If each claim is for other types, the memory is bounded, and all candidates make progress.
func TestTypesThatNeverRepeat(t *testing.T) {
	var b CreditsByTypes
	weights, got := []int{3, 1}, make([]int, 2)
	for i := range 4000 {
		stable := b.Of(nil, 2) // used often, so it stays
		stable[0] = 5
		got[b.Of([]string{fmt.Sprint(i)}, 2).Next(func(i int) int { return weights[i] })]++
	}
	if got[1] < 900 || got[1] > 1000 {
		t.Errorf("a candidate with a quarter of the weights got %d of 4,000 claims", got[1])
	}
	if len(b.recent) != maxTypes || b.Of(nil, 2)[0] != 5 {
		t.Errorf("%d sets of types are kept, and the credit of one in use is %v", len(b.recent), b.Of(nil, 2))
	}
}

// The credits of a Book are by namespace, queues, weights and types.
func TestBook(t *testing.T) {
	var b TurnBook
	of := func(ns, queue string, weight int, types ...string) *int {
		return &b.Of(ns, 1, func(int) (string, int) { return queue, weight }, types)[0]
	}
	one := of("n", "q", 1)
	if of("n", "q", 1) != one {
		t.Error("equal claims have different credits")
	}
	if of("m", "q", 1) == one || of("n", "r", 1) == one || of("n", "q", 2) == one || of("n", "q", 1, "x") == one {
		t.Error("different claims have the same credit")
	}
	pair := b.Of("n", 2, func(i int) (string, int) { return []string{"q", "r"}[i], 1 }, nil)
	if len(pair) != 2 {
		t.Errorf("two queues have the credit %v", pair)
	}
}

// A Book holds up to a million numbers.
func TestBookIsBounded(t *testing.T) {
	if maxSize != 1_000_000 {
		t.Errorf("a book holds %d numbers, want 1,000,000", maxSize)
	}
	b := TurnBook{size: maxSize - 3}
	b.sets = map[setKey]*CreditsByTypes{}
	claim := func(queue string, types ...string) {
		b.Of("n", 2, func(i int) (string, int) { return queue, i + 1 }, types)
	}
	claim("a")
	claim("b", "x")
	claim("b", "y")
	if len(b.sets) != 2 || b.size != maxSize+3 {
		t.Errorf("at the bound, there are %d sets of %d numbers", len(b.sets), b.size)
	}
	if claim("c"); len(b.sets) != 1 || b.size != 2 {
		t.Errorf("beyond the bound, there are %d sets of %d numbers", len(b.sets), b.size)
	}
}
