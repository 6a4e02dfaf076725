package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

// Readers of events miss nothing without a reset, get nothing twice, and get the events of a shard in order, while the leaders of
// both shards die in turn: readers that stay connected, and one that keeps disconnecting and resuming from its cursor at another
// node.
func TestEventsSurviveElections(t *testing.T) {
	bySameGoroutines(t, "TestOperationsSurviveElections")
	synctest.Test(t, func(t *testing.T) {
		w := newTwoShards(t)
		w.place("q", admin.QueueSettings{MaxAttempts: 1000, Lease: 5 * time.Second}, 1, 2)
		ctx, stop := context.WithCancel(t.Context())
		var readers []*eventReader
		var reading, working sync.WaitGroup
		for i, at := range []string{"n1:7295,n2:7295,n3:7295", "n2:7295,n3:7295,n1:7295", "n3:7295,n1:7295,n2:7295"} {
			r := &eventReader{name: fmt.Sprint("reader ", i), clients: []*pawl.Client{w.dialAll(at)}}
			readers = append(readers, r)
		}
		restless := &eventReader{name: "the one that comes and goes", most: 5}
		for _, r := range readers {
			restless.clients = append(restless.clients, r.clients...)
		}
		readers = append(readers, restless)
		before := w.terms()
		for _, r := range readers {
			reading.Go(func() { r.read(ctx, t) })
		}
		pass(5 * time.Second) // all have begun

		mux := pawl.NewMux()
		mux.HandleFunc("job", func(context.Context, *pawl.Claim) error { pass(300 * time.Millisecond); return nil })
		working.Go(func() {
			if err := pawl.NewWorker(w.client, mux, pawl.WorkerConfig{Queues: pawl.Strict{"q"}, Concurrency: 4,
				Logger: slog.New(slog.DiscardHandler)}).Run(ctx); err != nil {
				t.Error(err)
			}
		})
		var ids []string
		enqueue := func(many int) {
			for range many {
				ref, err := w.client.Enqueue(ctx, pawl.RawTask{Type: "job"}, pawl.Queue("q"), pawl.Key(fmt.Sprint(len(ids))))
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, ref.ID)
			}
		}
		for round := range uint32(4) {
			enqueue(12)
			pass(2 * time.Second)
			w.crashLeader(1+round%2, func() { enqueue(6) })
			w.until("three voters each", w.replicated(3))
			enqueue(6)
		}
		w.until("all have run", func() error {
			for _, id := range ids {
				if info, err := w.client.Task(ctx, id); err != nil || info.State != pawltype.StateSucceeded {
					return fmt.Errorf("task %s: %v", id, err)
				}
			}
			return nil
		})
		last := map[uint32]string{}
		for n := 0; len(last) < 2; n++ {
			ref, err := w.client.Enqueue(ctx, pawl.RawTask{Type: "job"}, pawl.Queue("q"), pawl.Key(fmt.Sprint("last", n)))
			if err != nil {
				t.Fatal(err)
			}
			last[shardOfID(t, ref.ID)] = ref.ID
		}
		for _, r := range readers {
			w.until(r.name+" is told the last", func() error { return r.has(last) })
		}
		stop()
		reading.Wait()
		working.Wait()
		happened, terms := allEvents(readers), w.terms()
		for shard, term := range before {
			terms[shard] -= term
		}
		for _, r := range readers {
			r.check(t, ids, happened, terms)
		}
		w.sound()
	})
}

func (w *twoShards) dialAll(addrs string) *pawl.Client {
	w.t.Helper()
	c, err := pawl.Dial(addrs, pawl.DialOptions{Dialer: w.dial, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// terms returns the shards' current terms. Each has at most one leader.
func (w *twoShards) terms() map[uint32]int {
	w.t.Helper()
	terms := map[uint32]int{}
	w.until("all shards have leaders", func() error {
		s, err := admin.New(w.client).Cluster().Server(context.Background())
		if err != nil {
			return err
		}
		for _, sh := range s.Shards {
			if terms[uint32(sh.Shard)] = int(sh.Term); sh.Leader == "" {
				return fmt.Errorf("shard %d has none", sh.Shard)
			}
		}
		return nil
	})
	return terms
}

func shardOfID(t *testing.T, id string) uint32 {
	t.Helper()
	parsed, err := task.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Shard()
}

// eventReader reads the events of tasks.
type eventReader struct {
	name    string
	clients []*pawl.Client // asked in turn
	most    int            // events per stream, after which it disconnects; 0: it stays

	mu   sync.Mutex
	told []*admin.Event
}

func (r *eventReader) read(ctx context.Context, t *testing.T) {
	cursor := ""
	for n := 0; ctx.Err() == nil; n++ {
		heard := 0
		for e, err := range admin.New(r.clients[n%len(r.clients)]).Events(ctx, admin.EventFilter{Kinds: []admin.EventKind{"task.*"},
			After: cursor}) {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.Errorf("%s: %v", r.name, err)
				return
			}
			r.mu.Lock()
			r.told = append(r.told, e)
			r.mu.Unlock()
			cursor = e.Cursor
			if heard++; heard == r.most {
				break
			}
		}
	}
}

// has checks that events of the given tasks were received.
func (r *eventReader) has(last map[uint32]string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range last {
		if !slices.ContainsFunc(r.told, func(e *admin.Event) bool { return e.TaskID == id }) {
			return fmt.Errorf("task %s is not", id)
		}
	}
	return nil
}

// happening identifies an event.
type happening struct {
	shard   uint32
	index   uint64
	kind    admin.EventKind
	task    string
	attempt int
}

func happeningOf(e *admin.Event) happening {
	return happening{e.Shard, e.Index, e.Kind, e.TaskID, e.Attempt}
}

// allEvents returns what all readers together have received: whatever was reported has happened.
func allEvents(readers []*eventReader) map[happening]bool {
	all := map[happening]bool{}
	for _, r := range readers {
		for _, e := range r.told {
			if e.Kind != admin.EventReset {
				all[happeningOf(e)] = true
			}
		}
	}
	return all
}

// check compares what a reader received with what docs/events.md promises.
func (r *eventReader) check(t *testing.T, ids []string, happened map[happening]bool, terms map[uint32]int) {
	t.Helper()
	heard := map[happening]bool{}
	resets := map[uint32][]int{}         // positions, by shard
	first := map[string]map[string]int{} // of a task, the position of each kind
	ranges := map[uint32][][2]uint64{}   // ranges of entries that must be complete, by shard
	for at, e := range r.told {
		line := ranges[e.Shard]
		if e.Kind == admin.EventReset {
			resets[e.Shard] = append(resets[e.Shard], at)
			ranges[e.Shard] = append(line, [2]uint64{})
			continue
		}
		h := happeningOf(e)
		if heard[h] {
			t.Errorf("%s was told twice: %+v", r.name, h)
		}
		heard[h] = true
		if first[e.TaskID] == nil {
			first[e.TaskID] = map[string]int{}
		}
		first[e.TaskID][string(e.Kind)] = at
		if len(line) == 0 {
			line = append(line, [2]uint64{})
		}
		now := &line[len(line)-1]
		if e.Index < now[1] {
			t.Errorf("%s: entry %d of shard %d came behind %d", r.name, e.Index, e.Shard, now[1])
		}
		if now[0] == 0 {
			now[0] = e.Index
		}
		now[1] = e.Index
		ranges[e.Shard] = line
	}
	for h := range happened {
		for _, s := range ranges[h.shard] {
			if s[0] < h.index && h.index < s[1] && !heard[h] {
				t.Errorf("%s was not told %+v, between entries %d and %d, and of no reset", r.name, h, s[0], s[1])
			}
		}
	}
	for _, id := range ids {
		shard := shardOfID(t, id)
		enqueued, wasEnqueued := first[id][string(admin.EventEnqueued)]
		end, hasEnded := first[id][string(admin.EventSucceeded)]
		switch resetIn := func(from, to int) bool {
			return slices.ContainsFunc(resets[shard], func(at int) bool { return from <= at && at < to })
		}; {
		case wasEnqueued && hasEnded:
		case wasEnqueued && !resetIn(enqueued, len(r.told)):
			t.Errorf("%s was not told how task %s ended, and of no reset behind its birth", r.name, id)
		case hasEnded && !resetIn(0, end):
			t.Errorf("%s was not told of the birth of task %s, and of no reset before its end", r.name, id)
		case !wasEnqueued && !hasEnded && len(resets[shard]) == 0:
			t.Errorf("%s was told nothing of task %s, and of no reset", r.name, id)
		}
	}
	for shard := uint32(1); shard <= 2; shard++ {
		if n := len(resets[shard]); n == 0 || n > terms[shard] {
			t.Errorf("%s had %d resets in shard %d, which had new leaders: want 1 to %d", r.name, n, shard, terms[shard])
		}
	}
	t.Logf("%s was told %d events of %d, with %d and %d resets", r.name, len(heard), len(happened), len(resets[1]), len(resets[2]))
}
