package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// In a backup, a message may be in the outbox of its sender and already taken by its shard, which remembers its request. After the restore the sender
// repeats it, and by the clock the shard may have forgotten it long ago: the backup may be old, and the restored shard may be started later. So Restored
// leaves a row, the first leader notes when its shard serves again, and the requests that were remembered at the time of the backup live for a whole
// window from then on. Their rows are not rewritten before they would end: there may be millions.

// restoredShard says which requests live longer since a restore.
type restoredShard struct {
	read  bool
	since store.Time // those that were remembered at this time,
	until store.Time // live until then; 0: the shard was not restored, or so long ago that it does not matter
}

// Restored marks the state of a shard as restored from a backup.
func Restored(tx *store.Tx) {
	row := schema.Restored{Backup: tx.Now()}
	before, ok := schema.ReadRestored(tx)
	if ok && before.Began.Add(task.MessageWindow) > tx.Now() { // the backup was taken soon after another restore
		row.Backup = before.Backup
	}
	tx.Set(schema.RestoredKey(), row.Encode())
}

// begin brings the memory up to date at the beginning of a round.
func (s *restoredShard) begin(tx *store.Tx) {
	if !s.read {
		*s = restoredShard{read: true}
		row, ok := schema.ReadRestored(tx)
		if !ok {
			return
		}
		if row.Began == 0 {
			row.Began = tx.Now()
			tx.Set(schema.RestoredKey(), row.Encode())
		}
		s.since, s.until = row.Backup, row.Began.Add(task.MessageWindow)
	}
	if s.until != 0 && s.until <= tx.Now() {
		tx.Delete(schema.RestoredKey())
		s.until = 0
	}
}

// extended returns when a request ends that would end at the given time.
func (s *restoredShard) extended(end store.Time) store.Time {
	if keyDeadline(end) > s.since {
		return max(end, s.until)
	}
	return end
}

// keep keeps a request that would end now, if it lives longer since a restore.
func (s *restoredShard) keep(r *Round, ns string, key []byte) bool {
	if s.until == 0 {
		return false
	}
	k, ok := schema.ReadKey(r.tx, key)
	if !ok || k.Until > r.now {
		return ok // it was renewed, and has another deadline
	}
	until := s.extended(k.Until)
	if until <= r.now {
		return false
	}
	k.Until = until
	r.tx.Set(key, k.Encode())
	r.shared.addKey(sharedName{schema.OnRequest, ns, keyDeadline(until)}, key[len(ns)+2:])
	return true
}
