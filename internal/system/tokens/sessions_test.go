package tokens_test

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/task"
)

// An ended session is in the tables until it would have ended anyway. Ending it again writes nothing.
func TestEndSession(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		rows := func() (all []auth.EndedSessions) {
			t.Helper()
			all, err := system.View(bg, c.shard, func(r store.Reader) ([]auth.EndedSessions, error) {
				return system.ScanRows[auth.EndedSessions](r, system.EndedTable)
			})
			must(t, err)
			return all
		}
		mine, other := auth.Session{Key: auth.SessionID{1}, Number: 1, Begun: time.Now().Unix()},
			auth.Session{Key: auth.SessionID{2}, Number: 2,
				Begun: time.Now().Unix()}
		first, err := c.Tokens.EndSession(bg, mine)
		must(t, err)
		pass(time.Minute)
		again, err := c.Tokens.EndSession(bg, mine)
		must(t, err)
		next, err := c.Tokens.EndSession(bg, other)
		must(t, err)
		if all := rows(); again != first || next <= first || len(all) != 2 || !all[0].Has(mine) || !all[1].Has(other) || all[0].Has(other) {
			t.Errorf("versions %d, %d and %d, rows %+v", first, again, next, all)
		}
		mine.Number++
		_, err = c.Tokens.EndSession(bg, mine)
		must(t, err)
		if all := rows(); len(all) != 2 || len(all[0].Each) != 2 {
			t.Errorf("rows %+v, want two sessions of the first token", all)
		}
		pass(auth.MaxSession + time.Hour)
		_, err = c.Tokens.EndSession(bg, auth.Session{Key: auth.SessionID{3}, Number: 3, Begun: time.Now().Unix()})
		must(t, err)
		if all := rows(); len(all) != 1 || all[0].Key != (auth.SessionID{3}) {
			t.Errorf("after they have outlived: rows %+v", all)
		}
	})
}

// Whoever may rotate a token can log in with each of its secrets: only those that are still valid have ended sessions in the tables.
func TestEndedSessionsGoWithTheirSecret(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		end := func(secret auth.Hash) {
			t.Helper()
			_, err := c.Tokens.EndSession(bg, auth.Session{Key: auth.SessionKeyOf(secret).ID, Number: 1, Begun: time.Now().Unix()})
			must(t, err)
		}
		kept := func(what string, want ...auth.Hash) {
			t.Helper()
			all, err := system.View(bg, c.shard, func(r store.Reader) ([]auth.EndedSessions, error) {
				return system.ScanRows[auth.EndedSessions](r, system.EndedTable)
			})
			must(t, err)
			has := map[auth.SessionID]bool{}
			for _, e := range all {
				has[e.Key] = true
			}
			for _, secret := range want {
				if !has[auth.SessionKeyOf(secret).ID] {
					t.Errorf("%s: the ended sessions of a valid secret are gone", what)
				}
			}
			if len(all) != len(want) {
				t.Errorf("%s: those of %d secrets are kept, want %d", what, len(all), len(want))
			}
		}
		secret := func() tokens.Call { return newToken("default", "ci") }
		first, own, other := secret(), auth.HashOf("the admin token of a node"), newToken("default", "other")
		first.Request, first.Asked = task.NewID(0, 1, 0), time.Now()
		repeated := first
		repeated.Token.Hash = auth.HashOf("repeated")
		for _, add := range []tokens.Call{first, other} {
			_, err := c.Tokens.Add(bg, add)
			must(t, err)
			end(add.Token.Hash)
		}
		end(own)
		kept("no token was changed", first.Token.Hash, other.Token.Hash, own)
		_, err := c.Tokens.Add(bg, repeated)
		must(t, err)
		kept("the answer with the secret was lost", other.Token.Hash, own)
		end(repeated.Token.Hash)
		second := secret()
		second.Overlap = time.Minute
		_, err = c.Tokens.Rotate(bg, second)
		must(t, err)
		end(second.Token.Hash)
		kept("rotated, with an overlap", repeated.Token.Hash, second.Token.Hash, other.Token.Hash, own)
		third := secret()
		third.Overlap = time.Minute
		_, err = c.Tokens.Rotate(bg, third)
		must(t, err)
		end(third.Token.Hash)
		kept("rotated again", second.Token.Hash, third.Token.Hash, other.Token.Hash, own)
		_, err = c.Tokens.Revoke(bg, third)
		must(t, err)
		kept("revoked", other.Token.Hash, own)
		_, err = c.Tokens.Rotate(bg, newToken("default", "other"))
		must(t, err)
		kept("rotated, without an overlap", own)
	})
}
