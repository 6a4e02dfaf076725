package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

const (
	uniqueQueue = "unique"
	uniqueKeys  = 4
)

// version is the newest data of a key.
type version struct {
	Key string
	N   int
}

// TaskType implements pawl.Args.
func (version) TaskType() string { return "version" }

// TestUniqueThroughCrashes kills the server repeatedly while each of a few keys gets new data faster than workers
// process it, with keep_last: no key ever runs twice at the same time, its data never gets older, its last version is
// processed, and in the end no key is held.
func TestUniqueThroughCrashes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	client := s.dial(pawl.DialOptions{RetryFor: startLimit})
	if _, err := admin.New(client).Queues().Put(t.Context(), uniqueQueue, admin.QueueSettings{MaxAttempts: 1000,
		Lease: 3 * time.Second}); err != nil {
		t.Fatal(err)
	}
	w := &uniqueWork{t: t, claims: claims.New(client), killed: make(chan struct{}),
		runs: map[string]bool{}, begun: map[string]int{}, done: map[string]int{}, last: map[string]int{}}
	ctx, stop := context.WithTimeout(t.Context(), 3*startLimit)
	defer stop()
	var all sync.WaitGroup
	for n := range uniqueKeys {
		all.Go(func() { w.produce(ctx, client, fmt.Sprint("k", n)) })
	}
	for range 4 {
		all.Go(func() { w.run(ctx) })
	}
	s.killOften(count(t, "PAWL_KILLS", 12) / 2)
	// on a busy machine, not yet
	eventually(t, "some versions never run, and some runs are replaced by a newer version", startLimit, w.replacedBoth)
	close(w.killed)
	all.Wait()
	if ctx.Err() != nil {
		t.Fatalf("the last acked versions are %v of %v: a key may be held forever", w.done, w.last)
	}
	t.Logf("versions %v, %d of them never ran; %d runs were replaced by a newer version", w.last, w.replaced, w.gaveWay)
	q, err := admin.New(client).Queues().Get(t.Context(), uniqueQueue)
	if err != nil || q.Depth != (admin.Depth{}) {
		t.Errorf("at the end the queue has %+v, %v", q.Depth, err)
	}
	for n := range uniqueKeys {
		key := fmt.Sprint("k", n)
		if _, err := client.Enqueue(t.Context(), version{key, 0}, pawl.Queue(uniqueQueue),
			pawl.Unique(pawltype.UniqueOpts{Key: key, OnConflict: pawltype.OnConflictReject})); err != nil {
			t.Errorf("at the end a key is still held: %v", err)
		}
	}
}

// uniqueWork is a set of producers and workers, with what they know together.
type uniqueWork struct {
	t      *testing.T
	claims claims.Client
	killed chan struct{} // closed when no more versions are needed

	mu       sync.Mutex
	last     map[string]int  // the last version of each key, once all were made
	runs     map[string]bool // running keys, from the answer to a claim until its end is begun
	begun    map[string]int  // the version of each that ran last
	done     map[string]int  // and the one that was acked last
	replaced int             // skipped versions
	gaveWay  int             // runs that were to be repeated, but were discarded
}

// produce creates the versions of a key, one after the other, until no more are needed.
func (w *uniqueWork) produce(ctx context.Context, client *pawl.Client, key string) {
	for n, more := 1, true; more && ctx.Err() == nil; n++ {
		select {
		case <-w.killed:
			more = false
			w.mu.Lock()
			w.last[key] = n
			w.mu.Unlock()
		default:
		}
		_, err := client.Enqueue(ctx, version{key, n}, pawl.Queue(uniqueQueue),
			pawl.Unique(pawltype.UniqueOpts{Key: key, OnConflict: pawltype.OnConflictKeepLast}))
		if err != nil && ctx.Err() == nil {
			w.t.Errorf("version %d of %s: %v", n, key, err)
		}
		time.Sleep(rand.N(serverPace))
	}
}

func (w *uniqueWork) run(ctx context.Context) {
	for ctx.Err() == nil && !w.all() {
		got, err := w.claims.Claim(ctx, claims.Request{Queues: pawl.Strict{uniqueQueue}, Max: 1 + rand.IntN(3),
			Wait: 200 * time.Millisecond, Worker: "w"})
		if err != nil {
			continue // the server is down; what it may have handed out comes back with the lease
		}
		versions := make([]version, len(got))
		for i, c := range got {
			versions[i] = w.begin(c)
		}
		time.Sleep(rand.N(5 * time.Millisecond))
		for i, c := range got {
			w.end(ctx, c, versions[i])
		}
	}
}

func (w *uniqueWork) begin(c *pawl.Claim) (v version) {
	if err := json.Unmarshal(c.Payload, &v); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch last := w.begun[v.Key]; {
	case w.runs[v.Key]:
		w.t.Errorf("%s runs twice at the same time: versions %d and %d", v.Key, last, v.N)
	case v.N < last:
		w.t.Errorf("version %d of %s runs after version %d", v.N, v.Key, last)
	case v.N > last+1:
		w.replaced += v.N - last - 1
	}
	w.runs[v.Key], w.begun[v.Key] = true, v.N
	return v
}

// end ends a claim in one of several ways.
func (w *uniqueWork) end(ctx context.Context, c *pawl.Claim, v version) {
	w.mu.Lock()
	w.runs[v.Key] = false
	w.mu.Unlock()
	var settled claims.Settled
	var err error
	acked := false
	switch rand.IntN(6) {
	case 0:
		settled, err = w.claims.Release(ctx, c, 0)
	case 1:
		settled, err = w.claims.Fail(ctx, c, pawl.RetryIn(10*time.Millisecond, errors.New("by chance")))
	default:
		err = w.claims.Ack(ctx, c)
		acked = err == nil
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, pawltype.ErrStaleClaim) && !errors.Is(err, pawltype.ErrUnavailable) {
		w.t.Errorf("version %d of %s: %v", v.N, v.Key, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if acked {
		w.done[v.Key] = max(w.done[v.Key], v.N)
	}
	if settled.State == pawltype.StateDiscarded {
		w.gaveWay++
	}
}

// replacedBoth reports whether a version never ran, and a run was replaced by a newer version.
func (w *uniqueWork) replacedBoth() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replaced > 0 && w.gaveWay > 0
}

// all reports whether the last version of each key has been processed.
func (w *uniqueWork) all() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.last) == uniqueKeys && maps.Equal(w.done, w.last)
}
