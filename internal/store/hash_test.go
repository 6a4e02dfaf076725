package store

import (
	"testing"
)

// The ranges of a state cover each row once, and end where the bytes do, not in the middle of a row. Equal states have
// equal ranges, and a change of one byte changes exactly the range that has it.
func TestRangesOfRows(t *testing.T) {
	ranges := func(s *Store, most int64) (all []RowHash) {
		snap := s.Snapshot()
		defer snap.Close()
		for from := []byte(nil); ; {
			sum, whole := snap.Hash(t.Context(), from, most)
			if !whole {
				t.Fatal("a hash is not complete")
			}
			all = append(all, sum)
			if from = sum.Next; from == nil {
				return all
			}
		}
	}
	one, two := source(t), source(t)
	round(t, two, "k38=other")
	whole := ranges(one, 0)
	if len(whole) != 1 || whole[0].Rows == 0 {
		t.Fatalf("without a bound there are the ranges %+v", whole)
	}
	for _, most := range []int64{1, 100, 5_000, 100_000, 1 << 40} {
		a, b := ranges(one, most), ranges(two, most)
		rows, differ := int64(0), 0
		for i, r := range a {
			if rows += r.Rows; most == 1 && r.Rows > 1 {
				t.Errorf("a range of 1 byte has %d rows", r.Rows)
			}
			if i < len(b) && r.Sum != b[i].Sum {
				differ++
			}
		}
		if rows != whole[0].Rows {
			t.Errorf("ranges of %d bytes have %d rows, want %d", most, rows, whole[0].Rows)
		}
		if most == 1 && differ != 1 {
			t.Errorf("one row differs, and %d ranges of a row each", differ)
		}
		if differ == 0 {
			t.Errorf("one row differs, and no range of %d bytes", most)
		}
		if again := ranges(source(t), most); len(again) != len(a) || again[0].Sum != a[0].Sum {
			t.Errorf("an equal state has other ranges of %d bytes", most)
		}
	}
}
