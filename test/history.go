package test

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Op is one call of a client and its answer. Times are the client's; answers that never came are left out, except of
// enqueues, whose tasks may exist.
type Op struct {
	Kind     Kind
	Begin    time.Time
	End      time.Time
	Task     string
	Value    string // of an enqueue, and of the claim that got it
	Fence    int64
	ClaimKey string
	Lease    time.Time // of a claim: when its lease ends
	Unknown  bool      // no answer came
}

// Kind names a call.
type Kind string

// Kinds of calls. Settled ones were answered OK.
const (
	Enqueue Kind = "enqueue"
	Claim   Kind = "claim"
	Ack     Kind = "ack"
	Fail    Kind = "fail"
	Release Kind = "release"
	Cancel  Kind = "cancel" // of a task that nobody holds
)

// History is what clients saw. It may be written by many goroutines.
type History struct {
	mu  sync.Mutex
	ops []Op
}

// Add notes a call.
func (h *History) Add(op Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// Len is the number of calls noted.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// Final is where a task was found at the end.
type Final struct {
	Value string
	State string
	Ended bool
	Fence int64
}

// skew is how far the client's clock and the broker's may differ in what is compared: they run on one machine.
const skew = 50 * time.Millisecond

// Check compares a history with where the tasks were found at the end, and returns what can't be.
func (h *History) Check(final map[string]Final) (findings []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &check{final: final, values: map[string][]string{}}
	byTask := map[string][]Op{}
	for _, op := range h.ops {
		if op.Kind == Enqueue {
			c.enqueue(op)
		}
		if op.Task != "" {
			byTask[op.Task] = append(byTask[op.Task], op)
		}
	}
	c.values = values(h.ops)
	for id, ops := range byTask {
		c.task(id, ops)
	}
	for id, f := range final {
		if !slices.Contains(c.values[f.Value], "") && !slices.Contains(c.values[f.Value], id) {
			c.find("task %s with value %q was never enqueued", id, f.Value)
		}
	}
	return c.findings
}

// values maps each value to the tasks that it was answered with, "" for an enqueue without an answer.
func values(ops []Op) map[string][]string {
	m := map[string][]string{}
	for _, op := range ops {
		if op.Kind == Enqueue {
			m[op.Value] = append(m[op.Value], op.Task)
		}
	}
	return m
}

type check struct {
	final    map[string]Final
	values   map[string][]string
	seen     map[string]string
	findings []string
}

func (c *check) find(format string, args ...any) {
	if len(c.findings) < 50 {
		c.findings = append(c.findings, fmt.Sprintf(format, args...))
	}
}

// enqueue: what was answered is there at the end (I1), and one value has one task (I9).
func (c *check) enqueue(op Op) {
	if op.Unknown {
		return
	}
	if _, ok := c.final[op.Task]; !ok {
		c.find("lost: task %s, enqueued and answered", op.Task)
	}
	if c.seen == nil {
		c.seen = map[string]string{}
	}
	if first, ok := c.seen[op.Value]; ok && first != op.Task {
		c.find("doubled: value %q has the tasks %s and %s", op.Value, first, op.Task)
	}
	c.seen[op.Value] = op.Task
}

// task checks the calls of one task: its fences are their order.
func (c *check) task(id string, ops []Op) {
	final, ok := c.final[id]
	if !ok {
		c.find("task %s was seen, and is not there at the end", id)
		return
	}
	if !final.Ended {
		c.find("task %s is still %s", id, final.State)
	}
	byFence := map[int64]*hold{}
	for _, op := range ops {
		if op.Kind == Cancel && final.State != "cancelled" {
			c.find("task %s: cancelled, and is %s at the end", id, final.State)
		}
		if op.Kind == Enqueue || op.Kind == Cancel {
			continue
		}
		if byFence[op.Fence] == nil {
			byFence[op.Fence] = &hold{}
		}
		c.hold(id, byFence[op.Fence], op, final)
	}
	fences := make([]int64, 0, len(byFence))
	for f := range byFence {
		fences = append(fences, f)
	}
	slices.Sort(fences)
	c.order(id, fences, byFence, final)
}

// hold is what happened under one claim.
type hold struct {
	claim *Op
	end   *Op // the call that ended it
}

// hold notes a call under its claim: one claim a fence (I2), one end a claim (I5).
func (c *check) hold(id string, h *hold, op Op, final Final) {
	if op.Kind != Claim {
		if h.end != nil && h.end.Kind != op.Kind {
			c.find("task %s, fence %d: ended by %s and by %s", id, op.Fence, h.end.Kind, op.Kind)
		}
		if h.end == nil || op.Begin.Before(h.end.Begin) {
			h.end = &op
		}
		return
	}
	if h.claim != nil && h.claim.ClaimKey != op.ClaimKey {
		c.find("task %s, fence %d: claimed twice, by %q and %q", id, op.Fence, h.claim.ClaimKey, op.ClaimKey)
	}
	if op.Value != final.Value {
		c.find("task %s was claimed with value %q, it has %q", id, op.Value, final.Value)
	}
	h.claim = &op
}

// order checks that claims follow each other: a claim begins only once the one before it was ended or its lease was over
// (I2), and none after a success (I5, I6).
func (c *check) order(id string, fences []int64, holds map[int64]*hold, final Final) {
	for i, fence := range fences {
		h := holds[fence]
		if h.claim == nil {
			c.find("task %s, fence %d: ended without a claim", id, fence)
			continue
		}
		if h.end != nil && h.end.Kind == Ack {
			if final.State != "succeeded" {
				c.find("task %s, fence %d: acked, and is %s at the end", id, fence, final.State)
			}
			if final.Fence != fence {
				c.find("task %s: acked at fence %d, and claimed again at fence %d", id, fence, final.Fence)
			}
		}
		if i+1 == len(fences) || holds[fences[i+1]].claim == nil || fences[i+1] != fence+1 {
			continue
		}
		next := holds[fences[i+1]].claim
		ended := h.end != nil && !h.end.Begin.After(next.End)
		if !ended && next.End.Before(h.claim.Lease.Add(-skew)) {
			c.find("task %s: claimed at fence %d until %s, and again at fence %d by %s", id, fence, h.claim.Lease, next.Fence, next.End)
		}
	}
	if last := len(fences) - 1; last >= 0 && final.Fence < fences[last] {
		c.find("task %s: claimed at fence %d, and has fence %d at the end", id, fences[last], final.Fence)
	}
}
