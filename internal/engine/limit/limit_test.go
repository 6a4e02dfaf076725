package limit

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// An empty bucket says when it has a token again: it has one then, and none a moment before. To ask changes nothing.
func TestEmptyUntil(t *testing.T) {
	now := store.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test that can be repeated
		rate := task.Rate{Limit: 1 + r.IntN(100), Period: time.Duration(1+r.IntN(3600)) * time.Second}
		b := &Bucket{Level: 2 - 10*r.Float64(), At: now.Add(-time.Duration(r.IntN(1000)) * time.Millisecond)}
		was := *b
		until, empty := b.EmptyUntil(rate, now)
		if *b != was {
			t.Fatalf("seed %d: the bucket changed from %+v to %+v", seed, was, *b)
		}
		has := func(at store.Time) bool {
			c := was
			c.Fill(rate, at)
			return c.Level >= Enough
		}
		switch {
		case empty == has(now):
			t.Fatalf("seed %d: %+v of %v is empty: %t", seed, was, rate, empty)
		case empty && (!has(until) || until > now+1 && has(until-store.Time(time.Second/time.Microsecond))):
			t.Fatalf("seed %d: %+v of %v has a token again at %v", seed, was, rate, until)
		}
	}
	var none *Bucket
	if _, empty := none.EmptyUntil(task.Rate{Limit: 1, Period: time.Second}, now); empty {
		t.Error("a bucket that is full is empty")
	}
	if _, empty := (&Bucket{Level: -1, At: now}).EmptyUntil(task.Rate{}, now); empty {
		t.Error("a bucket without a rate is empty")
	}
}

// FuzzDecodeUse: whatever lies in a row, it is refused, or read as what is written as it was read.
func FuzzDecodeUse(f *testing.F) {
	f.Add((&Use{Bucket: &Bucket{Level: 0.5, At: 7, Due: 9}, Claims: Claims{Named: []task.ID{{1}, {2}}}}).Encode())
	f.Add((&Use{}).Encode())
	f.Fuzz(func(t *testing.T, row []byte) {
		u, err := DecodeUse(row)
		if err != nil {
			return
		}
		once := u.Encode()
		again, err := DecodeUse(once)
		if err != nil || !bytes.Equal(again.Encode(), once) {
			t.Errorf("%x is read as %+v, which is read as %+v, %v", row, u, again, err)
		}
	})
}
