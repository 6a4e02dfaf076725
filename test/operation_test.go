package test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// fillQueue enqueues n tasks into a queue.
func fillQueue(t *testing.T, client *pawl.Client, queue string, n int) {
	t.Helper()
	for n > 0 {
		items := make([]pawl.Item, min(n, 1000))
		for i := range items {
			items[i] = pawl.Item{Args: pawl.RawTask{Type: "job", Payload: []byte(`{"n":1}`)}, Options: []pawl.Option{pawl.Queue(queue)}}
		}
		out, err := client.EnqueueBatch(t.Context(), items)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		n -= len(items)
	}
}

// TestOperationsThroughKills kills the server repeatedly while an operation moves tasks of one shard to a queue in another: none is lost or
// duplicated, and the counts are exact.
func TestOperationsThroughKills(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--shards", "2")
	s.start()
	client := s.dial(pawl.DialOptions{RetryFor: startLimit})
	operator := admin.New(client)
	many := count(t, "PAWL_OPERATE", 1500)
	fillQueue(t, client, "from", many)
	fillQueue(t, client, "to", 1)
	if _, err := operator.Queues().Spread(t.Context(), "from", admin.SpreadOptions{Shards: []int{1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Queues().Spread(t.Context(), "to", admin.SpreadOptions{Shards: []int{2}}); err != nil {
		t.Fatal(err)
	}
	o, err := operator.Operations().Start(t.Context(), admin.OperationSpec{Action: admin.ActionMove, Filter: &admin.Filter{Queue: "from"},
		ToQueue: "to", Rate: float64(many) / 5})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the operation is done", 2*startLimit, func() bool {
		s.killOften(2)
		o, err = operator.Operations().Get(t.Context(), o.ID)
		return err == nil && o.State.Ended()
	})
	if c := o.Counts; o.State != admin.OperationDone || c.Matched != int64(many) || c.Done != int64(many) {
		t.Errorf("the operation is %s: %+v, want %d matched and done", o.State, c, many)
	}
	from := map[string]bool{}
	for info, err := range admin.New(client).Tasks().List(t.Context(), admin.Filter{Queue: "to"}) {
		if err != nil {
			t.Fatal(err)
		}
		if info.MovedFrom != "" && from[info.MovedFrom] {
			t.Errorf("task %s was moved twice", info.MovedFrom)
		}
		from[info.MovedFrom] = true
	}
	if len(from) != many+1 {
		t.Errorf("the queue has %d tasks, want %d and the one that it had before", len(from), many)
	}
}

// TestOperationBesideProducers reports how fast an operation is, how long an enqueue takes meanwhile, how long the
// count before it takes, and the server's memory. The measurements decide nothing.
func TestOperationBesideProducers(t *testing.T) {
	s := newServer(t)
	s.start()
	client := s.dial()
	many := count(t, "PAWL_OPERATE", 3000)
	fillQueue(t, client, "mass", many)
	filled := s.memory("VmRSS")
	mass := admin.OperationSpec{Action: admin.ActionCancel, Filter: &admin.Filter{Queue: "mass"}}
	counted := time.Now()
	preview, err := admin.New(client).Operations().Preview(t.Context(), mass)
	if err != nil || preview.Matched != int64(many) && !preview.IsLowerBound {
		t.Fatalf("Preview = %+v (%v), want %d", preview, err, many)
	}
	t.Logf("%d tasks counted in %s, more: %t", preview.Matched, time.Since(counted).Round(time.Millisecond), preview.IsLowerBound)
	alone := latencies(t, client, func() { time.Sleep(2 * time.Second) })
	var o *admin.Operation
	began := time.Now()
	beside := latencies(t, client, func() {
		started, err := admin.New(client).Operations().Start(t.Context(), mass)
		if err != nil {
			t.Error(err)
			return
		}
		if o, err = admin.New(client).Operations().Wait(t.Context(), started.ID, nil); err != nil {
			t.Error(err)
		}
	})
	took := time.Since(began)
	if o == nil || o.Counts.Done != int64(many) {
		t.Fatalf("the operation ended with %+v, want %d done", o, many)
	}
	t.Logf("%d tasks cancelled in %s: %.0f/s; p99 of an enqueue %s, without it %s", many, took.Round(time.Millisecond),
		float64(many)/took.Seconds(), beside, alone)
	t.Logf("resident memory %d MiB before the operation, %d MiB after it, %d MiB at its peak", filled, s.memory("VmRSS"), s.memory("VmHWM"))
}

// latencies returns the 99th percentile of the latency of single enqueues while something runs.
func latencies(t *testing.T, client *pawl.Client, during func()) time.Duration {
	done := make(chan struct{})
	var all []time.Duration
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			began := time.Now()
			if _, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("other")); err != nil {
				t.Error(err)
				return
			}
			all = append(all, time.Since(began))
		}
	})
	during()
	close(done)
	work.Wait()
	slices.Sort(all)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)*99/100]
}
