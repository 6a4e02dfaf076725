package quotas

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// This file is about the limits of queues that are spread over shards. They are divided like the quotas of a namespace,
// with three differences:
//
//   - The shards are those of the queue. A shard that drains counts, as long as it has tasks.
//   - A shard whose copy of the queue is divided may use nothing until it is sent a share, so a new shard of the queue
//     starts with nothing. The one that has had the whole queue until it was spread begins with a share of all.
//   - The rows of queues without such limits are never read here: a queue gets its row in this table in the round that gives it one.

func divisionKey(name task.SpaceName) []byte {
	if name.Queue != "" {
		return system.Key(system.DivisionTable, name.Namespace, name.Queue)
	}
	return append([]byte{system.DivisionTable}, name.Namespace...)
}

// Forget removes how a namespace is divided.
func Forget(tx *store.Tx, ns string) { tx.Delete(divisionKey(task.SpaceName{Namespace: ns})) }

// ForgetQueue removes how a queue is divided. Its shards have dropped it.
func ForgetQueue(tx *store.Tx, ns, name string) {
	tx.Delete(divisionKey(task.SpaceName{Namespace: ns, Queue: name}))
}

// Divided notes that a queue has limits that are divided, from a version of it on. whole is the shard that has had all
// of them so far; 0: it is not known who has what.
func Divided(tx *store.Tx, ns, name string, version uint64, whole uint32) {
	key := divisionKey(task.SpaceName{Namespace: ns, Queue: name})
	if _, known := tx.Get(key); known {
		return
	}
	row := divisionRow{Since: tx.NextSeq(), Copy: version}
	if whole != 0 {
		row.Parts = []divisionPart{{Shard: whole, Most: task.Unlimited}}
	}
	tx.Set(key, system.EncodeRow(row))
}

// Renew notes that what the shards of a queue answer counts only if they have its present version, and that nobody knows what they may use
// of some limits.
func Renew(tx *store.Tx, q queues.Queue, unknown task.Quotas) {
	key := divisionKey(task.SpaceName{Namespace: q.Namespace, Queue: q.Name})
	row, known, err := system.GetRow[divisionRow](tx, key)
	if err != nil || !known {
		return // what can't be read is not divided
	}
	row.Since, row.Copy = tx.NextSeq(), q.Config.Version
	whole := unknown.Whole()
	for _, shard := range q.Shards() {
		if row.Parts == nil { // nothing is known of any
			break
		}
		at := slices.IndexFunc(row.Parts, func(p divisionPart) bool { return p.Shard == shard })
		if at < 0 {
			at, row.Parts = len(row.Parts), append(row.Parts, divisionPart{Shard: shard})
		}
		for f, limit := range whole.Each() {
			if p := &row.Parts[at]; *limit != task.NoLimit {
				*p.Most.Each()[f], *p.Sent.Each()[f] = task.NoLimit, task.NoLimit
			}
		}
	}
	tx.Set(key, system.EncodeRow(row))
}

// Reconcile forgets what shards may use of the limits of queues, after a recovery: each shard is as of a moment of its own.
func Reconcile(tx *store.Tx) error {
	var limited []queues.Queue
	if err := queues.Scan(tx, []byte{system.QueueTable}, []byte{system.QueueTable + 1}, func(q queues.Queue, _ bool) bool {
		if q.Limits() != (task.Quotas{}) {
			limited = append(limited, q)
		}
		return true
	}); err != nil {
		return err
	}
	for _, name := range dividedQueues(tx) {
		tx.Delete(divisionKey(name))
	}
	for _, q := range limited {
		Divided(tx, q.Namespace, q.Name, q.Config.Version, 0)
	}
	return nil
}

// dividedQueues returns the queues with a row.
func dividedQueues(r store.Reader) (names []task.SpaceName) {
	r.Scan([]byte{system.DivisionTable}, []byte{system.DivisionTable + 1}, func(k, _ []byte) bool {
		if ns, queue, is := strings.Cut(string(bytes.Clone(k[1:])), "\x00"); is {
			names = append(names, task.SpaceName{Namespace: ns, Queue: queue})
		}
		return true
	})
	return names
}

// DivideQueue divides the limits of a queue again, if they are divided.
//
// Errors: unavailable if a shard has not confirmed its share: until it does, it may use the previous one.
func (s *Divider) DivideQueue(ctx context.Context, ns, name string) error {
	return s.divide(ctx, task.SpaceName{Namespace: ns, Queue: name}, 0, s.askShards)
}

func divisionsOfQueues(r store.Reader) (all []*division, err error) {
	for _, name := range dividedQueues(r) {
		d, err := divisionOfQueue(r, name)
		if err != nil {
			return nil, err
		}
		if d != nil {
			all = append(all, d)
		}
	}
	return all, nil
}

// divisionOfQueue reads how a queue is divided; nil: it has no limits, or they are not divided.
func divisionOfQueue(r store.Reader, name task.SpaceName) (*division, error) {
	q, _, _, err := queues.Get(r, name.Namespace, name.Queue)
	if err != nil || q.Limits() == (task.Quotas{}) {
		return nil, err
	}
	row, _, err := system.GetRow[divisionRow](r, divisionKey(name))
	if err != nil {
		return nil, err
	}
	d := newDivision(name, q.Limits(), q.Shards(), row)
	d.moved = q.Moved
	for i := range d.parts {
		p := &d.parts[i]
		p.drains = q.Drains(p.Shard)
		if known := func(o divisionPart) bool { return o.Shard == p.Shard }; row.Parts != nil && !slices.ContainsFunc(row.Parts, known) {
			p.Most = task.Amounts{}
		}
	}
	return d, nil
}
