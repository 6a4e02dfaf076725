package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// This file words the reasons, which are the same for tasks and for queues.

func queueCommand(verb, queue string, flags ...string) string {
	return humanize.Command("queue "+verb, []string{queue}, flags...)
}

func taskCommand(verb string, id task.ID, flags ...string) string {
	return humanize.Command("task "+verb, []string{id.String()}, flags...)
}

// explained explains a task from its own row: how it runs, how it has ended, or when it is due. Last is its last ended
// attempt, or nil; most is the number of the last possible attempt.
func explained(id task.ID, x *schema.Exec, last *schema.Attempt, most int) *Explanation {
	e := &Explanation{ID: id, Queue: x.Queue, Type: x.Type, Key: x.Key, State: x.State}
	switch {
	case x.State == task.Claimed:
		e.Reasons = []Reason{whyRunning(id, x, most)}
	case x.State.Ended():
		e.Reasons = []Reason{whyEnded(id, x, last)}
	case x.State != task.Ready:
		e.Reasons = []Reason{whyNotDue(id, x, last, most)}
	}
	return e
}

func whyRunning(id task.ID, x *schema.Exec, most int) Reason {
	c := x.Claim
	detail := fmt.Sprintf("%s has been running it since %s, %s; its lease ends at %s unless extended",
		worker(c.Worker), Clock(c.At), attemptOf(x, x.Attempt(), most), Clock(c.Until))
	if x.Progress != 0 || x.ProgressText != "" {
		detail += fmt.Sprintf("; progress is %g %%", x.Progress)
	}
	return Reason{Code: task.WhyRunning, Detail: detail, Since: c.At, Until: c.Until, Running: []Runner{runnerOf(id, x)},
		Change: "wait for its worker to finish; when the lease ends, another worker gets it. To stop it: " + taskCommand("cancel", id)}
}

func whyEnded(id task.ID, x *schema.Exec, last *schema.Attempt) Reason {
	r := Reason{Code: task.WhyEnded, Since: x.EndedAt, Cause: x.Reason, Detail: fmt.Sprintf("%s at %s", x.State, Clock(x.EndedAt))}
	if x.Reason != "" {
		r.Detail += " (" + x.Reason + ")"
	}
	switch {
	case x.Reason == task.ReasonMoved && x.MovedTo == (task.ID{}):
		r.Change = "wait until it arrives in the other queue, where it is a new task"
		return r
	case x.Reason == task.ReasonMoved:
		r.Change = fmt.Sprintf("see the new task %s: %s", x.MovedTo, taskCommand("explain", x.MovedTo))
		return r
	}
	switch x.State {
	case task.Succeeded:
		r.Detail += fmt.Sprintf(" on %s, attempt %d", worker(x.Claim.Worker), x.Attempt())
		r.Change = "nothing to do: it has succeeded"
		return r
	case task.Cancelled, task.Discarded:
		r.Change = "to run it after all: " + taskCommand("retry", id)
	case task.Poisoned:
		r.Change = "deploy a worker that can read its payload, then: " + taskCommand("retry", id)
	default:
		r.Change = "fix the cause, then: " + taskCommand("retry", id)
	}
	if last != nil {
		r.Detail += fmt.Sprintf("; attempt %d %s", last.Number, outcome(last))
		r.Error = task.Cut(last.Failure.Message, maxErrorShown)
	}
	return r
}

func whyNotDue(id task.ID, x *schema.Exec, last *schema.Attempt, most int) Reason {
	r := Reason{Code: task.WhyNotDue, Until: x.RunAt, Cause: "delay", Change: fmt.Sprintf("wait until %s, or run it now: %s",
		Clock(x.RunAt), taskCommand("run-now", id))}
	switch {
	case last == nil || last.Then != x.State || last.Outcome == task.OutcomeSnoozed && last.NextRunAt != x.RunAt:
		r.Detail = fmt.Sprintf("it is scheduled for %s", Clock(x.RunAt))
	case last.Outcome == task.OutcomeSnoozed:
		r.Cause = last.Outcome.String()
		r.Detail = fmt.Sprintf("%s snoozed it at %s; it is due again at %s", worker(last.Worker), Clock(last.EndedAt), Clock(x.RunAt))
	default:
		r.Cause, r.Error = last.Outcome.String(), task.Cut(last.Failure.Message, maxErrorShown)
		r.Detail = fmt.Sprintf("%s %s; the next one is due at %s", attemptOf(x, last.Number, most), outcome(last), Clock(x.RunAt))
	}
	return r
}

// attemptOf returns the number of an attempt and that of the last possible one. Replays do not start from 1 again, so
// both may be above the task's maximum: then it says why.
func attemptOf(x *schema.Exec, n, most int) string {
	text := fmt.Sprintf("attempt %d of %d", n, most)
	if x.Exhausted > 0 {
		text += fmt.Sprintf(" (%d of them before its last replay)", x.Exhausted)
	}
	return text
}

// outcome describes how an attempt ended.
func outcome(a *schema.Attempt) (text string) {
	switch a.Outcome {
	case task.OutcomeLeaseLost:
		text = "was lost: its lease ended on worker " + quoted(a.Worker)
	case task.OutcomeTimedOut:
		text = "exceeded its timeout"
	case task.OutcomeLeaderless:
		text = "lost its lease while the shard had no leader"
	case task.OutcomeFailed:
		text = "failed"
	case task.OutcomeDead:
		text = "failed permanently"
	case task.OutcomePoisoned:
		text = "could not read the payload"
	case task.OutcomeDiscarded:
		text = "discarded the task"
	default:
		text = "ended as " + a.Outcome.String()
	}
	text += " at " + Clock(a.EndedAt)
	if a.Failure.Message != "" {
		text += fmt.Sprintf(" with %q", task.Cut(a.Failure.Message, maxErrorShort))
	}
	return text
}

// whyUnique is the reason of tasks that each wait for the holder of their unique key.
func whyUnique(queue string, n int64) Reason {
	detail := fmt.Sprintf("%s of queue %q %s for running tasks that hold the same unique keys", humanize.Count(n, "task"), queue,
		humanize.One(n, "waits", "wait"))
	if n == 1 {
		detail = "a running task holds its unique key"
	}
	return Reason{Code: task.WhyUnique, Count: n, Detail: detail, Change: "wait until that task finishes or its lease ends"}
}

func whyQueuePaused(queue string, c *task.QueueConfig) Reason {
	since := store.TimeOf(c.PausedAt)
	return Reason{Code: task.WhyQueuePaused, Since: since, Cause: c.PausedReason,
		Detail: fmt.Sprintf("queue %q has been paused%s since %s%s", queue, byWhom(c.PausedBy), Clock(since), because(c.PausedReason)),
		Change: "resume it: " + queueCommand("resume", queue)}
}

// byWhom returns " by " and a name, or "" if it is unknown.
func byWhom(name string) string {
	if name == "" {
		return ""
	}
	return " by " + name
}

func whyHeld(queue string, h task.Hold) Reason {
	r := Reason{Code: task.WhyTypePaused, Type: h.Type, Key: h.Key, Since: store.TimeOf(h.At), Cause: h.Reason}
	what, name := "type", h.Type
	if h.Key != "" {
		r.Code, what, name = task.WhyKeyPaused, "key", h.Key
	}
	r.Detail = fmt.Sprintf("%s %q of queue %q has been paused%s since %s%s", what, name, queue, byWhom(h.By),
		Clock(r.Since), because(h.Reason))
	r.Change = "resume it: " + queueCommand("resume", queue, "--"+what+"="+name)
	return r
}

func whyBreaker(queue string, i breaker.Info) Reason {
	r := Reason{Code: task.WhyBreakerOpen, Type: i.Type, Since: i.Since, Until: i.Until, Cause: i.Reason(), Error: i.Error,
		Detail: fmt.Sprintf("the circuit breaker of type %q in queue %q is %s; it opened at %s because %s", i.Type, queue, i.State,
			Clock(i.Since), i.Reason())}
	byHand := "or close it now: " + queueCommand("close-breaker", queue, "--type="+i.Type)
	if i.State == breaker.Open {
		r.Change = fmt.Sprintf("at %s the breaker lets one task through as a probe; %s", Clock(i.Until), byHand)
		return r
	}
	r.Detail += fmt.Sprintf("; it lets one task through at a time, and %d of %d probes have succeeded", i.Passed, i.Probes)
	if i.Probe != (task.ID{}) {
		r.Detail += fmt.Sprintf("; the probe now is %s", i.Probe)
	}
	r.Change = fmt.Sprintf("it closes when %s; %s", humanize.One(int64(i.Probes-i.Passed), "one more probe succeeds",
		fmt.Sprintf("%d more probes succeed in a row", i.Probes-i.Passed)), byHand)
	return r
}

// whyQueueFull is the reason of a queue that runs as many tasks in this shard as it may.
func whyQueueFull(queue string, c *task.QueueConfig, most, claimed int64, running []Runner) Reason {
	r := Reason{Code: task.WhyQueueMaxRunning, Limit: int(most), Running: running,
		Detail: fmt.Sprintf("queue %q is running %s%s", queue, humanize.Count(claimed, "task"), by(running)),
		Change: "wait until one of them ends, or raise the limit: " + queueCommand("set", queue, "--max-running N")}
	if !c.Divided {
		r.Detail += fmt.Sprintf(", and its limit is %d", most)
		return r
	}
	r.Detail += fmt.Sprintf(" in this shard, whose share of its limit of %d is %d now", c.Settings.MaxRunning, most)
	if claimed == 0 {
		r.Change = "wait until other shards have given up some of theirs, or raise the limit: " + queueCommand("set",
			queue, "--max-running N")
	}
	return r
}

func whyNamespaceFull(s task.Space) Reason {
	return Reason{Code: task.WhyNamespaceMaxRunning, Limit: int(s.Share.Running),
		Detail: fmt.Sprintf("the queues of namespace %q are running %s in this shard, where their share of %s is %d", s.Namespace,
			humanize.Count(s.Use.Running, "task"), task.QuotaRunning, s.Share.Running),
		Change: "wait until one of them ends, or raise the quota: " + humanize.Command("ns set", []string{s.Namespace}, "--max-running N")}
}

func whyQueueRate(queue string, c *task.QueueConfig, until, now store.Time) Reason {
	rate := c.Settings.Rate
	return Reason{Code: task.WhyQueueRate, Rate: rate, Until: until,
		Detail: fmt.Sprintf("queue %q has used up its rate limit of %s%s; the next token comes at %s, in %s", queue,
			RateText(rate), share(c), Clock(until), until.Sub(now)),
		Change: fmt.Sprintf("wait until %s, or raise the rate: %s", Clock(until), queueCommand("set", queue, "--rate N/PERIOD"))}
}

func whyKeyFull(queue, key string, most, claimed int, running []Runner) Reason {
	return Reason{Code: task.WhyKeyMaxRunning, Key: key, Limit: most, Running: running,
		Detail: fmt.Sprintf("key %q of queue %q is running %s%s, and its limit is %d", key, queue, humanize.Count(int64(claimed), "task"),
			by(running), most),
		Change: "wait until one of them ends, or raise the limit: " + queueCommand("set", queue, "--for-key="+key, "--max-running N")}
}

func whyKeyRate(queue, key string, rate task.Rate, until, now store.Time) Reason {
	return Reason{Code: task.WhyKeyRate, Key: key, Rate: rate, Until: until,
		Detail: fmt.Sprintf("key %q of queue %q has used up its rate limit of %s; the next token comes at %s, in %s", key,
			queue, RateText(rate), Clock(until), until.Sub(now)),
		Change: fmt.Sprintf("wait until %s, or raise the rate: %s", Clock(until), queueCommand("set", queue, "--for-key="+key,
			"--rate N/PERIOD"))}
}

func whyDraining() Reason {
	return Reason{Code: task.WhyDraining, Detail: "the node that leads its shard is shutting down and accepts no more claims",
		Change: "wait until another node leads the shard; if there is only this node, start it again"}
}

// by lists some of the tasks that use up a limit.
func by(running []Runner) string {
	if len(running) == 0 {
		return ""
	}
	names := make([]string, 0, 3)
	for _, t := range running[:min(len(running), 3)] {
		names = append(names, fmt.Sprintf("%s at %s", t.ID, quoted(t.Worker)))
	}
	if len(running) > len(names) {
		names = append(names, "…")
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// share adds that a limit is only this shard's part of the queue's.
func share(c *task.QueueConfig) string {
	if c.Closed == 0 {
		return ""
	}
	return fmt.Sprintf(" in this shard, by its %d of %d slots", task.SlotCount-c.Closed.Len(), task.SlotCount)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf(": %q", reason)
}

// RateText formats a rate.
func RateText(r task.Rate) string {
	return fmt.Sprintf("%d per %s with bursts of %d", r.Limit, r.Period, r.Capacity())
}

func worker(name string) string {
	if name == "" {
		return "an unnamed worker"
	}
	return "worker " + quoted(name)
}

func quoted(name string) string { return fmt.Sprintf("%q", name) }

// Clock formats a time.
func Clock(t store.Time) string { return t.Time().Format(time.RFC3339Nano) }

func over(more bool) string {
	if more {
		return "over "
	}
	return ""
}
