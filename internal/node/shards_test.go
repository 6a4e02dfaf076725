package node

import (
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

// A directory keeps its number of shards, and 0 means just that number.
func TestDataShards(t *testing.T) {
	for _, c := range []struct{ asked, has int }{{0, 1}, {1, 1}, {3, 3}} {
		dir := t.TempDir()
		for _, again := range []int{c.asked, 0, c.has} {
			s := start(t, Config{Dir: dir, DataShards: again})
			if s.dataShards() != c.has {
				t.Errorf("made with %d and started with %d it has %d shards, want %d", c.asked, again, s.dataShards(), c.has)
			}
			s.end()
		}
	}
}

// Data shards can be added: existing tasks stay where they are, and new queues use the new shards.
func TestMoreDataShards(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Config{Dir: dir})
	id, _ := enqueue(t, s.client(), "old")
	s.end()
	s = start(t, Config{Dir: dir, DataShards: 4})
	oneQueueEach(t, s.client(), 4)
	if _, shard := enqueue(t, s.client(), "old"); shard != 1 {
		t.Errorf("a queue has moved to shard %d", shard)
	}
	s.end()
	s = start(t, Config{Dir: dir})
	if info, err := s.client().Task(t.Context(), id); err != nil || info.ID != id {
		t.Errorf("the task of before: %+v, %v", info, err)
	}
	if s.dataShards() != 4 {
		t.Errorf("it has %d shards, want 4", s.dataShards())
	}
}

func TestFewerDataShardsAreRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Dir: dir, DataShards: 2}).end()
	refused(t, Config{Dir: dir, DataShards: 1}, "--shards (DataShards) is 1", "has 2 data shards")
	refused(t, Config{Dir: dir, DataShards: -1}, "shards: -1", "between 1 and 64")
	refused(t, Config{Dir: dir, DataShards: 65}, "shards: 65", "between 1 and 64")
	if s := start(t, Config{Dir: dir}); s.dataShards() != 2 {
		t.Errorf("after refusals it has %d shards, want 2", s.dataShards())
	}
}

func TestInMemoryDataShards(t *testing.T) {
	if s := start(t, Config{InMemory: true}); s.dataShards() != 1 {
		t.Errorf("in memory it has %d shards, want 1", s.dataShards())
	}
}

// dataShards returns how many the cluster has.
func (s *server) dataShards() int { return len(s.copy.Shards()) }

// enqueue enqueues a task and returns its id and shard.
func enqueue(t *testing.T, c *pawl.Client, queue string) (string, uint32) {
	t.Helper()
	ref, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue(queue))
	if err != nil {
		t.Fatal(err)
	}
	id, err := task.ParseID(ref.ID)
	if err != nil {
		t.Fatal(err)
	}
	return ref.ID, id.Shard()
}

// oneQueueEach finds a queue for each of n data shards, and enqueues two tasks into it.
func oneQueueEach(t *testing.T, c *pawl.Client, n int) (queues pawl.Strict) {
	t.Helper()
	found := map[uint32]bool{}
	for i := 0; len(found) < n; i++ {
		if i == 100 {
			t.Fatalf("100 queues lie in %d of %d shards", len(found), n)
		}
		queue := fmt.Sprintf("q%d", i)
		if _, shard := enqueue(t, c, queue); !found[shard] {
			found[shard] = true
			queues = append(queues, queue)
			enqueue(t, c, queue)
		}
	}
	return queues
}

// A claim over queues of several shards is one claim to its caller: in the requested order, and waiting for all of them.
func TestFourShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, DataShards: 4}).client()
		queues := oneQueueEach(t, c, 4)
		slices.Reverse(queues)
		claim := func(wait time.Duration) []*pawl.Claim {
			got, err := claims.New(c).Claim(t.Context(), claims.Request{Queues: queues, Max: 10, Wait: wait})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		got := claim(0)
		var from []string
		for _, task := range got {
			from = append(from, task.Queue)
			if err := claims.New(c).Ack(t.Context(), task); err != nil {
				t.Errorf("ack of a task from %q: %v", task.Queue, err)
			}
		}
		q := queues
		if want := []string{q[0], q[0], q[1], q[1], q[2], q[2], q[3], q[3]}; !slices.Equal(from, want) {
			t.Errorf("claimed from %q, want %q", from, want)
		}
		for _, queue := range queues {
			begin := time.Now()
			late := make(chan string, 1)
			go func() {
				pass(3 * time.Second)
				id, _ := enqueue(t, c, queue)
				late <- id
			}()
			got := claim(time.Minute)
			if id := <-late; len(got) != 1 || got[0].ID != id {
				t.Errorf("a claim that waited for %q got %d tasks, want %s", queue, len(got), id)
			}
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("a task came into %q after 3s and was claimed after %s", queue, took)
			}
		}
	})
}

// A list over all shards has every task once, in the order of the ids.
func TestListOfFourShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, DataShards: 4}).client()
		var want []string
		shards := map[uint32]bool{}
		for i := range 40 {
			id, shard := enqueue(t, c, fmt.Sprintf("q%d", i%20))
			want = append(want, id)
			shards[shard] = true
		}
		slices.Sort(want)
		slices.Reverse(want)
		var got []string
		cursor := ""
		for {
			page, err := admin.New(c).Tasks().ListPage(t.Context(), admin.Filter{}, pawltype.PageRequest{Limit: 7, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range page.Items {
				got = append(got, info.ID)
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %v, want %v", got, want)
		}
		if len(shards) != 4 {
			t.Errorf("20 queues lie in %d shards, want 4", len(shards))
		}
	})
}

// Queues stay where they are.
func TestQueuesStayInTheirShards(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Config{Dir: dir, DataShards: 4})
	c := s.client()
	at := map[string]uint32{}
	for _, queue := range oneQueueEach(t, c, 4) {
		_, at[queue] = enqueue(t, c, queue)
	}
	s.end()
	c = start(t, Config{Dir: dir}).client()
	for queue, before := range at {
		if _, now := enqueue(t, c, queue); now != before {
			t.Errorf("queue %q lay in shard %d and lies in %d", queue, before, now)
		}
		info, err := admin.New(c).Queues().Get(t.Context(), queue)
		if err != nil || info.Depth.Ready != 4 {
			t.Errorf("queue %q has %+v, %v, want 4 ready", queue, info, err)
		}
	}
}
