package limit

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Use is the row of what a key uses: tokens and claims. It is written when a claim begins. When one ends, the row stays
// as it is while the key has spent tokens or other claims: readers check whether the listed tasks are still claimed. So
// a keyed task costs one row more than a task without a key, and a rate costs no further row.
type Use struct {
	Bucket *Bucket // nil: it is full
	Claims
}

// Claims are the claimed tasks of a key.
type Claims struct {
	Named []task.ID // those listed in the key's row, up to MaxNamed
	// Others have rows of their own, so that the key's row does not grow with its claims.
	Others map[task.ID]struct{}
	// Yielding is how many of them earlier tasks of the key need not wait for.
	Yielding int
}

// MaxNamed is the maximum number of claimed tasks listed in the row of a key.
const MaxNamed = 4

// Count returns how many tasks of the key are claimed.
func (u *Claims) Count() int { return len(u.Named) + len(u.Others) }

// Add adds a claimed task: one that the key's row names, or one that has a row of its own.
func (u *Claims) Add(id task.ID, x *schema.Exec, named bool) {
	if x.Claim.Yields {
		u.Yielding++
	}
	if named {
		u.Named = append(u.Named, id)
		return
	}
	if u.Others == nil {
		u.Others = map[task.ID]struct{}{}
	}
	u.Others[id] = struct{}{}
}

// remove removes a claimed task, and reports whether the key's row named it; ok is false if it was not there.
func (u *Claims) remove(id task.ID, x *schema.Exec) (named, ok bool) {
	at := slices.Index(u.Named, id)
	named = at >= 0
	if _, ok = u.Others[id]; !ok && !named {
		return false, false
	}
	if named {
		u.Named = slices.Delete(u.Named, at, at+1)
	} else {
		delete(u.Others, id)
	}
	if x.Claim.Yields {
		u.Yielding--
	}
	return named, true
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
func (u *Use) Encode() []byte { return schema.Encode(32+18*len(u.Named), u, (*Use).fields) }

// DecodeUse decodes a row. The error says what is damaged.
func DecodeUse(row []byte) (u Use, err error) {
	f := schema.Decoding(row)
	for f.Next() {
		u.fields(&f)
	}
	return u, f.Err()
}

func (u *Use) fields(f *schema.Fields) {
	var b Bucket
	if u.Bucket != nil {
		b = *u.Bucket
	}
	f.Float(1, &b.Level)
	schema.Num(f, 2, &b.At)
	schema.Num(f, 3, &b.Due)
	if f.Encoding() {
		for _, id := range u.Named {
			f.Put(4, id[:])
		}
		return
	}
	if math.IsNaN(b.Level) || math.IsInf(b.Level, 0) {
		f.Fail(fmt.Errorf("a bucket of %v tokens", b.Level))
	}
	if b.At != 0 {
		u.Bucket = new(b)
	}
	for id := range f.Each(4) {
		if len(id) != len(task.ID{}) {
			f.Fail(errors.New("an id of a claimed task that is none"))
			return
		}
		u.Named = append(u.Named, task.ID(id))
	}
}
