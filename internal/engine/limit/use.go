package limit

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Use is the row of what a key uses: tokens and claims. It is written when a claim begins. When one ends, the row stays as it is while the key has
// spent tokens or other claims: readers check whether the listed tasks are still claimed. So a keyed task costs one row more than a task without a
// key, and a rate costs no further row.
type Use struct {
	Bucket *Bucket // nil: it is full
	Claims
}

// Claims are the claimed tasks of a key.
type Claims struct {
	Named []task.ID // those listed in the key's row, up to MaxNamed
	// Others have rows of their own, so that the key's row does not grow with its claims.
	Others map[task.ID]struct{}
}

// MaxNamed is the maximum number of claimed tasks listed in the row of a key.
const MaxNamed = 4

// Count returns how many tasks of the key are claimed.
func (u *Claims) Count() int { return len(u.Named) + len(u.Others) }

// AddOther adds a claimed task that has a row of its own.
func (u *Claims) AddOther(id task.ID) {
	if u.Others == nil {
		u.Others = map[task.ID]struct{}{}
	}
	u.Others[id] = struct{}{}
}

// Each calls fn for the claimed tasks of the key, until it returns false.
func (u *Claims) Each(fn func(task.ID) bool) {
	for _, id := range u.Named {
		if !fn(id) {
			return
		}
	}
	for id := range u.Others {
		if !fn(id) {
			return
		}
	}
}

// Encode returns the row.
func (u *Use) Encode() []byte {
	r := schema.NewRow(32 + 18*len(u.Named))
	if b := u.Bucket; b != nil {
		r.Num(1, math.Float64bits(b.Level))
		r.Num(2, uint64(b.At))
		r.Num(3, uint64(b.Due))
	}
	for _, id := range u.Named {
		r.Bytes(4, id[:])
	}
	return r
}

// DecodeUse decodes a row. The error says what is damaged.
func DecodeUse(row []byte) (u Use, err error) {
	b := Bucket{}
	odd := false
	err = schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			b.Level = math.Float64frombits(v)
		case 2:
			b.At = store.Time(v)
			u.Bucket = &b
		case 3:
			b.Due = store.Time(v)
		}
	}, func(tag protowire.Number, v []byte) {
		if tag == 4 {
			odd = odd || len(v) != len(task.ID{})
			u.Named = append(u.Named, task.ID{})
			copy(u.Named[len(u.Named)-1][:], v)
		}
	})
	switch {
	case err != nil:
	case math.IsNaN(b.Level) || math.IsInf(b.Level, 0):
		err = fmt.Errorf("a bucket of %v tokens", b.Level)
	case odd:
		err = errors.New("an id of a claimed task that is none")
	}
	return u, err
}
