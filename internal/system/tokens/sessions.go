package tokens

import (
	"context"
	"slices"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// maxEnded bounds the secrets whose ended sessions are remembered: a token has two at most, as forgetSessions sees to.
const maxEnded = 2 * maxTokens

func endedKey(id auth.SessionID) []byte { return append([]byte{system.EndedTable}, id[:]...) }

// EndSession ends a session of the web UI before its time, and returns the version of the tables that records this. It is remembered until
// the session would have ended anyway.
func (s *Tokens) EndSession(ctx context.Context, x auth.Session) (uint64, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (uint64, error) {
		all, err := system.ScanRows[auth.EndedSessions](tx, system.EndedTable)
		if err != nil {
			return 0, err
		}
		now, row := tx.Now().Time(), auth.EndedSessions{Key: x.Key}
		if i := slices.IndexFunc(all, func(e auth.EndedSessions) bool { return e.Key == x.Key }); i >= 0 {
			row = all[i]
		}
		if row.Has(x) {
			return system.Newest(tx), nil
		}
		outlived := slices.DeleteFunc(all, func(e auth.EndedSessions) bool { return e.Key == x.Key || !e.Outlived(now) })
		if len(all)-len(outlived) > maxEnded {
			return 0, task.Unavailable(0, "sessions of %d tokens were ended within %v, the maximum", maxEnded, auth.MaxSession)
		}
		row.Add(x, now)
		for i := range outlived {
			tx.Delete(endedKey(outlived[i].Key))
		}
		tx.Set(endedKey(x.Key), system.EncodeRow(row))
		s.shard.Note(tx, system.Change{Kind: system.AccessChanged})
		return tx.Index(), nil
	})
}

// forgetSessions drops the ended sessions of the secrets that a token had before and has no more. No node opens a session of those.
func forgetSessions(tx *store.Tx, before, after *auth.Token) {
	for _, secret := range []auth.Hash{before.Hash, before.OldHash} {
		if secret != after.Hash && secret != after.OldHash {
			tx.Delete(endedKey(auth.SessionKeyOf(secret).ID))
		}
	}
}
