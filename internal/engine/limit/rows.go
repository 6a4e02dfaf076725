package limit

import (
	"bytes"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Begin adds a task to the claims of its key and takes its tokens. It reports whether it took tokens.
func (s *Set) Begin(r Round, u *Claims, id task.ID, x *schema.Exec) (taken bool) {
	s.dropStale(r.Tx())
	named := len(u.Named) < MaxNamed
	if u.Add(id, x, named); !named {
		r.Tx().Set(schema.ClaimedKey(s.ns, s.queue, x.Key, id), nil)
	}
	if taken = s.take(r, x.Key, x); taken || named {
		s.write(r, x.Key, *u)
	}
	return taken
}

// End removes a task from the claims of its key; false: it was not among them.
func (s *Set) End(r Round, u *Claims, id task.ID, x *schema.Exec) bool {
	named, ok := u.remove(id, x)
	switch {
	case !ok:
	case !named:
		r.Tx().Delete(schema.ClaimedKey(s.ns, s.queue, x.Key, id))
	case s.buckets[x.Key] == nil && len(u.Named) == 0:
		s.write(r, x.Key, *u)
	}
	return ok
}

// write stores what a key uses, or the queue if key is "".
func (s *Set) write(r Round, key string, c Claims) {
	u := Use{Bucket: s.buckets[key], Claims: c}
	if u.Bucket == nil && len(u.Named) == 0 {
		r.Tx().Delete(schema.UseKey(s.ns, s.queue, key))
		return
	}
	r.Tx().Set(schema.UseKey(s.ns, s.queue, key), u.Encode())
}

// Read reads the buckets that are not full, and calls claimed for each claimed task of a key. It must be called before the lanes are read.
//
// Read writes nothing: the next claim deletes the rows that list no claimed task and have no bucket.
func (s *Set) Read(tx *store.Tx, claimed func(id task.ID, x *schema.Exec, named bool)) {
	var others, uses [][]byte // keys of rows
	var ids []task.ID
	read := map[string]Use{}
	prefix := schema.QueueKey(s.ns, schema.TableClaimed, s.queue)
	tx.Scan(prefix, schema.After(prefix), func(k, _ []byte) bool {
		others, ids = append(others, bytes.Clone(k)), append(ids, schema.IDAt(k))
		return true
	})
	prefix = schema.QueueKey(s.ns, schema.TableUse, s.queue)
	tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		u, err := DecodeUse(v)
		u = schema.MustRow(k, u, err)
		read[string(k)] = u
		uses, ids = append(uses, bytes.Clone(k)), append(ids, u.Named...)
		return true
	})
	of := s.claimedOf(tx, ids)
	for _, row := range others {
		id := schema.IDAt(row)
		if x := of[id]; x != nil {
			claimed(id, x, false)
		} else {
			s.stale = append(s.stale, row)
		}
	}
	for _, row := range uses {
		u, key := read[string(row)], string(row[len(prefix):])
		named := slices.DeleteFunc(u.Named, func(id task.ID) bool { return of[id] == nil || of[id].Key != key })
		if u.Bucket == nil && len(named) == 0 {
			s.stale = append(s.stale, row)
		}
		if u.Bucket != nil {
			s.buckets[key] = u.Bucket
		}
		for _, id := range named {
			claimed(id, of[id], true)
		}
	}
}

// claimedOf returns those of the tasks that are claimed, of this queue, and have a key.
func (s *Set) claimedOf(tx *store.Tx, ids []task.ID) map[task.ID]*schema.Exec {
	slices.SortFunc(ids, task.ID.Compare)
	ids = slices.Compact(ids)
	claimed := map[task.ID]*schema.Exec{}
	tx.GetEach(schema.IDKeys(s.ns, schema.TableExec, ids), func(i int, row []byte) {
		x := schema.Must(schema.DecodeExec(row))
		if x.State == task.Claimed && x.Key != "" && x.Queue == s.queue {
			claimed[ids[i]] = x
		}
	})
	return claimed
}

func (s *Set) dropStale(tx *store.Tx) {
	for _, row := range s.stale {
		tx.Delete(row)
	}
	s.stale = nil
}

// Drop removes the rows of a queue that is deleted.
func (s *Set) Drop(tx *store.Tx) {
	prefix := schema.QueueKey(s.ns, schema.TableUse, s.queue)
	var keys [][]byte
	tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		u, err := DecodeUse(v)
		u = schema.MustRow(k, u, err)
		keys = append(keys, bytes.Clone(k))
		if u.Bucket != nil {
			rest := schema.BucketRest(s.queue, string(k[len(prefix):]))
			keys = append(keys, schema.DeadlineKey(u.Bucket.Due, schema.OnTokens, s.ns, rest))
		}
		return true
	})
	for _, k := range keys {
		tx.Delete(k)
	}
}
