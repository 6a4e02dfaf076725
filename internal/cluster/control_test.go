package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/systemtest"
)

var bg = context.Background()

// A node that does not lead says so, with the system shard's own error.
func TestOnlyTheLeaderAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.open(1)
		c := w.newReplica().control
		_, errs := c.Queues.Queue(bg, "default", "a")
		_, errPut := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", asItIs)
		_, errPlace := c.Queues.Place(bg, "default", "a")
		_, errJoin := c.Placement.Join(bg, joinOf("n2", 1))
		_, errChanges := c.Copies.Changes(bg, 0, Report{Node: 1}, time.Second)
		_, errOverview := c.Placement.Overview(bg)
		for i, err := range []error{errs, errPut, errPlace, errJoin, errChanges, errOverview, c.Queues.DropQueue(bg,
			nobody, "default", "a"),
			c.Placement.Drain(bg, nobody, "n1")} {
			if !errors.Is(err, systemtest.ErrNotLeader) {
				t.Errorf("call %d: %v, want ErrNotLeader", i, err)
			}
		}
	})
}

// Close ends, even if the replica is elected at the same moment.
func TestCloseDuringElections(t *testing.T) {
	for range 200 {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.open(1)
			closed := make(chan struct{})
			for range 4 {
				go func() {
					for range 50 {
						c.Elected()
					}
				}()
			}
			go func() {
				defer close(closed)
				c.Close()
			}()
			select {
			case <-closed:
			case <-time.After(time.Minute):
				t.Fatal("Close did not return: it waits for work of a leader that nothing ends")
			}
		})
	}
}

// After a dropped round, readers of events continue where they were until the term is over. Nodes' confirmations do not
// count in a later term.
func TestDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		made, err := c.Tokens.Add(bg, newToken("default", "ci"))
		must(t, err)
		page, err := c.Queues.Events(bg, events.Query{})
		must(t, err)
		for _, over := range []bool{false, true} {
			c.Copies.noteCopyVersion(1, made.Version)
			if behind, err := c.Copies.Confirm(bg, made.Version); err != nil || len(behind) > 0 {
				t.Errorf("Confirm after n1 has confirmed = %v, %v, want none behind", behind, err)
			}
			c.Dropped(over)
			c.Elected()
			if behind, err := c.Copies.Confirm(bg, made.Version); err != nil || fmt.Sprint(behind) != "[n1]" {
				t.Errorf("over %t: Confirm after another election = %v, %v, want n1 behind", over, behind, err)
			}
			if page, err = c.Queues.Events(bg, events.Query{After: page.Next}); err != nil || page.Reset != over {
				t.Errorf("over %t: Events returned reset %t, %v", over, page.Reset, err)
			}
		}
	})
}

func FuzzNodeRow(f *testing.F) {
	f.Add(nodeKey(1), system.EncodeRow(Node{Number: 1, Name: "n1", State: Active}))
	f.Fuzz(func(t *testing.T, key, value []byte) { // an error or a row, but no panic
		_, _ = system.DecodeRow[Node](key, value)
		_, _ = system.DecodeRow[Shard](key, value)
		_, _ = DecodeMap(value)
	})
}
