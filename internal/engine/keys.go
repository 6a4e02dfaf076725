package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// keyUse is what a key of a queue uses at the moment: tokens, and claims. It is a row, written when a claim begins. When one
// ends, the row is left as it is while the key has spent tokens or other claims: whether a task that it names is still claimed
// the task itself says. So a keyed task costs one row more than one without a key, and a key with a rate, none but that.
type keyUse struct {
	bucket *bucket // nil: it is full
	keyClaims
}

// keyClaims are the claimed tasks of a key.
type keyClaims struct {
	named []task.ID // those that the key's row names, up to maxNamed
	// others have rows of their own: the key's row must not grow with what a key runs.
	others map[task.ID]struct{}
}

// maxNamed is how many claimed tasks the row of a key names at most.
const maxNamed = 4

// claims is how many tasks of the key are claimed.
func (u *keyClaims) claims() int { return len(u.named) + len(u.others) }

func (u *keyClaims) addOther(id task.ID) {
	if u.others == nil {
		u.others = map[task.ID]struct{}{}
	}
	u.others[id] = struct{}{}
}

// each calls fn for the tasks of the key that are claimed, until it returns false.
func (u *keyClaims) each(fn func(task.ID) bool) {
	for _, id := range u.named {
		if !fn(id) {
			return
		}
	}
	for id := range u.others {
		if !fn(id) {
			return
		}
	}
}

func (u *keyUse) encode() []byte {
	r := schema.NewRow(32 + 18*len(u.named))
	if b := u.bucket; b != nil {
		r.Num(1, math.Float64bits(b.level))
		r.Num(2, uint64(b.at))
		r.Num(3, uint64(b.due))
	}
	for _, id := range u.named {
		r.Bytes(4, id[:])
	}
	return r
}

func decodeUse(row []byte) (u keyUse, err error) {
	b := bucket{}
	odd := false
	err = schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			b.level = math.Float64frombits(v)
		case 2:
			b.at = store.Time(v)
			u.bucket = &b
		case 3:
			b.due = store.Time(v)
		}
	}, func(tag protowire.Number, v []byte) {
		if tag == 4 {
			odd = odd || len(v) != len(task.ID{})
			u.named = append(u.named, task.ID{})
			copy(u.named[len(u.named)-1][:], v)
		}
	})
	switch {
	case err != nil:
	case math.IsNaN(b.level) || math.IsInf(b.level, 0):
		err = fmt.Errorf("a bucket of %v tokens", b.level)
	case odd:
		err = errors.New("an id of a claimed task that is none")
	}
	return u, err
}

// useOf is what a key uses, or the queue as a whole for "".
func (q *Queue) useOf(key string) keyUse {
	u := keyUse{bucket: q.buckets[key]}
	if f := q.lanes.flows[key]; f != nil && key != "" {
		u.keyClaims = f.use
	}
	return u
}

// writeUse stores what a key uses, or the queue for "".
func (r *Round) writeUse(q *Queue, key string) {
	u := q.useOf(key)
	if u.bucket == nil && len(u.named) == 0 {
		r.tx.Delete(schema.UseKey(q.ns, q.name, key))
		return
	}
	r.tx.Set(schema.UseKey(q.ns, q.name, key), u.encode())
}

// useKey takes what a claim of a task uses of its key.
func (r *Round) useKey(q *Queue, f *flow, id task.ID, x *schema.Exec) {
	u := &f.use
	named := len(u.named) < maxNamed
	if named {
		u.named = append(u.named, id)
	} else {
		u.addOther(id)
		r.tx.Set(schema.ClaimedKey(q.ns, q.name, x.Key, id), nil)
	}
	if r.takeTokens(q, x.Key, x) || named {
		r.writeUse(q, x.Key)
	}
}

// leaveKey gives back the claim of a task; false: it was not among those of its key.
func (r *Round) leaveKey(q *Queue, f *flow, id task.ID) bool {
	u := &f.use
	if at := slices.Index(u.named, id); at >= 0 {
		u.named = slices.Delete(u.named, at, at+1)
		if q.buckets[f.key] == nil && len(u.named) == 0 {
			r.writeUse(q, f.key)
		}
		return true
	}
	if _, counted := u.others[id]; counted {
		delete(u.others, id)
		r.tx.Delete(schema.ClaimedKey(q.ns, q.name, f.key, id))
		return true
	}
	return false
}

// readFlows finds which tasks of keys are claimed, and which buckets are not full. It comes before the lanes.
//
// A row that stands for nothing was left by a leader of feature level 2, which did not know of these rows. It goes with the next
// claim: to find out writes nothing.
func (r *Round) readFlows(q *Queue) {
	var others, uses [][]byte // keys of rows
	var ids []task.ID
	read := map[string]keyUse{}
	prefix := schema.QueueKey(q.ns, schema.TableClaimed, q.name)
	r.tx.Scan(prefix, schema.After(prefix), func(k, _ []byte) bool {
		others, ids = append(others, bytes.Clone(k)), append(ids, schema.IDAt(k))
		return true
	})
	prefix = schema.QueueKey(q.ns, schema.TableUse, q.name)
	r.tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		u, err := decodeUse(v)
		schema.Must(err)
		read[string(k)] = u
		uses, ids = append(uses, bytes.Clone(k)), append(ids, u.named...)
		return true
	})
	claimed := r.claimedOf(q, ids)
	keyed := int64(0)
	for _, row := range others {
		id := schema.IDAt(row)
		if x := claimed[id]; x != nil {
			f := q.flowOf(x.Key, r.now)
			f.use.addOther(id)
			f.running++
			keyed++
		} else {
			q.stale = append(q.stale, row)
		}
	}
	for _, row := range uses {
		u, key := read[string(row)], string(row[len(prefix):])
		named := slices.DeleteFunc(u.named, func(id task.ID) bool {
			x := claimed[id]
			return x == nil || x.Key != key
		})
		if u.bucket == nil && len(named) == 0 {
			q.stale = append(q.stale, row)
		}
		if u.bucket != nil {
			q.buckets[key] = u.bucket
		}
		if len(named) > 0 {
			f := q.flowOf(key, r.now)
			f.use.named = named
			f.running += len(named)
			keyed += int64(len(named))
		}
	}
	if rest := q.counts.Claimed - keyed; rest > 0 {
		q.flowOf("", r.now).running = int(rest)
	}
}

// claimedOf reads which of the tasks are claimed ones of the queue that have a key.
func (r *Round) claimedOf(q *Queue, ids []task.ID) map[task.ID]*schema.Exec {
	slices.SortFunc(ids, func(a, b task.ID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	claimed := map[task.ID]*schema.Exec{}
	r.tx.GetEach(keysOf(q.ns, schema.TableExec, ids), func(i int, row []byte) {
		x, err := schema.DecodeExec(row)
		schema.Must(err)
		if x.State == task.Claimed && x.Key != "" && x.Queue == q.name {
			claimed[ids[i]] = x
		}
	})
	return claimed
}

func (r *Round) dropStale(q *Queue) {
	for _, row := range q.stale {
		r.tx.Delete(row)
	}
	q.stale = nil
}
