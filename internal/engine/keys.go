package engine

import (
	"bytes"
	"slices"

	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// useOf is what a key uses, or the queue as a whole for "".
func (q *Queue) useOf(key string) limit.Use {
	u := limit.Use{Bucket: q.buckets[key]}
	if f := q.lanes.Known(key); f != nil && key != "" {
		u.Claims = f.Use
	}
	return u
}

// writeUse stores what a key uses, or the queue for "".
func (r *Round) writeUse(q *Queue, key string) {
	u := q.useOf(key)
	if u.Bucket == nil && len(u.Named) == 0 {
		r.tx.Delete(schema.UseKey(q.ns, q.name, key))
		return
	}
	r.tx.Set(schema.UseKey(q.ns, q.name, key), u.Encode())
}

// useKey takes what a claim of a task uses of its key.
func (r *Round) useKey(q *Queue, f *lanes.Flow, id task.ID, x *schema.Exec) {
	u := &f.Use
	named := len(u.Named) < limit.MaxNamed
	if named {
		u.Named = append(u.Named, id)
	} else {
		u.AddOther(id)
		r.tx.Set(schema.ClaimedKey(q.ns, q.name, x.Key, id), nil)
	}
	if r.takeTokens(q, x.Key, x) || named {
		r.writeUse(q, x.Key)
	}
}

// leaveKey gives back the claim of a task; false: it was not among those of its key.
func (r *Round) leaveKey(q *Queue, f *lanes.Flow, id task.ID) bool {
	u := &f.Use
	if at := slices.Index(u.Named, id); at >= 0 {
		u.Named = slices.Delete(u.Named, at, at+1)
		if q.buckets[f.Key] == nil && len(u.Named) == 0 {
			r.writeUse(q, f.Key)
		}
		return true
	}
	if _, counted := u.Others[id]; counted {
		delete(u.Others, id)
		r.tx.Delete(schema.ClaimedKey(q.ns, q.name, f.Key, id))
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
	read := map[string]limit.Use{}
	prefix := schema.QueueKey(q.ns, schema.TableClaimed, q.name)
	r.tx.Scan(prefix, schema.After(prefix), func(k, _ []byte) bool {
		others, ids = append(others, bytes.Clone(k)), append(ids, schema.IDAt(k))
		return true
	})
	prefix = schema.QueueKey(q.ns, schema.TableUse, q.name)
	r.tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		u, err := limit.DecodeUse(v)
		schema.Must(err)
		read[string(k)] = u
		uses, ids = append(uses, bytes.Clone(k)), append(ids, u.Named...)
		return true
	})
	claimed := r.claimedOf(q, ids)
	keyed := int64(0)
	for _, row := range others {
		id := schema.IDAt(row)
		if x := claimed[id]; x != nil {
			f := q.lanes.Flow(x.Key, r.now)
			f.Use.AddOther(id)
			f.Running++
			keyed++
		} else {
			q.stale = append(q.stale, row)
		}
	}
	for _, row := range uses {
		u, key := read[string(row)], string(row[len(prefix):])
		named := slices.DeleteFunc(u.Named, func(id task.ID) bool {
			x := claimed[id]
			return x == nil || x.Key != key
		})
		if u.Bucket == nil && len(named) == 0 {
			q.stale = append(q.stale, row)
		}
		if u.Bucket != nil {
			q.buckets[key] = u.Bucket
		}
		if len(named) > 0 {
			f := q.lanes.Flow(key, r.now)
			f.Use.Named = named
			f.Running += len(named)
			keyed += int64(len(named))
		}
	}
	if rest := q.counts.Claimed - keyed; rest > 0 {
		q.lanes.Flow("", r.now).Running = int(rest)
	}
}

// claimedOf reads which of the tasks are claimed ones of the queue that have a key.
func (r *Round) claimedOf(q *Queue, ids []task.ID) map[task.ID]*schema.Exec {
	slices.SortFunc(ids, func(a, b task.ID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	claimed := map[task.ID]*schema.Exec{}
	r.tx.GetEach(schema.IDKeys(q.ns, schema.TableExec, ids), func(i int, row []byte) {
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
