package router

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
)

// Queues are read where they are written; only their places are remembered.
func TestQueuesAreReadFromTheirLeader(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		ctx := context.Background()
		two, three := f.nodes[2].Directory(), f.nodes[3].Directory()
		if _, exists, err := two.Queue(ctx, ns, "q"); exists || err != nil {
			t.Errorf("a queue that is not there: %v, %v", exists, err)
		}
		q, err := two.PutQueue(ctx, auditlog.Action{}, ns, "q", func(c *task.QueueConfig) error {
			if c.Version != 0 || !reflect.DeepEqual(c.Settings, task.DefaultSettings()) {
				t.Errorf("a new queue begins as %+v", c)
			}
			c.Settings.MaxLength = 7
			return nil
		})
		if err != nil || q.Config.Version != 1 || q.Config.Settings.MaxLength != 7 || q.Config.CreatedAt.IsZero() {
			t.Errorf("put %+v, %v", q, err)
		}
		if got, exists, err := three.Queue(ctx, ns, "q"); err != nil || !exists || !reflect.DeepEqual(got, q) {
			t.Errorf("read %+v, %v", got, err)
		}
		again, err := three.PutQueue(ctx, auditlog.Action{}, ns, "q", func(c *task.QueueConfig) error { c.Paused = true; return nil })
		if err != nil || again.Config.Version != 2 || again.Config.Settings.MaxLength != 7 || !again.Config.CreatedAt.Equal(q.Config.CreatedAt) {
			t.Errorf("paused %+v, %v", again, err)
		}
		refused := task.Invalid("x", "y")
		if _, err := two.PutQueue(ctx, auditlog.Action{}, ns, "q", func(*task.QueueConfig) error { return refused }); !errors.Is(err, refused) {
			t.Errorf("a refused change: %v", err)
		}
		if list, err := two.Queues(ctx, ns, queues.Query{Limit: 10}); err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], again) {
			t.Errorf("listed %+v, %v", list, err)
		}
		before := f.count("place")
		for range 3 {
			if shard, err := two.Place(ctx, ns, "new"); err != nil || shard.Shard != 1 {
				t.Errorf("placed in %+v, %v", shard, err)
			}
		}
		if n := f.count("place") - before; n != 1 {
			t.Errorf("%d messages for a place that is known", n)
		}
		if err := three.DropQueue(ctx, task.Author{}, ns, "q"); err != nil {
			t.Error(err)
		}
		if _, known := (fakeMap{f.nodes[3]}).Queue(ns, "q"); known {
			t.Error("the copy keeps a queue that was dropped")
		}
		f.with(func() { f.leader0 = 0 })
		if _, _, err := two.Queue(ctx, ns, "new"); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("without a leader: %v", err)
		}
	})
}

// A change based on what others have just changed is retried; none is lost.
func TestChangesAtTheSameMoment(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		const each = 3
		done := make(chan error, 3*each)
		for _, m := range f.nodes {
			for range each {
				go func() {
					_, err := m.Directory().PutQueue(context.Background(), auditlog.Action{}, ns, "q", func(c *task.QueueConfig) error { c.Settings.MaxLength++; return nil })
					done <- err
				}()
			}
		}
		ok := int64(0)
		for range 3 * each {
			if err := <-done; err == nil {
				ok++
			} else if !errors.Is(err, task.ErrUnavailable) {
				t.Error(err)
			}
		}
		q := f.queues["q"]
		if q.Config.Settings.MaxLength != ok || ok < each || q.Config.Version != uint64(ok) {
			t.Errorf("%d changes of %d are there: %+v", q.Config.Settings.MaxLength, ok, q.Config)
		}
	})
}

// A queue that was dropped and created again in another shard: the caller does not notice, and the node knows the next time.
func TestAQueueThatMoved(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		f.with(func() { f.shard(2, 1, 2, 3).leader = 3 })
		m := f.nodes[2]
		for _, n := range f.nodes {
			n.enqueueIn["q"] = 2
			n.copy["q"] = queues.Queue{Namespace: ns, Name: "q", Shard: 1}
			n.copy["other"] = queues.Queue{Namespace: ns, Name: "other", Shard: 1}
		}
		got, _, err := m.Enqueue(context.Background(), 1, ns, []task.Spec{{Queue: "other"}, {Queue: "q"}, {Queue: "other"}})
		if err != nil {
			t.Fatal(err)
		}
		for i, shard := range []uint32{1, 2, 1} {
			if got[i].Err != nil || got[i].ID.Shard() != shard {
				t.Errorf("task %d: %+v, want it in shard %d", i, got[i], shard)
			}
		}
		if q, _ := m.Directory().Place(context.Background(), ns, "q"); q.Shard != 2 {
			t.Errorf("the node still places it in shard %d", q.Shard)
		}
		m.copy["q"] = queues.Queue{Namespace: ns, Name: "q", Shard: 1}
		if _, err := broker.OperateTask.Call(context.Background(), m, broker.TaskCommand{Verb: broker.Retry, OnTask: broker.OnTask{Namespace: ns, ID: got[0].ID}}); !errors.Is(err, task.ErrWrongState) || !strings.Contains(err.Error(), "has left the shard") {
			t.Errorf("a task whose queue is another: %v", err)
		}
		if q := m.copy["q"]; q.Shard != 2 {
			t.Errorf("after that the node places it in shard %d", q.Shard)
		}
		var to *moved
		if err := m.EnsureQueue(context.Background(), 5, ns, "fresh"); !errors.As(err, &to) || to.Shard != 1 || to.Config.Version == 0 {
			t.Errorf("EnsureQueue of another shard: %v", err)
		}
		if err := m.EnsureQueue(context.Background(), 1, ns, "fresh"); err != nil {
			t.Error(err)
		}
		if _, err := call(context.Background(), m.Router, ensureQueue, systemShard, queueArgs{Namespace: ns, Name: "fresh"}); err != nil || !slices.Equal(f.ensured, []uint32{5, 1}) {
			t.Errorf("a node that names no shard: %v; queues were ensured in %v", err, f.ensured)
		}
		// One that moves all the time results in an error, not an endless loop.
		for _, n := range f.nodes {
			n.enqueueIn["q"] = 0
		}
		began := time.Now()
		got, _, err = m.Enqueue(context.Background(), 1, ns, []task.Spec{{Queue: "q"}})
		if err != nil || !errors.Is(got[0].Err, task.ErrUnavailable) || time.Since(began) > routeTime+time.Second {
			t.Errorf("after %s: %+v, %v", time.Since(began), got, err)
		}
	})
}

func TestMethodsOfTheSystemShard(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		type args struct{ N int }
		asks := map[uint32]func(context.Context, args) (int, error){}
		for n, m := range f.nodes {
			asks[n] = OnSystem(m.Router, "double", true, func(_ context.Context, a args) (int, error) {
				if err := (fakeControl{m: m}).check(); err != nil {
					return 0, err
				}
				return 2 * a.N, nil
			})
		}
		for _, leader := range []uint32{1, 3} {
			f.with(func() { f.leader0 = leader })
			for n, ask := range asks {
				if got, err := ask(context.Background(), args{21}); err != nil || got != 42 {
					t.Errorf("node %d, led by %d: %d, %v", n, leader, got, err)
				}
			}
		}
	})
}

// The archives of all nodes form one list, newest first, page by page; a node that is silent is named.
func TestArchivesAreMerged(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		ctx := context.Background()
		began := time.Now()
		for i := range 10 { // node 2 has none
			m := f.nodes[[]uint32{1, 3, 3}[i%3]]
			m.archive = slices.Insert(m.archive, 0, broker.ArchivedTask{ID: fmt.Sprint(i), ArchivedAt: began.Add(time.Duration(i) * time.Second)})
		}
		for _, limit := range []int{1, 3, 4, 10, 20} {
			var ids []string
			for cursor, pages := "", 0; ; pages++ {
				tasks, places, cursors, err := f.nodes[2].Archived(ctx, ns, "", cursor, limit)
				if err != nil || len(tasks) != len(places) || len(tasks) != len(cursors) || pages > 20 {
					t.Fatalf("limit %d: %v, %v, %v, %v", limit, tasks, places, cursors, err)
				}
				for i := range tasks {
					ids = append(ids, tasks[i].ID)
					if one, err := f.nodes[1].ArchivedAt(ctx, places[i]); err != nil || one.ID != tasks[i].ID {
						t.Errorf("at %q: %v, %v", places[i], one, err)
					}
				}
				if len(cursors) == 0 {
					break
				}
				if cursor = cursors[len(cursors)-1]; cursor == "" {
					break
				}
			}
			if got := strings.Join(ids, ""); got != "9876543210" {
				t.Errorf("in pages of %d: %s", limit, got)
			}
		}
		// A page may end anywhere: each task's cursor continues after it.
		_, _, cursors, err := f.nodes[2].Archived(ctx, ns, "", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for i, cursor := range cursors[:9] {
			tasks, _, _, err := f.nodes[3].Archived(ctx, ns, "", cursor, 1)
			if err != nil || len(tasks) != 1 || tasks[0].ID != fmt.Sprint(8-i) {
				t.Errorf("behind task %d: %v, %v", i, tasks, err)
			}
		}
		// A place without a node dates from when there was only one.
		if one, err := f.nodes[2].ArchivedAt(ctx, "dead.jsonl:000"); err != nil || one.ID != "9" {
			t.Errorf("a place without a node: %v, %v", one, err)
		}
		for _, place := range []string{"n9:dead.jsonl:000", "n2:dead.jsonl:000", "dead.jsonl:999", ""} {
			if _, err := f.nodes[2].ArchivedAt(ctx, place); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("at %q: %v", place, err)
			}
		}
		for _, place := range []string{":::", "n\x00:dead.jsonl:000", "N 1:dead.jsonl:000"} {
			if _, err := f.nodes[2].ArchivedAt(ctx, place); !errors.Is(err, task.ErrInvalidArgument) {
				t.Errorf("at %q, which names no node: %v", place, err)
			}
		}
		if _, _, _, err := f.nodes[2].Archived(ctx, ns, "", "nonsense", 1); !errors.Is(err, task.ErrInvalidArgument) {
			t.Errorf("a bad cursor: %v", err)
		}
		for _, lot := range []fate{notSent, answerLost} {
			f.with(func() {
				f.network = func(_, to uint32, _ string) (x fate) {
					if to == 3 {
						x = lot
					}
					return x
				}
			})
			if _, _, _, err := f.nodes[2].Archived(ctx, ns, "", "", 10); !errors.Is(err, task.ErrUnavailable) || !strings.Contains(err.Error(), `"n3"`) {
				t.Errorf("a silent node: %v", err)
			}
		}
	})
	inFleet(t, 2, func(f *fleet) { // what a node can't send in one message comes in the next page, in its place
		began := time.Now()
		for i := range 6 {
			m := f.nodes[uint32(1+i%2)]
			m.archive = slices.Insert(m.archive, 0, broker.ArchivedTask{ID: fmt.Sprint(i), ArchivedAt: began.Add(time.Duration(i) * time.Second)})
			if i%2 == 1 {
				m.archive[0].Payload = make([]byte, maxArchiveBytes*2/3)
			}
		}
		var ids string
		for cursor, pages := "", 0; ; pages++ {
			tasks, _, cursors, err := f.nodes[1].Archived(context.Background(), ns, "", cursor, 10)
			if err != nil || len(tasks) == 0 || pages > 10 {
				t.Fatalf("%d tasks, %v", len(tasks), err)
			}
			for i := range tasks {
				ids += tasks[i].ID
			}
			if cursor = cursors[len(cursors)-1]; cursor == "" {
				break
			}
		}
		if ids != "543210" {
			t.Errorf("large ones came as %s", ids)
		}
	})
	inFleet(t, 1, func(f *fleet) { // with one node, places and cursors are those of its archive
		f.nodes[1].archive = make([]broker.ArchivedTask, 3)
		_, places, cursors, err := f.nodes[1].Archived(context.Background(), ns, "", "", 2)
		if err != nil || places[1] != "dead.jsonl:001" || cursors[1] != "dead.jsonl:001" {
			t.Errorf("%v, %v, %v", places, cursors, err)
		}
		tasks, _, cursors, err := f.nodes[1].Archived(context.Background(), ns, "", cursors[1], 2)
		if err != nil || len(tasks) != 1 || cursors[0] != "" {
			t.Errorf("%v, %v, %v", tasks, cursors, err)
		}
	})
}
