package tokens_test

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/store"
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
		mine, other := auth.Session{Key: auth.SessionID{1}, Number: 1, Begun: time.Now().Unix()}, auth.Session{Key: auth.SessionID{2}, Number: 2, Begun: time.Now().Unix()}
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
		pass(auth.MaxSession)
		_, err = c.Tokens.EndSession(bg, auth.Session{Key: auth.SessionID{3}, Number: 3, Begun: time.Now().Unix()})
		must(t, err)
		if all := rows(); len(all) != 1 || all[0].Key != (auth.SessionID{3}) {
			t.Errorf("after they have outlived: rows %+v", all)
		}
	})
}
