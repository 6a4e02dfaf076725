package schedule

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/cron"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// TickGrace is how late a tick may be without being missed: longer than an election, or the start of a node.
	TickGrace = time.Minute
	// maxCatchUp is how many missed ticks are fired at most, the newest ones.
	maxCatchUp = 1000
	// ticksInPass is how many ticks of one schedule fire before other schedules get their turn.
	ticksInPass = 10
	// triggerWindow is how long a repeated trigger is recognized, provided the history goes back that far.
	triggerWindow = time.Hour
)

// tick handles the deadline of a schedule's next tick.
func tick(r *engine.Round, d schema.Deadline) {
	name := string(d.Rest)
	p, c, ok := schedule(r, d.Namespace, name)
	if !ok || c.fires != d.At {
		return
	}
	to, w := *c, p.rule()
	for range ticksInPass {
		if to.fires == 0 || to.fires > r.Now() {
			break
		}
		tickDue(r, d.Namespace, p, &to, w)
	}
	setProgress(r, d.Namespace, name, c, &to)
}

// tickDue decides the tick that is due, and plans the next.
func tickDue(r *engine.Round, ns string, p *plan, c *progress, w cron.When) {
	planned := c.planned
	switch limit := r.Now().Add(-TickGrace); {
	case planned <= c.catchUpTo:
		fire(r, ns, p, c, planned, schema.TickCaughtUp)
		c.planNext(p, w, planned)
	case max(c.fires, c.onTime) > limit: // if the jitter is longer than the interval, it may have waited for the previous tick
		fire(r, ns, p, c, planned, schema.TickFired)
		c.planNext(p, w, planned)
		c.onTime = r.Now()
	default:
		missed(r, ns, p, c, w, max(planned, limit.Add(-p.Jitter)))
	}
}

// missed handles the missed ticks up to a time, according to the schedule's setting.
func missed(r *engine.Round, ns string, p *plan, c *progress, w cron.When, upto store.Time) {
	planned := c.planned
	if p.Missed == task.MissedAll {
		first := planned
		if newest := w.Newest(c.began.Time(), (planned - 1).Time(), upto.Time(), maxCatchUp); len(newest) > 0 {
			first = store.TimeOf(newest[0])
		}
		skip(r, ns, p, c, w, planned, first-1, SkippedMissed)
		c.catchUpTo = upto
		fire(r, ns, p, c, first, schema.TickCaughtUp)
		c.planNext(p, w, first)
		return
	}
	last := planned
	if newest := w.Last(c.began.Time(), (planned - 1).Time(), upto.Time()); !newest.IsZero() {
		last = store.TimeOf(newest)
	}
	c.planNext(p, w, last)
	if onTime := c.fires != 0 && c.fires <= r.Now(); p.Missed == task.MissedSkip || onTime {
		skip(r, ns, p, c, w, planned, last, SkippedMissed)
		return
	}
	skip(r, ns, p, c, w, planned, last-1, SkippedMissed)
	fire(r, ns, p, c, last, schema.TickCaughtUp)
}

// skip records that the ticks from the planned one up to a time created no task. The planned one counts even if the
// rule does not have it any more: it was planned with another release of the time zone database.
func skip(r *engine.Round, ns string, p *plan, c *progress, w cron.When, planned, upto store.Time, reason string) {
	if planned > upto {
		return
	}
	t := schema.Tick{Planned: planned, Count: 1, Outcome: schema.TickSkipped, Reason: reason}
	if newest := w.Newest(c.began.Time(), (planned - 1).Time(), upto.Time(), MaxCount); len(newest) > 0 {
		t.Planned, t.Count = store.TimeOf(w.Next(c.began.Time(), (planned-1).Time())), len(newest)
		if t.Count > 1 {
			t.Until = store.TimeOf(newest[t.Count-1])
		}
	}
	if reason == SkippedMissed {
		scheduleMissed(r, ns, p, reason, t.Count)
	}
	note(r, ns, p.Name, c, t)
}

// Headers of a tick's task that name its origin.
const (
	headerSchedule = "pawl-schedule"
	headerPlanned  = "pawl-scheduled-at"
)

// fire creates the task of a tick, or sends it to the shard of its queue.
func fire(r *engine.Round, ns string, p *plan, c *progress, planned store.Time, outcome schema.TickOutcome) {
	t := schema.Tick{Planned: planned, Count: 1, Outcome: outcome}
	n := tickTask(r, ns, p, planned)
	n.ID, n.Fresh = engine.ChildID(r, p.id, c.seq+1), true
	r.CountCreated()
	a, err := engine.Enqueue(r, n)
	var refused *task.Error
	switch {
	case err == nil && a.KeyTaken:
		t.Outcome, t.Reason, t.Task = schema.TickSkipped, skippedFor(n.Unique), a.ID
	case err == nil:
		t.Task = a.ID
	case errors.Is(err, engine.ErrUnknownQueue) || errors.Is(err, engine.ErrSlotMoved):
		n.RequestID = task.RequestOf(p.id, c.seq+1)
		r.Send(ns, &schema.Message{Request: n.RequestID, Spec: n.Spec, From: schema.Origin{Schedule: p.Name, Plan: p.id, Tick: c.seq + 1}})
	case errors.As(err, &refused):
		t.Outcome, t.Reason = schema.TickSkipped, string(refused.Code)
	}
	if outcome == schema.TickCaughtUp {
		scheduleMissed(r, ns, p, outcome.String(), 1)
	}
	noteFired(r, ns, p.Name, c, n, t)
}

// skippedFor returns the reason why a tick is skipped when another task holds the unique key of its task.
func skippedFor(u *task.Unique) string {
	if task.IsOverlap(u) {
		return SkippedOverlap
	}
	return SkippedUnique
}

// TraceTicks makes the leader call begin for the trace headers of each tick's task, because this package generates no
// random ids. Begin must not block. Effects.Ticked reports which of those traces are in use.
func TraceTicks(l *engine.Leader, begin func(schedule string, n *engine.NewTask) map[string]string) {
	engine.Memory[tracing](l).begin = begin
}

// tracing holds the function of TraceTicks.
type tracing struct {
	begin func(schedule string, n *engine.NewTask) map[string]string
}

// tickTask returns the task of a tick, without an id. Each gets its own trace: a trace named by the schedule would grow for ever.
func tickTask(r *engine.Round, ns string, p *plan, planned store.Time) *engine.NewTask {
	n := &engine.NewTask{Spec: p.TickSpec(), Namespace: ns}
	n.Headers = make(map[string]string, len(p.Task.Headers)+2)
	for name, value := range p.Task.Headers {
		n.Headers[name] = value
	}
	delete(n.Headers, task.HeaderTraceParent)
	delete(n.Headers, task.HeaderTraceState)
	n.Headers[headerSchedule] = p.Name
	n.Headers[headerPlanned] = planned.Time().Format(time.RFC3339)
	if trace := engine.Memory[tracing](r.Leader()).begin; trace != nil {
		n.Headers = task.WithTrace(n.Headers, trace(p.Name, n))
	}
	return n
}

// noteFired is note for a tick that has tried to create a task.
func noteFired(r *engine.Round, ns, name string, c *progress, n *engine.NewTask, t schema.Tick) {
	note(r, ns, name, c, t)
	if t.Outcome != schema.TickSkipped {
		r.Ticked[len(r.Ticked)-1].Trace = n.Headers[task.HeaderTraceParent]
	}
}

// Trigger is an operator's request for a tick now.
type Trigger struct {
	Request task.ID // a repeat finds the same task; zero: none
	ID      task.ID // of the task, if it is created here; new
}

// Fire creates a task now, in addition to the regular ticks, even if the schedule is paused. If the task's queue is in
// another shard, it returns the message that carries the task there.
//
// Errors: not_found; those of Enqueue.
func Fire(r *engine.Round, ns, name string, call Trigger) (a engine.Accepted, on *schema.Message, err error) {
	p, c, ok := schedule(r, ns, name)
	if !ok {
		return a, nil, task.NotFound("schedule", name)
	}
	request := triggerRequest(p, call)
	if on, ok = schema.ReadMessage(r.Tx(), ns, request); ok {
		return a, on, nil
	}
	if before, ok := triggered(r, ns, name, c, call.Request); ok { // whichever shard its queue is in by now
		return engine.Accepted{ID: before.Task, State: task.Ready, CreatedAt: before.At, Duplicate: true}, nil, nil
	}
	n := tickTask(r, ns, p, r.Now())
	n.ID, n.Fresh, n.RequestID = call.ID, true, request
	t := schema.Tick{Count: 1, Outcome: schema.TickTriggered, Request: call.Request}
	a, err = engine.Enqueue(r, n)
	switch {
	case errors.Is(err, engine.ErrUnknownQueue) || errors.Is(err, engine.ErrSlotMoved):
		on = &schema.Message{Request: request, Spec: n.Spec, From: schema.Origin{Schedule: p.Name, Plan: p.id, Tick: c.seq + 1}}
		r.Send(ns, on)
	case err != nil:
		return a, nil, err
	case a.KeyTaken:
		return a, nil, Overlaps(name, a.ID)
	case a.Duplicate:
		return a, nil, nil
	default:
		t.Task = a.ID
	}
	to := *c
	noteFired(r, ns, name, &to, n, t)
	setProgress(r, ns, name, c, &to)
	return a, on, nil
}

// triggerRequest returns the request id of the task that a trigger creates. It differs from that of the call, because a
// task, or a trigger of another schedule, may have been requested with the same.
func triggerRequest(p *plan, call Trigger) task.ID {
	if call.Request == (task.ID{}) {
		return task.PartID(p.id, call.ID)
	}
	return task.PartID(p.id, call.Request)
}

// Overlaps returns the error of a trigger while another task holds the unique key of the schedule's task.
func Overlaps(name string, id task.ID) error {
	return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf(
		"schedule %q: task %s, which holds the unique key of its tasks, has not ended: wait for it or cancel it; "+
			"with overlap \"allow\" and no unique key, tasks of a schedule run side by side", name, id)}
}

// triggered returns the history entry of an earlier call with the same request id.
func triggered(r *engine.Round, ns, name string, c *progress, request task.ID) (*schema.Tick, bool) {
	for seq := c.seq; seq >= oldestTick(c.seq); seq-- {
		row, ok := r.Tx().Get(schema.TickKey(ns, name, seq))
		if !ok {
			continue
		}
		t := schema.Must(decodeTick(seq, row))
		if t.At.Add(triggerWindow) < r.Now() {
			break
		}
		if t.Outcome == schema.TickTriggered && t.Request == request && request != (task.ID{}) {
			return t, true
		}
	}
	return nil, false
}

// scheduleMissed reports that ticks of a schedule were late, and so were skipped or created their tasks late.
func scheduleMissed(r *engine.Round, ns string, p *plan, reason string, ticks int) {
	r.Events = append(r.Events, engine.Event{Kind: "schedule.missed", Namespace: ns, Name: p.Name, Queue: p.Task.Queue, Type: p.Task.Type,
		Reason: reason, Count: ticks})
}
