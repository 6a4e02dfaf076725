package test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
	"github.com/pawlq/pawl/test/history"
)

const (
	// drainLimit is the maximum time until no task is open.
	drainLimit = startLimit
	drainWait  = 500 * time.Millisecond
	// clockBound is the maximum difference between a shard's time and the clock of this machine, which all servers share.
	clockBound = 500 * time.Millisecond
	// readers is the number of concurrent reads at the end.
	readers = 8
)

// check finishes all tasks, reads the final state of each, and checks the history. The load must have ended. It returns
// the number of tasks.
func (w *workload) check() int {
	w.t.Helper()
	w.drain()
	o := history.Options{Final: w.final(), Drained: true, DeadLetters: w.dead(), Began: w.rec.Began(), ClockBound: clockBound}
	records := w.rec.Records()
	report := history.Check(records, o)
	if !report.OK() {
		w.t.Errorf("the history in %s violates what a queue promises:\n%s", w.keep(records, o.Final, report), report)
	} else {
		w.t.Log(report)
	}
	return len(o.Final)
}

// keep writes a history to files that outlive the test, and returns the directory.
func (w *workload) keep(records, final []history.Record, report *history.Report) (dir string) {
	dir, err := os.MkdirTemp("", "pawl-history-")
	if err != nil {
		w.t.Fatal(err)
	}
	write := func(name string, records []history.Record) error {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return errors.Join(history.Write(f, records), f.Close())
	}
	err = errors.Join(write("calls.jsonl", records), write("final.jsonl", final),
		os.WriteFile(filepath.Join(dir, "report.txt"), []byte(report.String()), 0o600))
	if err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// drain claims and acks until no task is open.
func (w *workload) drain() {
	w.t.Helper()
	const id = -1
	for deadline := time.Now().Add(drainLimit); ; {
		open := w.open()
		if open == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Errorf("%d tasks have not finished", open)
			return
		}
		var claimed []*pawl.Claim
		queues := w.order()
		ask := history.Record{Client: id, Op: history.Claim, Queue: strings.Join(queues, ","), Args: history.Args{ClaimKey: requestID()}}
		r, f, _ := w.recorded(ask, startLimit, func(ctx context.Context, _ *history.Record) (err error) {
			claimed, err = claims.New(w.patient).Claim(ctx, claims.Request{Queues: queues, Max: 500, Lease: testLease, Wait: drainWait,
				Worker: "drain", Key: ask.ClaimKey})
			return err
		})
		w.given(r, f, claimed)
		w.ackAll(id, claimed)
	}
}

// ackAll acks claims in one call.
func (w *workload) ackAll(id int, claimed []*pawl.Claim) {
	if len(claimed) == 0 {
		return
	}
	items := make([]claims.Settlement, len(claimed))
	for i, c := range claimed {
		items[i].Claim = c
	}
	var settled []claims.Settled
	var f outcome
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), outcomeKey{}, &f), startLimit)
	defer cancel()
	r := history.Record{Client: id, Seq: int(calls.Add(1)), Op: history.Ack, CallNS: w.rec.Now()}
	settled, _ = claims.New(w.patient).SettleAll(ctx, items) // without an answer the claims come back
	r.ReturnNS, r.Retried = w.rec.Now(), f.tries > 1
	for i, c := range claimed {
		one := r
		one.Task, one.Token, one.Fence, one.Code = c.ID, c.Token, c.Fence, history.Unknown
		if i < len(settled) {
			one.Code, one.Reason = classify(settled[i].Err)
		}
		if one.Code != history.Unknown {
			at := f.of(c.ID)
			one.Shard, one.Index, one.TimeUS, one.State = at.shard, at.index, at.time, string(settled[i].State)
		}
		w.rec.Add(one)
	}
}

// open counts the tasks that have not ended.
func (w *workload) open() (open int64) {
	w.t.Helper()
	for q, err := range admin.New(w.patient).Queues().List(w.t.Context(), admin.QueueFilter{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if slices.Contains(w.cfg.queues, q.Name) {
			open += q.Depth.Scheduled + q.Depth.Ready + q.Depth.Claimed + q.Depth.Retrying
		}
	}
	return open
}

// final reads every task that exists, or that an answer mentioned.
func (w *workload) final() []history.Record {
	w.t.Helper()
	ids := map[string]bool{}
	for _, r := range w.rec.Records() {
		if r.Task != "" && r.Code == history.OK {
			ids[r.Task] = true
		}
	}
	for _, queue := range w.cfg.queues {
		for page := (pawltype.PageRequest{Limit: 1000}); ; {
			tasks, err := admin.New(w.patient).Tasks().ListPage(w.t.Context(), admin.Filter{Queue: queue}, page)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, task := range tasks.Items {
				ids[task.ID] = true
			}
			if page.Cursor = tasks.NextCursor; page.Cursor == "" {
				break
			}
		}
	}
	return w.readAll(ids)
}

func (w *workload) readAll(ids map[string]bool) (final []history.Record) {
	const id = -2
	todo := make(chan string)
	var mu sync.Mutex
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for task := range todo {
				r, err := w.get(id, w.patient, task)
				if r.Code == history.Unknown {
					w.t.Errorf("the final read of task %s: %v", task, err)
					continue
				}
				mu.Lock()
				if r.Code == history.OK { // a task that is not found is missing here, and so lost
					final = append(final, r)
				}
				mu.Unlock()
			}
		})
	}
	for task := range ids {
		todo <- task
	}
	close(todo)
	reading.Wait()
	return final
}

// dead lists the dead letters.
func (w *workload) dead() []string {
	w.t.Helper()
	dead := []string{}
	for _, queue := range w.cfg.queues {
		for info, err := range admin.New(w.patient).DeadLetters().List(w.t.Context(), admin.Filter{Queue: queue}) {
			if err != nil {
				w.t.Fatal(err)
			}
			dead = append(dead, info.ID)
		}
	}
	return dead
}

// changes returns the records of answered calls that may have changed something, in the order of their answers.
func (w *workload) changes() (changed []history.Record) {
	type end struct {
		op    history.Op
		token string
	}
	ended := map[end]bool{} // a repeat is answered from memory
	for _, r := range w.rec.Records() {
		this := end{r.Op, r.Token}
		switch {
		case r.Code != history.OK || r.Op == history.Get || r.Duplicate || r.Op == history.Claim && r.Task == "":
		case r.Token != "" && ended[this]:
		default:
			ended[this] = r.Token != ""
			changed = append(changed, r)
		}
	}
	slices.SortFunc(changed, func(a, b history.Record) int { return int(a.ReturnNS - b.ReturnNS) })
	return changed
}

// nothingAfter finds calls that began after a point in time and still changed something.
func (w *workload) nothingAfter(at time.Time) {
	w.t.Helper()
	for _, r := range w.changes() {
		began := w.rec.Began().Add(time.Duration(r.CallNS))
		if began.UnixMicro() > at.UnixMicro() { // without the monotonic clock, which at lacks
			w.t.Errorf("a call began %s after the disk failed, but was acknowledged: %s", began.Sub(at), r.String())
		}
	}
}
