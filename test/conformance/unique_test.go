package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

// unique is a unique key. In requests zero fields are omitted.
type unique struct {
	Key        string   `json:"key,omitempty"`
	States     []string `json:"states,omitempty"`
	OnConflict string   `json:"on_conflict,omitempty"`
}

func (u *unique) task() *task.Unique {
	if u == nil {
		return nil
	}
	out := &task.Unique{Key: u.Key}
	for _, name := range u.States {
		s, _ := task.ParseState(name)
		out.States |= task.StatesOf(s)
	}
	out.OnConflict, _ = task.ParseOnConflict(u.OnConflict)
	return out
}

func uniqueOf(u *task.Unique) *unique {
	if u == nil {
		return nil
	}
	out := &unique{Key: u.Key, OnConflict: u.OnConflict.String()}
	for _, s := range u.States.List() {
		out.States = append(out.States, s.String())
	}
	return out
}

func (u *unique) proto() *pawlv1.Unique {
	if u == nil {
		return nil
	}
	out := &pawlv1.Unique{Key: text(u.Key), OnConflict: pawlv1.OnConflict(pawlv1.OnConflict_value["ON_CONFLICT_"+
		strings.ToUpper(u.OnConflict)])}
	for _, name := range u.States {
		out.States = append(out.States, pawlv1.State(pawlv1.State_value["STATE_"+strings.ToUpper(name)]))
	}
	return out
}

func uniqueProto(p *pawlv1.Unique) *unique {
	if p == nil {
		return nil
	}
	out := &unique{Key: p.GetKey(), OnConflict: word(p.GetOnConflict(), "ON_CONFLICT_")}
	for _, s := range p.GetStates() {
		out.States = append(out.States, word(s, "STATE_"))
	}
	return out
}

func (u *unique) sdk() pawltype.UniqueOpts {
	out := pawltype.UniqueOpts{Key: u.Key, OnConflict: pawltype.OnConflict(u.OnConflict)}
	for _, name := range u.States {
		out.States = append(out.States, pawltype.State(name))
	}
	return out
}

func uniqueSDK(u *pawltype.UniqueOpts) *unique {
	if u == nil {
		return nil
	}
	out := &unique{Key: u.Key, OnConflict: string(u.OnConflict)}
	for _, s := range u.States {
		out.States = append(out.States, string(s))
	}
	return out
}

var unfinished = []string{"scheduled", "ready", "claimed", "retrying"}

func TestUnique(t *testing.T) {
	of := func(key, onConflict string) spec { return spec{Unique: &unique{Key: key, OnConflict: onConflict}} }
	tellAll(t, []story{
		{name: "a unique key has one task, which is returned until it ends", tell: func(w *world) {
			first := w.enqueue(of("k", ""))
			is(w, "the task", w.get(first.ID).Unique, &unique{"k", unfinished, "keep"})
			again := w.enqueue(of("k", "keep"))
			is(w, "another", again, accepted{ID: first.ID, State: "ready", CreatedAt: first.CreatedAt, Duplicate: true})
			w.ack(w.one(from("default")))
			is(w, "when it has ended", w.enqueue(of("k", "")).Duplicate, false)
		}},
		{name: "a unique key without a name is derived from type and payload", tell: func(w *world) {
			same := func(payload string) spec { return spec{Type: "job", Payload: payload, Unique: &unique{}} }
			first := w.enqueue(same("1"))
			is(w, "the same", w.enqueue(same("1")).ID, first.ID)
			is(w, "in another notation", w.enqueue(same("1.0")).ID, first.ID)
			is(w, "another payload", w.enqueue(same("2")).Duplicate, false)
			is(w, "its key", strings.HasPrefix(w.get(first.ID).Unique.Key, "sha256:"), true)
		}},
		{name: "reject refuses and names the existing task", tell: func(w *world) {
			first := w.enqueue(of("k", "reject"))
			_, err := w.api.Enqueue(w.ctx(), spec{Type: "job", Unique: &unique{Key: "k", OnConflict: "reject"}})
			w.refused("another", err, refusal{Code: "conflict", Field: "unique.key"})
			is(w, "it names the first", strings.Contains(err.Error(), first.ID), true)
		}},
		{name: "replace replaces the waiting task", tell: func(w *world) {
			first := w.enqueue(spec{Payload: "1", Delay: minute, Unique: &unique{Key: "k", OnConflict: "replace"}})
			second := w.enqueue(spec{Payload: "2", Unique: &unique{Key: "k", OnConflict: "replace"}})
			is(w, "it is new", second.Duplicate || second.ID == first.ID, false)
			old := w.get(first.ID)
			is(w, "the first", [2]string{old.State, old.Reason}, [2]string{"discarded", "replaced"})
			is(w, "what runs", w.one(from("default")).ID, second.ID)
			is(w, "while it runs", w.enqueue(of("k", "replace")).ID, second.ID)
		}},
		{name: "keep_last keeps the newest task waiting behind the running one", tell: func(w *world) {
			first := w.enqueue(of("k", "keep_last"))
			runs := w.one(from("default"))
			second, third := w.enqueue(of("k", "keep_last")), w.enqueue(of("k", "keep_last"))
			is(w, "the second", w.get(second.ID).Reason, "replaced")
			is(w, "the third", w.get(third.ID).WaitsFor, first.ID)
			is(w, "the depth", w.queue("default").Depth, depth{Ready: 1, Held: 1, Claimed: 1})
			w.nothing()
			w.ack(runs)
			is(w, "then", w.one(from("default")).ID, third.ID)
			is(w, "it waits for nobody", w.get(third.ID).WaitsFor, "")
		}},
		{name: "a failed run gives way to the waiting task", tell: func(w *world) {
			first := w.enqueue(of("k", "keep_last"))
			runs := w.one(from("default"))
			second := w.enqueue(of("k", "keep_last"))
			is(w, "the answer", w.fail(runs, failing{Message: "boom"}).State, "discarded")
			is(w, "the first", w.get(first.ID).Reason, "replaced")
			is(w, "what runs", w.one(from("default")).ID, second.ID)
		}},
		{name: "unique keys are checked within a batch", tell: func(w *world) {
			got := w.batch([]spec{{Type: "job", Unique: &unique{Key: "k"}}, {Type: "job", Unique: &unique{Key: "k"}},
				{Type: "job", Unique: &unique{Key: "k", OnConflict: "reject"}}})
			is(w, "the second", got[1].ID == got[0].ID && got[1].Duplicate, true)
			w.refused("the third", got[2].Err, refusal{Code: "conflict", Field: "unique.key"})
		}},
		{name: "a dead letter whose unique key is taken is not replayed", tell: func(w *world) {
			first := w.id(spec{Type: "job", MaxAttempts: 1, Unique: &unique{Key: "k"}})
			w.kill("default", "boom")
			second := w.enqueue(of("k", ""))
			replay := operation{Action: "replay", Filter: filter{Queue: "default"}}
			is(w, "many", w.operate(replay).counts(), "done: 1 of 1, 0 done, 1 skipped as unique_key_taken")
			_, err := w.api.Retry(w.ctx(), first)
			w.refused("one", err, refusal{Code: "wrong_state", State: "dead"})
			is(w, "it names the other", strings.Contains(err.Error(), second.ID), true)
			w.ack(w.one(from("default")))
			is(w, "when the key is free", w.operate(replay).counts(), "done: 1 of 1, 1 done")
		}},
	})
}

// Whatever moves, at most one task of a unique key runs and one waits, and no key is lost.
func TestUniqueWhileSlotsMove(t *testing.T) {
	dir := t.TempDir()
	for seed := range seeds(2, 3) {
		synctest.Test(t, func(t *testing.T) {
			h := build(t, movingShards, dir)
			m := &moving{T: t, h: h, rpc: newRPC(t, h), seed: seed, rest: time.Minute}
			u := &movingUnique{moving: m, runs: map[string]string{}}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			_, err := h.router.Queues.Place(ctx, namespace, "hot")
			must(t, err)
			var producers, others sync.WaitGroup
			for n := range movingProducers {
				producers.Go(func() { u.produce(ctx, n) })
			}
			for n := range 3 {
				others.Go(func() { u.work(ctx, n) })
			}
			others.Go(func() { m.move(ctx) })
			producers.Wait()
			time.Sleep(time.Minute) // until all have run
			stop()
			others.Wait()
			u.judge()
		})
	}
}

// movingUnique runs tasks with few unique keys in a queue whose slots move.
type movingUnique struct {
	*moving
	runs   map[string]string // key → task, from the claim's answer to the call that ends it
	counts [3]int            // runs, duplicates, refusals
}

func (u *movingUnique) produce(ctx context.Context, n int) {
	rnd := u.rand(1, n)
	for range 2 * movingTasks {
		key := fmt.Sprint("u", rnd.IntN(4))
		spec := &pawlv1.TaskSpec{Type: "t", Queue: new("hot"), Payload: []byte(`"` + key + `"`),
			Unique: &pawlv1.Unique{Key: text(key), OnConflict: pawlv1.OnConflict(1 + rnd.IntN(4))}}
		if rnd.IntN(4) == 0 {
			spec.Delay = durationpb.New(time.Duration(rnd.IntN(20)) * time.Second)
		}
		r, err := u.rpc.producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: spec})
		u.mu.Lock()
		switch {
		case err != nil && spec.Unique.OnConflict == pawlv1.OnConflict_ON_CONFLICT_REJECT:
			u.counts[2]++
		case err != nil:
			u.Logf("enqueue: %v", err)
		case r.GetTask().GetDuplicate():
			u.counts[1]++
		}
		u.mu.Unlock()
		time.Sleep(rand.N(40 * time.Second))
	}
}

func (u *movingUnique) work(ctx context.Context, n int) {
	rnd := u.rand(2, n)
	for ctx.Err() == nil {
		r, err := u.rpc.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"}},
			Order: pawlv1.Order_ORDER_STRICT, Max: int32(1 + rnd.IntN(3)), Wait: durationpb.New(30 * time.Second),
			Worker: fmt.Sprint("w", n)})
		if err != nil {
			continue
		}
		var all sync.WaitGroup
		for _, c := range r.GetTasks() {
			u.begin(c)
			all.Go(func() {
				time.Sleep(rand.N(10 * time.Second))
				u.end(ctx, c)
			})
		}
		all.Wait()
	}
}

func (u *movingUnique) begin(c *pawlv1.ClaimedTask) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := string(c.GetPayload())
	if other := u.runs[key]; other != "" {
		u.Errorf("seed %d: tasks %s and %s of key %s run at the same time", u.seed, other, c.GetTaskId(), key)
	}
	u.runs[key] = c.GetTaskId()
	u.counts[0]++
}

// end removes the task from the list before it tells the broker, which may hand out another claim before it answers.
func (u *movingUnique) end(ctx context.Context, c *pawlv1.ClaimedTask) {
	u.mu.Lock()
	delete(u.runs, string(c.GetPayload()))
	u.mu.Unlock()
	var err error
	if rand.IntN(3) == 0 {
		_, err = u.rpc.worker.Release(ctx, &pawlv1.ReleaseRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
	} else {
		_, err = u.rpc.worker.Ack(ctx, &pawlv1.AckRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
	}
	if err != nil && ctx.Err() == nil {
		u.Errorf("seed %d: ending the claim of %s: %v", u.seed, c.GetTaskId(), err)
	}
}

// judge checks that all keys are free again in every shard, and that moves met tasks.
func (u *movingUnique) judge() {
	for id := uint32(dataShard); id < dataShard+movingShards; id++ {
		held, err := broker.HoldsUnique.Call(u.Context(), u.h.router,
			broker.OnSlots{OnQueue: broker.OnQueue{OnShard: broker.OnShard{Shard: id,
				Namespace: namespace}, Queue: "hot"}, Slots: task.AllSlots})
		if must(u.T, err); held {
			u.Errorf("seed %d: a unique key is still held in shard %d after all tasks have ended", u.seed, id)
		}
	}
	for i, what := range []string{"runs", "duplicates", "refusals"} {
		if u.counts[i] < 20 {
			u.Errorf("seed %d: only %d %s", u.seed, u.counts[i], what)
		}
	}
}

// A unique key that is held in the shard that its slot has left is found there as long as it is held, and not in the other.
func TestUniqueKeyStaysWithHolder(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := build(t, 2, dir)
		r := newRPC(t, h)
		ctx := t.Context()
		q, err := h.router.Queues.Place(ctx, namespace, "hot")
		must(t, err)
		enqueue := func(mode pawlv1.OnConflict) task.ID {
			got, err := r.producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t", Queue: new("hot"),
				Delay: durationpb.New(48 * time.Hour), Unique: &pawlv1.Unique{Key: new("k"), OnConflict: mode}}})
			must(t, err)
			id, err := task.ParseID(got.GetTask().GetTaskId())
			must(t, err)
			return id
		}
		first := enqueue(pawlv1.OnConflict_ON_CONFLICT_KEEP)
		there := 3 - q.Shard
		_, err = h.router.Queues.Spread(ctx, task.Author{}, namespace, "hot", queues.SpreadTarget{Shards: []uint32{there}})
		must(t, err)
		time.Sleep(24 * time.Hour) // longer than anything is kept for a request
		if again := enqueue(pawlv1.OnConflict_ON_CONFLICT_KEEP); again != first {
			t.Errorf("an enqueue with the key returned task %s, then %s", first, again)
		}
		second := enqueue(pawlv1.OnConflict_ON_CONFLICT_REPLACE)
		if second == first || second.Shard() != q.Shard {
			t.Errorf("task %s in shard %d was replaced by %s in shard %d", first, q.Shard, second, second.Shard())
		}
		_, err = r.producer.CancelTask(ctx, &pawlv1.CancelTaskRequest{TaskId: second.String()})
		must(t, err)
		if third := enqueue(pawlv1.OnConflict_ON_CONFLICT_KEEP); third.Shard() != there {
			t.Errorf("the task for the free key is in shard %d, want %d", third.Shard(), there)
		}
		time.Sleep(2 * time.Hour)
		if now, err := h.control.Queues.Queue(ctx, namespace, "hot"); err != nil || !slices.Equal(now.Shards(), []uint32{there}) {
			t.Errorf("the old shard still belongs to the queue: %+v, %v", now, err)
		}
	})
}
