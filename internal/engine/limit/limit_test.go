package limit

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// EmptyUntil returns when an empty bucket has a token again: it has one then, and none a moment before. The call does
// not change the bucket.
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
			t.Fatalf("seed %d: %+v with rate %v is empty: %t", seed, was, rate, empty)
		case empty && (!has(until) || until > now+1 && has(until-store.Time(time.Second/time.Microsecond))):
			t.Fatalf("seed %d: %+v with rate %v is reported to have a token again at %v", seed, was, rate, until)
		}
	}
	var none *Bucket
	if _, empty := none.EmptyUntil(task.Rate{Limit: 1, Period: time.Second}, now); empty {
		t.Error("a full bucket is reported as empty")
	}
	if _, empty := (&Bucket{Level: -1, At: now}).EmptyUntil(task.Rate{}, now); empty {
		t.Error("a bucket without a rate is reported as empty")
	}
}

// FuzzDecodeUse: any row is refused, or decoded to a use that survives encoding and decoding.
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
			t.Errorf("%x was decoded as %+v, which was decoded as %+v, %v", row, u, again, err)
		}
	})
}

// A bucket is full when it has all its tokens, within rounding errors, and nothing is due. It is empty until the moment
// at which it has a token.
func TestBucketBounds(t *testing.T) {
	r := task.Rate{Limit: 2, Period: time.Second}
	for what, c := range map[string]struct {
		b    Bucket
		full bool
	}{
		"all":            {Bucket{Level: 2}, true},
		"more":           {Bucket{Level: 3}, true},
		"about all":      {Bucket{Level: 2 - 1e-6}, true},
		"less":           {Bucket{Level: 2 - 2e-6}, false},
		"due":            {Bucket{Level: 2, Due: 1}, false},
		"filled by time": {Bucket{Level: 1, At: -store.Time(time.Second / time.Microsecond)}, true},
	} {
		if got := c.b.Full(r, 0); got != c.full {
			t.Errorf("%s: full = %v", what, got)
		}
	}
	if until, empty := (&Bucket{Level: Enough}).EmptyUntil(r, 0); empty {
		t.Errorf("a bucket with enough for a task is empty until %v", until)
	}
	if until, empty := (&Bucket{Level: 1 - 2e-6}).EmptyUntil(task.Rate{Limit: 1_000_000, Period: time.Second}, 0); !empty || until != 1 {
		t.Errorf("a bucket with slightly too little is empty until %v, %v", until, empty)
	}
}

// An iteration over the claims of a key may stop at any of them.
func TestEachClaim(t *testing.T) {
	if MaxNamed != 4 {
		t.Errorf("a row names %d claims, but those of older releases name 4", MaxNamed)
	}
	c := Claims{Named: []task.ID{{1}, {2}}}
	c.Add(task.ID{3}, &schema.Exec{}, false)
	c.Add(task.ID{4}, &schema.Exec{}, false)
	for stop := 1; stop <= 5; stop++ {
		seen := 0
		c.Each(func(task.ID) bool { seen++; return seen < stop })
		if want := min(stop, 4); seen != want || c.Count() != 4 {
			t.Errorf("an iteration stopped at claim %d of %d visited %d", stop, c.Count(), seen)
		}
	}
}

// An invalid row is refused with an error that says what is wrong.
func TestUseRows(t *testing.T) {
	level := func(f float64) []byte { return (&Use{Bucket: &Bucket{Level: f, At: 1}}).Encode() }
	field := func(tag byte, b string) []byte { return append([]byte{tag<<3 | 2, byte(len(b))}, b...) }
	empty := (&Use{}).Encode()
	id := string(make([]byte, len(task.ID{})))
	for what, c := range map[string]struct {
		row  []byte
		says string // "": it is valid
	}{
		"a level":             {level(-5), ""},
		"no number":           {level(math.NaN()), "a bucket of NaN tokens"},
		"infinitely many":     {level(math.Inf(1)), "a bucket of +Inf tokens"},
		"infinitely few":      {level(math.Inf(-1)), "a bucket of -Inf tokens"},
		"an id":               {append(bytes.Clone(empty), field(4, id)...), ""},
		"a short id":          {append(bytes.Clone(empty), field(4, id[1:])...), "an id of a claimed task"},
		"a short id, then id": {append(append(bytes.Clone(empty), field(4, id[1:])...), field(4, id)...), "an id of a claimed task"},
		"a later release's":   {append(bytes.Clone(empty), field(5, "x")...), ""},
		"cut":                 {append(bytes.Clone(empty), 4<<3|2, 16), "EOF"},
	} {
		u, err := DecodeUse(c.row)
		if c.says == "" && (err != nil || what == "a later release's" && u.Count() != 0) ||
			c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: DecodeUse = %+v, %v, want %q", what, u, err, c.says)
		}
	}
}
