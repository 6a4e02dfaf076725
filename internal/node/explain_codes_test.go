package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

// scene is a queue of a cluster in both data shards; in one of them a task is made to wait for a known cause.
type scene struct {
	*twoShards
	queue string
	shard uint32
	key   string // whose tasks are in the shard
	other string // likewise
}

// newScene creates the queue and finds two keys.
func (w *twoShards) newScene(queue string, settings admin.QueueSettings, shard uint32) *scene {
	w.t.Helper()
	s := &scene{twoShards: w, queue: queue, shard: shard}
	w.place(queue, admin.QueueSettings{}, 1, 2)
	for i := 0; s.other == ""; i++ {
		key := fmt.Sprint("k", i)
		if id, err := task.ParseID(s.add(pawl.Key(key), pawl.In(240*time.Hour))); err != nil {
			w.t.Fatal(err)
		} else if id.Shard() != shard {
			continue
		}
		if s.key == "" {
			s.key = key
		} else {
			s.other = key
		}
	}
	s.set(settings)
	return s
}

// set applies the queue's settings, and waits until all shards have them.
func (s *scene) set(settings admin.QueueSettings) {
	s.t.Helper()
	_, err := admin.New(s.client).Queues().Put(s.t.Context(), s.queue, settings)
	s.must(err)
	pass(5 * time.Second)
}

func (s *scene) add(opts ...pawl.Option) (id string) {
	s.t.Helper()
	own := []pawl.Option{pawl.Queue(s.queue)}
	if s.key != "" {
		own = append(own, pawl.Key(s.key))
	}
	ref, err := s.client.Enqueue(s.t.Context(), pawl.RawTask{Type: "job"}, append(own, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return ref.ID
}

// claim claims everything that may run, through a node.
func (s *scene) claim(node string) (all []*pawl.Claim) {
	s.t.Helper()
	for {
		got, err := claims.New(s.nodes[node].client()).Claim(s.t.Context(), claims.Request{Queues: pawl.Strict{s.queue}, Max: 10,
			Lease: 12 * time.Hour})
		if err != nil {
			s.t.Fatal(err)
		}
		if all = append(all, got...); len(got) == 0 {
			return all
		}
	}
}

// one claims the only task that may run.
func (s *scene) one() *pawl.Claim {
	s.t.Helper()
	got := s.claim("n2")
	if len(got) != 1 {
		s.t.Fatalf("%s: claimed %d tasks, want 1", s.queue, len(got))
	}
	return got[0]
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s in shard %d: %v", s.queue, s.shard, err)
	}
}

// waits starts a claim for tasks of the given types at node 3 that waits for a minute.
func (s *scene) waits(types ...string) {
	c := s.nodes["n3"].client()
	go func() {
		_, _ = claims.New(c).Claim(s.t.Context(), claims.Request{Queues: pawl.Strict{s.queue}, Types: types,
			Wait: time.Minute, Worker: "w3"})
	}()
	pass(time.Second)
}

// cause creates a task that waits for a code.
type cause struct {
	settings admin.QueueSettings
	make     func(s *scene) (id string)
	after    func(s *scene)
}

// hour is a rate of one task per hour in each of two parts.
var hour = admin.RateLimit{Limit: 2, Period: time.Hour}

func limited(n int, rate admin.RateLimit) admin.QueueLimits {
	return admin.QueueLimits{MaxRunning: n, Rate: rate}
}

// second enqueues a task to be claimed, and then the one to be explained.
func second(s *scene) string {
	s.add()
	id := s.add()
	s.one()
	return id
}

// causes are the causes of all codes except no_leader and draining, which come last since they affect shards and nodes, and next: a
// task that may run, while a worker waits for it, is claimed in the same instant. The engine's stories cover that instant.
var causes = map[task.Why]cause{
	task.WhyRunning: {make: func(s *scene) string { id := s.add(); s.one(); return id }},
	task.WhyEnded: {make: func(s *scene) string {
		id := s.add()
		s.must(claims.New(s.client).Ack(s.t.Context(), s.one()))
		return id
	}},
	task.WhyOnItsWay: {make: onItsWay},
	task.WhyNotDue:   {make: func(s *scene) string { return s.add(pawl.In(time.Hour)) }},
	task.WhyUnique: {make: func(s *scene) string {
		u := pawl.Unique(pawl.UniqueOpts{Key: "{" + s.key + "}u", OnConflict: pawltype.OnConflictKeepLast})
		s.add(u)
		s.one()
		return s.add(u)
	}},
	task.WhyKeyOrder: {settings: admin.QueueSettings{KeyOrder: admin.KeyOrderStrict}, make: second},
	task.WhyQueuePaused: {make: func(s *scene) string {
		_, err := admin.New(s.client).Queues().Pause(s.t.Context(), s.queue)
		s.must(err)
		return s.add()
	}},
	task.WhyTypePaused: {make: func(s *scene) string { return s.pause(admin.Subset{Type: "job"}) }},
	task.WhyKeyPaused:  {make: func(s *scene) string { return s.pause(admin.Subset{Key: s.key}) }},
	task.WhyBreakerOpen: {settings: admin.QueueSettings{Breaker: &admin.Breaker{MinAttempts: 1, Hold: time.Hour}},
		make: func(s *scene) string {
			s.add(pawl.MaxAttempts(1))
			_, err := claims.New(s.client).Fail(s.t.Context(), s.one(), errors.New("no"))
			s.must(err)
			return s.add()
		}},
	task.WhyQueueMaxRunning: {settings: admin.QueueSettings{QueueLimits: limited(2, admin.RateLimit{})}, make: second},
	task.WhyQueueRate:       {settings: admin.QueueSettings{QueueLimits: limited(0, hour)}, make: second},
	task.WhyKeyMaxRunning:   {settings: admin.QueueSettings{PerKey: limited(1, admin.RateLimit{})}, make: second},
	task.WhyKeyRate: {settings: admin.QueueSettings{PerKey: limited(0, admin.RateLimit{Limit: 1, Period: time.Hour})},
		make: second},
	task.WhyNamespaceMaxRunning: {
		make: func(s *scene) string {
			s.quota(2) // more are running already
			return s.add()
		},
		after: func(s *scene) { s.quota(0) },
	},
	task.WhyNoWorker:        {make: func(s *scene) string { return s.add() }},
	task.WhyNoWorkerForType: {make: func(s *scene) string { id := s.add(); s.waits("other"); return id }},
	task.WhyWorkersUnknown: {make: func(s *scene) string {
		s.add()
		s.one()
		id := s.add()
		pass(6 * time.Minute) // the holder of the first is forgotten
		return id
	}},
	task.WhyHigherPriority: {make: func(s *scene) string { s.add(pawl.Priority(pawltype.High)); return s.add() }},
	task.WhyOlderTasks:     {make: func(s *scene) string { s.add(); return s.add() }},
	task.WhyOtherKeys: {make: func(s *scene) string {
		s.add()
		id := s.add()
		s.add(pawl.Key(s.other))
		got, err := claims.New(s.client).Claim(s.t.Context(), claims.Request{Queues: pawl.Strict{s.queue}, Max: 1})
		if s.must(err); len(got) != 1 || got[0].Key != s.key {
			s.t.Fatalf("claimed %v", got)
		}
		pass(time.Second) // the key uses time
		return id
	}},
	task.WhyWorkersBusy: {make: func(s *scene) string {
		s.add()
		startWorker(s.t, s.nodes["n3"].client(), pawl.WorkerConfig{Queues: pawl.Strict{s.queue}, Concurrency: 1}, 24*time.Hour, "job")
		pass(time.Second)
		return s.add()
	}},
}

func (s *scene) pause(of admin.Subset) string {
	var err error
	if queues := admin.New(s.client).Queues(); of.Type == "" && of.Key == "" {
		_, err = queues.Pause(s.t.Context(), s.queue)
	} else {
		_, err = queues.PauseSubset(s.t.Context(), s.queue, of)
	}
	s.must(err)
	return s.add()
}

// quota limits the running tasks of the namespace; 0: unlimited.
func (s *scene) quota(n int64) {
	updated, err := admin.New(s.client).Namespaces().SetQuotas(s.t.Context(), "default", admin.QuotaChange{MaxRunning: &n})
	if s.must(err); len(updated.Unconfirmed) > 0 {
		s.t.Errorf("nodes %q have not confirmed the quota", updated.Unconfirmed)
	}
	pass(10 * time.Second)
}

// onItsWay ends a task whose follow-up finds its queue full.
func onItsWay(s *scene) string {
	full := s.newScene("full-"+s.queue, admin.QueueSettings{}, 3-s.shard)
	full.set(admin.QueueSettings{MaxLength: 2}) // it has more in that shard
	id := s.add(pawl.Then(pawl.RawTask{Type: "job"}, pawl.Queue(full.queue), pawl.Key(full.key)))
	s.must(claims.New(s.client).Ack(s.t.Context(), s.one()))
	return id
}

// explained asks all reachable nodes, which must agree, and returns the answer.
func (s *scene) explained(id string) (codes []admin.ReasonCode) {
	s.t.Helper()
	for i, node := range []string{"n1", "n2", "n3"} {
		e, err := admin.New(s.nodes[node].client()).Tasks().Explain(s.t.Context(), id)
		if err != nil {
			s.t.Errorf("%s in shard %d: node %s: %v", s.queue, s.shard, node, err)
			continue
		}
		if got := codesOf(e.Reasons); codes != nil && !slices.Equal(got, codes) {
			s.t.Errorf("%s in shard %d: node %d says %v, others %v", s.queue, s.shard, i+1, got, codes)
		} else {
			codes = got
		}
	}
	return codes
}

// want compares the explanation of a task with its cause. Most queues have no waiting workers, or one that may come again: the
// explanation says that, too.
func (s *scene) want(id string, code task.Why) {
	s.t.Helper()
	if at, err := task.ParseID(id); err != nil || at.Shard() != s.shard {
		s.t.Fatalf("task %s is not in shard %d (%v)", id, s.shard, err)
	}
	got := s.explained(id)
	rest := slices.DeleteFunc(slices.Clone(got), func(c admin.ReasonCode) bool {
		switch c {
		case admin.ReasonNoWorker, admin.ReasonWorkersBusy, admin.ReasonWorkersUnknown:
			return string(c) != string(code)
		case admin.ReasonEnded:
			return code == task.WhyOnItsWay
		case admin.ReasonOlderTasks: // the first of two, which may not run either
			return code == task.WhyKeyOrder
		}
		return false
	})
	if len(rest) != 1 || string(rest[0]) != string(code) {
		s.t.Errorf("in shard %d: %s is explained by %v", s.shard, code, got)
	}
}

// TestEveryCodeInACluster: in a cluster of three nodes, in each of a queue's shards, a task waits for a known cause, and every node
// names it. Without long, the codes take turns in the shards.
func TestEveryCodeInACluster(t *testing.T) {
	bySameGoroutines(t, "TestWorkersOfOtherNodes")
	synctest.Test(t, func(t *testing.T) {
		w, first := newTwoShards(t), sample(t, 2)
		for i, code := range task.Whys {
			c, known := causes[code]
			if !known {
				if code != task.WhyNoLeader && code != task.WhyDraining && code != task.WhyNext {
					t.Errorf("no case has the code %s", code)
				}
				continue
			}
			for _, shard := range []uint32{1, 2} {
				if !long() && (i+first)%2 != int(shard-1) {
					continue
				}
				s := w.newScene(fmt.Sprint(code, shard), c.settings, shard)
				s.want(c.make(s), code)
				if c.after != nil {
					c.after(s)
				}
			}
		}
		w.drains()
		w.noLeader()
	})
}

// drains: the node that leads the shard is about to stop.
func (w *twoShards) drains() {
	for _, shard := range []uint32{1, 2} {
		s := w.newScene(fmt.Sprint("drains", shard), admin.QueueSettings{}, shard)
		id := s.add()
		w.nodes[w.leaderOf(shard)].broker.Drain()
		s.want(id, task.WhyDraining)
	}
}

// noLeader: most replicas of the shard can't reach each other.
func (w *twoShards) noLeader() {
	s := w.newScene("dark", admin.QueueSettings{}, 2)
	id := s.add()
	w.loseShard2()
	s.want(id, task.WhyNoLeader)
	w.healShard2()
	w.until("the shard has a leader again", func() error {
		if codes := s.explained(id); slices.Contains(codes, admin.ReasonNoLeader) {
			return fmt.Errorf("%v", codes)
		}
		return nil
	})
}
