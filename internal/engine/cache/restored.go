package cache

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// In a backup, a message may be in the outbox of its sender and already taken by its shard, which remembers its
// request. After the restore the sender repeats it, and by the clock the shard may have forgotten it long ago: the
// backup may be old, and the restored shard may be started later. So MarkRestored leaves a row, the first leader notes
// when its shard serves again, and the requests that were remembered at the time of the backup live for a whole window
// from then on. Their rows are not rewritten before they would end: there may be millions.

// Restored says which requests live longer since the shard was restored from a backup.
type Restored struct {
	read  bool
	since store.Time // those that were remembered at this time,
	until store.Time // live until then; 0: the shard was not restored, or so long ago that it does not matter
}

// MarkRestored marks the state of a shard as restored from a backup.
func MarkRestored(tx *store.Tx) {
	row := schema.Restored{Backup: tx.Now()}
	// the backup was taken soon after another restore
	if before, ok := schema.ReadRestored(tx); ok && before.Began.Add(task.MessageWindow) > tx.Now() {
		row.Backup = before.Backup
	}
	tx.Set(schema.RestoredKey(), row.Encode())
}

// Begin brings the memory up to date at the beginning of a round.
func (s *Restored) Begin(tx *store.Tx) {
	if !s.read {
		*s = Restored{read: true}
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

// Extended returns when a request ends that would end at the given time, and whose deadline would be then.
func (s *Restored) Extended(end, deadline store.Time) store.Time {
	if deadline > s.since {
		return max(end, s.until)
	}
	return end
}

// Keep keeps a request whose deadline has come, if it lives longer. It returns its new deadline, or 0 if another deadline is set already.
func (s *Restored) Keep(tx *store.Tx, key []byte, deadline store.Time) (until store.Time, kept bool) {
	if s.until == 0 {
		return 0, false
	}
	k, ok := schema.ReadKey(tx, key)
	if !ok || k.Until > tx.Now() {
		return 0, ok // it was renewed
	}
	if until = s.Extended(k.Until, deadline); until <= tx.Now() {
		return 0, false
	}
	k.Until = until
	tx.Set(key, k.Encode())
	return until, true
}
