package lanes

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct {
	at    order
	place int32
}

// Elements are added, changed and removed, and the order is that of a sorted list.
func TestRanking(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := ranking[*item]{order: func(i *item) order { return i.at }, place: func(i *item) *int32 { return &i.place }}
	var all []*item
	somewhere := func() order { return order{float64(rng.IntN(4)), rng.Uint64N(1 << 40)} }
	for step := range 3000 {
		switch n := len(all); {
		case n == 0 || n < 40 && rng.IntN(3) == 0:
			all = append(all, &item{at: somewhere(), place: -1})
			h.add(all[n])
		case rng.IntN(3) == 0:
			i := rng.IntN(n)
			gone := all[i]
			all = slices.Delete(all, i, i+1)
			if h.drop(gone); gone.place != -1 {
				t.Fatalf("step %d: a dropped element has place %d", step, gone.place)
			}
		default:
			i := all[rng.IntN(n)]
			i.at = somewhere()
			h.moved(i)
		}
		slices.SortFunc(all, func(a, b *item) int {
			if a.at.before(b.at) {
				return -1
			}
			return 1
		})
		if !heapOK(&h) || h.Len() != len(all) {
			t.Fatalf("step %d: %d elements are out of order: %v", step, len(all), h.items)
		}
		n := rng.IntN(len(all) + 3)
		var firsts, upTo []*item
		h.firsts(n, func(i *item) { firsts = append(firsts, i) })
		if want := all[:min(n, len(all))]; !slices.Equal(firsts, want) {
			t.Fatalf("step %d: the first %d of %d are %v, want %v", step, n, len(all), firsts, want)
		}
		most := somewhere()
		h.walk(func(o order) bool { return !most.before(o) }, func(i *item) { upTo = append(upTo, i) })
		if want := slices.IndexFunc(append(all, &item{at: order{rank: 9}}), func(i *item) bool {
			return most.before(i.at)
		}); len(upTo) != want {
			t.Fatalf("step %d: a walk visited %d elements, want %d", step, len(upTo), want)
		}
	}
}

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		a, b   order
		before bool
	}{
		{order{1, 9}, order{2, 3}, true}, {order{2, 3}, order{1, 9}, false}, {order{1, 3}, order{1, 4}, true},
		{order{1, 4}, order{1, 3}, false}, {order{1, 4}, order{1, 4}, false},
	} {
		if got := c.a.before(c.b); got != c.before {
			t.Errorf("%v before %v = %t", c.a, c.b, got)
		}
	}
}
