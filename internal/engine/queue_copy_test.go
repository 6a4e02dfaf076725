package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A copy of a queue is replaced by a newer one only.
func TestPutQueueOfVersion(t *testing.T) {
	w := NewWorld(t)
	for _, c := range []struct {
		version uint64
		length  int64
		want    int64
	}{{2, 20, 20}, {1, 10, 20}, {2, 22, 20}, {3, 30, 30}} {
		s := task.DefaultSettings()
		s.MaxLength = c.length
		w.Round(func(r *Round) { PutQueue(r, "default", "a", task.QueueConfig{Version: c.version, Settings: s}) })
		w.BecomeLeader()
		w.Round(func(r *Round) {
			if got := r.Queue("default", "a").config.Settings.MaxLength; got != c.want {
				t.Errorf("after version %d the maximum length is %d, want %d", c.version, got, c.want)
			}
		})
	}
}

// A copy that can't be decoded is reported, even if others can.
func TestCopiedQueuesReportDamage(t *testing.T) {
	w := NewWorld(t)
	for _, name := range []string{"a", "b"} {
		w.PutQueue(name, task.DefaultSettings(), false)
	}
	if queues, err := CopiedQueues(w.Store); err != nil || len(queues) != 2 || queues[1].Name != "b" {
		t.Errorf("CopiedQueues = %v (%v), want a and b", queues, err)
	}
	for _, key := range [][]byte{schema.QueueKey("default", schema.TableQueue, "a"), {schema.TableQueue, 'a'}} {
		w := NewWorld(t)
		w.PutQueue("b", task.DefaultSettings(), false)
		w.Round(func(r *Round) { r.tx.Set(key, []byte{0xff}) })
		if queues, err := CopiedQueues(w.Store); err == nil {
			t.Errorf("CopiedQueues with the damaged row %q = %v, want an error", key, queues)
		}
	}
}

// A queue that is dropped in the round in which its last task ends leaves no counters behind.
func TestQueueDroppedWithItsLastTask(t *testing.T) {
	w := NewWorld(t)
	w.enqueueOne()
	got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
	w.Round(func(r *Round) {
		if _, err := Ack(r, Hold{Namespace: "default", ID: got[0].ID, Token: got[0].Token}, schema.Result{}); err != nil {
			t.Fatal(err)
		}
		if err := DropQueue(r, "default", "default", 1); err != nil {
			t.Fatal(err)
		}
	})
	if row, ok := w.Store.Get(schema.QueueKey("default", schema.TableCounts, "default")); ok {
		t.Errorf("the counters %x are left of a queue that was dropped", row)
	}
}

// A call that drops a copy of a queue may come late. A copy in a later version, which the shard has got since, stays.
func TestLateDrop(t *testing.T) {
	w := NewWorld(t)
	for _, c := range []struct {
		copied, dropped uint64
		stays           bool
	}{{5, 3, true}, {6, 5, true}, {6, 6, false}, {6, 7, false}} {
		w.Round(func(r *Round) {
			PutQueue(r, "default", "a", task.QueueConfig{Version: c.copied, Settings: task.DefaultSettings()})
			err := DropQueue(r, "default", "a", c.dropped)
			if HasQueue(r, "default", "a") != c.stays || errors.Is(err, task.ErrWrongState) != c.stays || (err == nil) == c.stays {
				t.Errorf("dropping version %d of version %d: %v, and the copy stays: %t", c.dropped, c.copied, err,
					HasQueue(r, "default", "a"))
			}
		})
	}
}

// A shard that gets a part of a queue whose limits are divided may use none of them until it has a share. Without limits, it needs none.
func TestNewPartHasNoShare(t *testing.T) {
	for _, c := range []struct {
		length  int64
		running int
		full    bool
		runs    int
	}{{0, 0, false, 2}, {9, 0, true, 0}, {0, 9, false, 0}} {
		w := NewWorld(t)
		s := task.DefaultSettings()
		s.MaxLength, s.MaxRunning = c.length, c.running
		w.Configure("a", task.QueueConfig{Settings: s, Divided: true, Moved: 5})
		for range 2 {
			if _, err := w.Enqueue(task.Spec{Queue: "a", Type: "t"}); errors.Is(err, task.ErrQueueFull) != c.full {
				t.Errorf("max_length %d: Enqueue = %v", c.length, err)
			}
		}
		claim := ClaimRequest{Queues: []Share{{Queue: "a"}}, Max: 9}
		if got := w.Claim(claim); len(got) != c.runs {
			t.Errorf("max_running %d: %d tasks run, want %d", c.running, len(got), c.runs)
		}
		for i, share := range []task.Share{{Version: 6, Moved: 4}, {Version: 7, Moved: 5}, {Version: 6, Moved: 5}} {
			share.Amounts = task.Amounts{Backlog: 9, Running: []int64{3, 1, 2}[i]}
			w.Round(func(r *Round) {
				if got := PutShare(r, task.SpaceName{Namespace: "default", Queue: "a"}, share); i == 0 && got.Share.Version != 0 {
					t.Errorf("a share from before the last move was taken: %+v", got.Share)
				}
			})
		}
		if got := w.Claim(claim); c.running != 0 && len(got) != 1 {
			t.Errorf("with a share of 1, an older one of 2 that came late, and one of 3 from before the last move, %d tasks run", len(got))
		}
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	}
}

// A copy of a queue, or a share of its limits, that came after the queue was deleted gives the shard nothing of a later
// queue of that name. A queue that is spread from the shard begins with all of it.
func TestLateCopyOfAnEarlierQueue(t *testing.T) {
	name := task.SpaceName{Namespace: "default", Queue: "a"}
	for what, c := range map[string]struct {
		late, next task.QueueConfig
		share      task.Share
		want       task.Share
	}{
		"undivided": {late: task.QueueConfig{}, next: task.QueueConfig{Divided: true, CreatedAt: time.Unix(2, 0)}},
		"divided": {late: task.QueueConfig{Divided: true}, next: task.QueueConfig{Divided: true, CreatedAt: time.Unix(2, 0)},
			share: task.Share{Version: 5, Amounts: task.Amounts{Running: 2}}},
		"divided, and the later queue is not": {late: task.QueueConfig{Divided: true}, next: task.QueueConfig{CreatedAt: time.Unix(2, 0)},
			share: task.Share{Version: 5, Amounts: task.Amounts{Running: 2}}, want: task.Share{Amounts: task.Quotas{Running: 2}.Whole()}},
		"of the same queue": {late: task.QueueConfig{}, next: task.QueueConfig{Divided: true, CreatedAt: time.Unix(1, 0)},
			want: task.Share{Amounts: task.Quotas{Running: 2}.Whole()}},
		"of the same queue, divided": {late: task.QueueConfig{Divided: true}, next: task.QueueConfig{Divided: true,
			CreatedAt: time.Unix(1, 0)},
			share: task.Share{Version: 5, Amounts: task.Amounts{Running: 1}}, want: task.Share{Version: 5,
				Amounts: task.Amounts{Running: 1}}},
	} {
		w := NewWorld(t)
		c.late.CreatedAt = time.Unix(1, 0)
		c.want.Backlog, c.want.Bytes = task.NoLimit, task.NoLimit
		for version, config := range []task.QueueConfig{c.late, c.next} {
			config.Version, config.Settings = uint64(version)+1, task.DefaultSettings()
			config.Settings.MaxRunning = 2
			w.Round(func(r *Round) { PutQueue(r, "default", "a", config) })
			if version == 0 && c.share.Version != 0 {
				w.Round(func(r *Round) { PutShare(r, name, c.share) })
			}
		}
		for range 2 {
			w.Round(func(r *Round) {
				if got := Space(r, name).Share; got != c.want {
					t.Errorf("%s: the shard may use %+v, want %+v", what, got, c.want)
				}
			})
			if err := w.Check(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			w.BecomeLeader()
		}
	}
}

// A shard says of a limit that its copy of a queue does not have that it may use what it likes, whatever its share, and which copy it has.
func TestShareOfALimitThatIsGone(t *testing.T) {
	w := NewWorld(t)
	name := task.SpaceName{Namespace: "default", Queue: "a"}
	for i, limits := range []task.Quotas{{Running: 2, Backlog: 9}, {Running: 2}, {}, {Backlog: 9}} {
		config := task.QueueConfig{Version: uint64(i) + 1, Divided: true, Settings: task.DefaultSettings()}
		config.Settings.MaxRunning, config.Settings.MaxLength = int(limits.Running), limits.Backlog
		w.Round(func(r *Round) {
			PutQueue(r, "default", "a", config)
			PutShare(r, name, task.Share{Version: 5, Amounts: task.Amounts{Running: 1, Backlog: 3}})
			want := task.Share{Version: 5, Amounts: task.Amounts{Running: 1, Backlog: 3, Bytes: task.NoLimit}}
			if limits.Running == 0 {
				want.Running = task.NoLimit
			}
			if limits.Backlog == 0 {
				want.Backlog = task.NoLimit
			}
			if got := Space(r, name); got.Share != want || got.Copy != config.Version {
				t.Errorf("with the limits %+v, version %d, the shard answers %+v", limits, config.Version, got)
			}
		})
	}
}
