package queues

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

func TestQueuesAppearOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(3)
		var callers sync.WaitGroup
		shards := make([]uint32, 8)
		for i := range shards {
			callers.Go(func() {
				q, _ := c.Queues.Place(bg, "default", "mail")
				shards[i] = q.Shard
			})
		}
		callers.Wait()
		for _, s := range shards {
			if s == 0 || s != shards[0] {
				t.Fatalf("concurrent callers placed the queue in shards %v, want one shard", shards)
			}
		}
		if q, err := c.Queues.Queue(bg, "default", "mail"); err != nil || q.Config.Version != 1 || q.Shard != shards[0] {
			t.Errorf("the queue is %+v, %v, want version 1 in the shard of the first call", q, err)
		}
		w.setShards(4) // adding a shard moves no queue
		again := w.open(1)
		if q, err := again.Queues.Place(bg, "default", "mail"); err != nil || q.Shard != shards[0] {
			t.Errorf("after another election the queue is in shard %d: %v", q.Shard, err)
		}
	})
}

func TestChangesReachTheShard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(5))
		if err != nil || q.Config.Version != 1 || w.copyOf(1, "a").Settings.MaxLength != 5 {
			t.Fatalf("PutQueue = %+v, %v, and the shard has %+v", q, err, w.copyOf(1, "a"))
		}
		if q, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(5)); err != nil || q.Config.Version != 1 {
			t.Errorf("a PutQueue that changes nothing: %+v, %v, want version 1", q, err)
		}
		refused := errors.New("refused")
		if _, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", func(*task.QueueConfig) error {
			return refused
		}); !errors.Is(err,
			refused) {
			t.Errorf("PutQueue with a function that fails: %v, want its error", err)
		}
		// The copy fails: the caller gets an error, and a repeat completes the change.
		w.fail = task.ErrUnavailable
		if _, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(6)); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("PutQueue whose copy fails: %v, want ErrUnavailable", err)
		}
		if q, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(6)); err != nil ||
			w.copyOf(1, "a").Settings.MaxLength != 6 {
			t.Errorf("repeating the PutQueue: %+v, %v, want the copy updated", q, err)
		}
	})
}

// The leader dies between a change and its copy. The next leader sends the copy, even if the shard can't be reached at first.
func TestElectionBringsCopies(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		w.fail = task.ErrUnavailable
		if _, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(7)); err == nil {
			t.Fatal("PutQueue succeeded although the copy failed")
		}
		w.cut(1, task.ErrUnavailable)
		w.open(1)
		pass(time.Minute)
		w.mu.Lock()
		if w.calls > 20 {
			t.Errorf("the leader tried to copy %d times in a minute, want at most 20", w.calls)
		}
		w.mu.Unlock()
		w.cut(1, nil)
		pass(maxRepairPause)
		synctest.Wait()
		if got := w.copyOf(1, "a"); got.Settings.MaxLength != 7 {
			t.Errorf("the shard has %+v, want a maximum length of 7", got)
		}
	})
}

// A leader that was replaced stops repairing copies.
func TestDeposedLeaderStopsRepairing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		if _, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged); err != nil {
			t.Fatal(err)
		}
		w.cut(1, task.ErrUnavailable)
		s := w.newReplica()
		s.lead()
		synctest.Wait()
		s.control.Dropped(true)
		synctest.Wait()
		before := w.calls
		pass(time.Minute)
		if synctest.Wait(); w.calls != before {
			t.Errorf("the leader sent %d copies after it had been replaced, want 0", w.calls-before)
		}
	})
}

// A late copy from an old leader replaces no newer one, and a queue that is created again begins with a version that no
// copy of the deleted queue has.
func TestVersionsSurviveDeletion(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for i := range int64(3) {
			if _, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		late, err := c.Queues.Queue(bg, "default", "a")
		must(t, err)
		must(t, c.Queues.DropQueue(bg, nobody, "default", "a"))
		must(t, c.Queues.copies.send(bg, late))
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(9))
		if err != nil || q.Config.Version <= late.Config.Version || w.copyOf(1, "a").Settings.MaxLength != 9 {
			t.Errorf("created again, the queue is %+v (%v), and the shard has %+v", q.Config, err, w.copyOf(1, "a"))
		}
	})
}

// A queue that is used while it is being deleted remains, and so does its copy.
func TestUseDuringDeletion(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(5))
		must(t, err)
		w.onDrop = func() { ensure(t, c, 1, "a") }
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrWrongState, "used meanwhile")
		if q, err := c.Queues.Queue(bg, "default", "a"); err != nil || !w.copyOf(1, "a").Equal(q.Config) ||
			q.Config.Settings.MaxLength != 5 {
			t.Errorf("the queue is %+v (%v), and the shard has %+v", q, err, w.copyOf(1, "a"))
		}
	})
}

func ensure(t *testing.T, c *control, shard uint32, name string) {
	t.Helper()
	_, err := c.Queues.EnsureQueue(bg, shard, "default", name)
	must(t, err)
}

// The queue is used, and then another deletion begins and does not finish. The first one must not mistake the second's mark for its own.
func TestUseBetweenDeletions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(5))
		must(t, err)
		w.onDrop = func() {
			ensure(t, c, 1, "a")
			w.cut(1, task.ErrUnavailable)
			is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrUnavailable)
		}
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrWrongState, "used meanwhile")
		if _, err := c.Queues.Queue(bg, "default", "a"); err != nil || w.copyOf(1, "a").Version != 2 {
			t.Errorf("Queue returned %v, and the shard has %+v, want version 2", err, w.copyOf(1, "a"))
		}
	})
}

// The leader dies while it deletes a queue. The next one completes or undoes the deletion.
func TestNextLeaderCompletesDeletion(t *testing.T) {
	for _, full := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.open(1)
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
			must(t, err)
			w.cut(1, task.ErrUnavailable)
			is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrUnavailable)
			if q, err := c.Queues.Queue(bg, "default", "a"); err != nil || q.Name != "a" {
				t.Errorf("Queue during an unfinished deletion: %+v, %v, want the queue", q, err)
			}
			w.cut(1, nil)
			w.full["a"] = full
			c = w.open(1)
			_, err = c.Queues.Queue(bg, "default", "a")
			if full && err != nil || !full && !errors.Is(err, task.ErrNotFound) {
				t.Errorf("after another election, with tasks %v: %v", full, err)
			}
			if err := c.repair(); err != nil { // no deletion mark is left
				t.Error(err)
			}
		})
	}
}

// On a full disk no queue is created by use, but existing queues are found, and operators may configure them.
func TestFullDisk(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		_, err := c.Queues.Place(bg, "default", "mail")
		must(t, err)
		w.room = task.Unavailable(time.Second, "full")
		before := w.State.Applied()
		if _, err := c.Queues.Place(bg, "default", "new"); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("a new queue on a full disk: %v, want ErrUnavailable", err)
		}
		if after := w.State.Applied(); after.Index != before.Index {
			t.Error("the refused call wrote to the store")
		}
		if _, err := c.Queues.Place(bg, "default", "mail"); err != nil {
			t.Errorf("an existing queue on a full disk: %v", err)
		}
		if _, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "mail", setLength(7)); err != nil {
			t.Errorf("new settings on a full disk: %v", err)
		}
	})
}

func TestDropAndLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for _, name := range []string{"c", "a", "b"} {
			_, err := c.Queues.Place(bg, "default", name)
			must(t, err)
		}
		_, err := c.Queues.Place(bg, "default", "d")
		is(t, err, task.ErrInvalidArgument, "limit of 3 queues")
		w.full["a"] = true
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrWrongState, "not empty")
		if _, dropping, _, err := Get(w.State, "default", "a"); dropping || err != nil {
			t.Errorf("a queue that could not be deleted is still marked as being deleted (%v)", err)
		}
		must(t, c.Queues.DropQueue(bg, nobody, "default", "b"))
		is(t, c.Queues.DropQueue(bg, nobody, "default", "b"), task.ErrNotFound)
		if names := namesOf(t, c, ""); names != "[a c]" {
			t.Errorf("the queues are %v, want a and c", names)
		}
		if names := namesOf(t, c, "a"); names != "[c]" {
			t.Errorf("the queues after a are %v, want c", names)
		}
		_, err = c.Queues.Place(bg, "default", "d")
		must(t, err)
		is(t, placeErr(c, "e"), task.ErrInvalidArgument)
		c = w.open(1) // counts again
		is(t, placeErr(c, "e"), task.ErrInvalidArgument)
		if names := namesOf(t, c, ""); names != "[a c d]" {
			t.Errorf("another leader finds the queues %v", names)
		}
	})
}

// A dropped round leaves nothing in the leader's memory.
func TestDroppedRoundIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		_, err := c.Queues.Place(bg, "default", "a")
		must(t, err)
		at := w.State.Applied()
		tx := w.State.Begin(at.Time+1, at.Index+1)
		for _, name := range []string{"x", "y"} {
			_, err := c.Queues.changed(tx, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
		}
		tx.Close()
		c.Dropped(false)
		c.Elected()
		for _, name := range []string{"b", "c"} {
			_, err := c.Queues.Place(bg, "default", name)
			must(t, err)
		}
		must(t, c.shard.Learn(bg))
		if changes := c.shard.Changes(at.Index); len(changes.Queues) != 2 ||
			!changes.Queues[system.Name{Namespace: "default", Name: "b"}] || !changes.Queues[system.Name{Namespace: "default", Name: "c"}] {
			t.Errorf("the change log has %+v, want queues b and c", changes)
		}
	})
}

func placeErr(c *control, name string) error {
	_, err := c.Queues.Place(bg, "default", name)
	return err
}

func namesOf(t *testing.T, c *control, after string) string {
	t.Helper()
	queues, err := c.Queues.Queues(bg, "default", Query{After: after, Limit: 10})
	must(t, err)
	var names []string
	for _, q := range queues {
		names = append(names, q.Name)
	}
	return fmt.Sprint(names)
}

func TestQueuesKeepToTheirNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for _, ns := range []string{"a", "ab", "default"} {
			_, err := c.Namespaces.Add(bg, namespaces.Call{By: task.Author{}, Name: ns})
			must(t, err)
			_, err = c.Queues.PutQueue(bg, auditlog.Action{}, ns, "q-"+ns, unchanged)
			must(t, err)
			n, err := namespaces.Get(w.State, ns)
			if must(t, err); w.since != fmt.Sprint(ns, n.Since) || (n.Since == 0) != (ns == "default") {
				t.Errorf("the shards are told that %s exists, want %s since %d", w.since, ns, n.Since)
			}
		}
		for _, ns := range []string{"a", "ab", "default"} {
			if queues, err := c.Queues.Queues(bg, ns, Query{Limit: 10}); err != nil || len(queues) != 1 || queues[0].Name != "q-"+ns {
				t.Errorf("queues of namespace %q: %+v, %v, want its own queue", ns, queues, err)
			}
		}
		if queues, err := c.Queues.Queues(bg, "a", Query{}); err != nil || len(queues) != 0 {
			t.Errorf("queues with a limit of 0: %+v, %v, want none", queues, err)
		}
	})
}

// Copies are sent to their shards in bounded parts, each queue once, and only those that a shard has not confirmed.
func TestCopyLanes(t *testing.T) {
	var queues []Queue
	for i := range 3 * copyChunk {
		queues = append(queues, Queue{Namespace: "default", Name: fmt.Sprint(i), Shard: uint32(i % 2),
			Config: task.QueueConfig{Version: 7}})
	}
	queues = append(queues, Queue{Namespace: "other", Name: "0", Config: task.QueueConfig{Version: 7}})
	spread := Queue{Namespace: "spread", Name: "0", Parts: []Part{{Shard: 1, Next: 1}, {Shard: 2, Retiring: 5}},
		Config: task.QueueConfig{Version: 1}}
	if lanes := copyLanes([]Queue{spread}, nil); len(lanes) != 1 || len(lanes[0]) != 1 || lanes[0][0].shard != 1 {
		t.Errorf("the copies of a queue with a part that retires are %+v", lanes)
	}
	confirmed := map[copyName]uint64{}
	for i, q := range queues[:copyChunk] {
		confirmed[copyName{q.Shard, q.FullName()}] = 6 + uint64(i%2) // those of shard 1 have the current version
	}
	for _, c := range []struct {
		confirmed            map[copyName]uint64
		queues, lanes, parts int
	}{{nil, len(queues), 2, 5}, {confirmed, len(queues) - copyChunk/2, 2, 4}} {
		lanes, n, parts := copyLanes(queues, c.confirmed), 0, 0
		for _, lane := range lanes {
			parts += len(lane)
			for _, p := range lane {
				if len(p.configs) > copyChunk || p.shard != lane[0].shard {
					t.Errorf("a part for shard %d in the lane of shard %d has %d queues, want at most copyChunk", p.shard,
						lane[0].shard, len(p.configs))
				}
				n += len(p.configs)
			}
		}
		if n != c.queues || len(lanes) != c.lanes || parts != c.parts {
			t.Errorf("got %d queues in %d parts of %d lanes, want %d in %d of %d", n, parts, len(lanes), c.queues, c.parts, c.lanes)
		}
	}
}

// A list has the queues that match a pattern and that the caller may see.
func TestQueuesOfAPattern(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.most = 10
		c := w.open(1)
		for _, name := range []string{"mail-a", "mail-b", "sms"} {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
		}
		for _, q := range []struct {
			query Query
			want  string
		}{
			{Query{Limit: 9}, "[mail-a mail-b sms]"}, {Query{Limit: 9, Pattern: "mail*"}, "[mail-a mail-b]"},
			{Query{Limit: 9, Pattern: "*a", Within: task.Scope{Queues: []string{"sms", "mail-b"}}}, "[]"},
			{Query{Limit: 9, Within: task.Scope{Queues: []string{"sms"}}}, "[sms]"}, {Query{Limit: 1, After: "mail-a"}, "[mail-b]"},
			{Query{Limit: 9, Names: []string{"sms", "none", "mail-a"}, Within: task.Scope{Queues: []string{"mail*"}}}, "[mail-a]"},
		} {
			c.checkQueues(t, q.query, q.want)
		}
	})
}

// A claim asks draining shards first, then the others, starting at any of them, each shard once.
func TestClaimOrder(t *testing.T) {
	parts := func(next ...task.SlotSet) (q Queue) {
		for i, n := range next {
			q.Parts = append(q.Parts, Part{Shard: uint32(i + 1), Next: n}) // #nosec G115 -- a few
		}
		return q
	}
	for _, c := range []struct {
		queue Queue
		want  []string // any of these, and each eventually
	}{
		{parts(1), []string{"[1]"}}, {parts(0, 1), []string{"[1 2]"}}, {parts(0, 0), []string{"[1 2]"}},
		{parts(1, 0, 2), []string{"[2 1 3]", "[2 3 1]"}}, {parts(1, 2, 4), []string{"[1 2 3]", "[2 3 1]", "[3 1 2]"}},
	} {
		seen := map[string]bool{}
		for range 200 {
			seen[fmt.Sprint(c.queue.ClaimOrder())] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, c.want) {
			t.Errorf("%+v: claims ask the shards in the orders %v, want %v", c.queue.Parts, got, c.want)
		}
	}
}

// Readers of events at a node that no longer leads get an error and do not wait there.
func TestEventsEndWithTheTerm(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		w.newReplica().lead()
		if _, err := c.Queues.events.Read(bg, events.Query{}); !errors.Is(err, events.ErrClosed) {
			t.Errorf("reading events of a term that is over: %v, want ErrClosed", err)
		}
	})
}

func FuzzQueueRow(f *testing.F) {
	q := Queue{Namespace: "default", Name: "a", Shard: 1, Config: task.QueueConfig{Version: 1, Settings: task.DefaultSettings()}}
	f.Add(queueKey("default", "a"), encodeQueue(q, true))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		_, _, _ = decodeQueue(key, value) // an error or a queue, but no panic
	})
}

// A repair fails if a queue's row can't be read, with an error that has its key.
func TestRepairNeedsEveryRow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		_, err := c.Queues.Place(bg, "default", "q")
		must(t, err)
		key := queueKey("default", "q")
		must(t, w.leader.Update(bg, func(tx *store.Tx) error { tx.Set(key, []byte{99}); return nil }))
		if err := c.repair(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row %q of the system shard", key)) {
			t.Errorf("copyAll with a damaged row: %v, want an error with the row's key", err)
		}
	})
}
