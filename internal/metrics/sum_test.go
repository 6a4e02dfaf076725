package metrics

import "testing"

// A sum of counters that come, go and begin anew never falls, and counts nothing twice.
func TestSum(t *testing.T) {
	var s Sum[string, int]
	unknown := ^uint64(0)
	for i, c := range []struct {
		parts  []int
		values []uint64
		want   uint64
	}{
		{nil, nil, 0},
		{[]int{1, 2}, []uint64{5, 7}, 12},
		{[]int{1, 2}, []uint64{5, 9}, 14},
		{[]int{1, 2}, []uint64{unknown, 9}, 14}, // part 1 does not answer
		{[]int{1, 2}, []uint64{6, unknown}, 15},
		{[]int{2}, []uint64{10}, 16},       // another leads part 1
		{[]int{1, 2}, []uint64{2, 10}, 18}, // it is back, and began anew
		{[]int{1, 2}, []uint64{1, 10}, 19}, // it began anew in between
		{[]int{3}, []uint64{unknown}, 19},
		{[]int{3}, []uint64{4}, 23},
	} {
		got := s.Of(s.Begin(), "a", c.parts, func(i int) (uint64, bool) { return c.values[i], c.values[i] != unknown })
		if got != c.want {
			t.Errorf("step %d: the sum is %d, want %d", i, got, c.want)
		}
	}
	one := func(int) (uint64, bool) { return 1, true }
	if got := s.Of(s.Begin(), "b", []int{3}, one); got != 1 {
		t.Errorf("another series begins with %d", got)
	}
	s.Keep(func(series string) bool { return series == "b" })
	if a, b := s.Of(s.Begin(), "a", []int{3}, one), s.Of(s.Begin(), "b", []int{3}, one); a != 1 || b != 1 {
		t.Errorf("of a series that was forgotten there are %d, and of one that was kept %d", a, b)
	}
}

// Of scrapes at the same time one adds what it read: what the other read may be older, or newer.
func TestSumsAtOnce(t *testing.T) {
	var s Sum[string, int]
	for i, c := range []struct {
		began, value, want uint64
	}{{s.Begin(), 5, 5}, {0, 4, 5}, {0, 6, 5}} {
		if got := s.Of(c.began, "a", []int{1}, func(int) (uint64, bool) { return c.value, true }); got != c.want {
			t.Errorf("step %d: the sum is %d, want %d", i, got, c.want)
		}
	}
	began := s.Begin()
	if got := s.Of(began, "b", []int{1}, func(int) (uint64, bool) { return 3, true }); got != 3 {
		t.Errorf("another series is %d, want 3", got)
	}
	if got := s.Of(began, "a", []int{1}, func(int) (uint64, bool) { return 7, true }); got != 7 {
		t.Errorf("after another series the sum is %d, want 7", got)
	}
}
