package explain

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A queue's explanation uses only the codes that package task lists, so that all of them have a place in the order.
func TestReasonsAreOrdered(t *testing.T) {
	for _, code := range []task.Why{whyDraining().Code, whyHeld("q", task.Hold{Key: "k"}).Code, whyHeld("q", task.Hold{Type: "t"}).Code,
		whyBreaker("q", breaker.Info{}).Code} {
		if code.Order() < 0 {
			t.Errorf("code %s is missing from task.Whys", code)
		}
	}
}

// What producers and workers choose is one word of the commands that explanations print.
func TestCommandsQuoteNames(t *testing.T) {
	const evil, word = "it's; touch PWNED", `'it'\''s; touch PWNED'`
	o := &workersOf{workers: task.WorkerGroup{QuietID: evil}}
	p := schema.Message{Spec: task.Spec{Queue: "-q"}}
	c := &task.QueueConfig{Paused: true}
	for _, r := range []struct{ change, want string }{
		{whyHeld("q", task.Hold{Key: evil}).Change, "resume it: pawl queue resume q --key=" + word},
		{whyHeld("-q", task.Hold{Type: evil}).Change, "resume it: pawl queue resume --type=" + word + " -- -q"},
		{whyBreaker("q", breaker.Info{Type: evil, State: breaker.Probing, Probes: 1}).Change,
			"or close it now: pawl queue close-breaker q --type=" + word},
		{whyKeyFull("q", evil, 1, 1, nil).Change, "raise the limit: pawl queue set q --for-key=" + word + " --max-running N"},
		{whyKeyRate("q", evil, task.Rate{}, 0, 0).Change, "raise the rate: pawl queue set q --for-key=" + word + " --rate N/PERIOD"},
		{whyQueuePaused("-q", c).Change, "resume it: pawl queue resume -- -q"},
		{whyQueueFull("-q", c, 1, 1, nil).Change, "raise the limit: pawl queue set --max-running N -- -q"},
		{whyQueueRate("-q", c, 0, 0).Change, "raise the rate: pawl queue set --rate N/PERIOD -- -q"},
		{whyKeys("-q", task.WhyKeyPaused, 2, 2, false).Change, "resume them: pawl queue resume --key KEY -- -q"},
		{whyKeys("-q", task.WhyKeyMaxRunning, 2, 2, true).Change, "raise the limit: pawl queue set --for-each-key --max-running N -- -q"},
		{whyKeys("-q", task.WhyKeyRate, 2, 2, true).Change, "raise the rate: pawl queue set --for-each-key --rate N/PERIOD -- -q"},
		{whyOnItsWay("it", &p, Delivery{}).Change, "see pawl queue show -- -q and pawl cluster status"},
		{o.resume(), "resume the quiet worker: pawl worker resume " + word + "; or "},
	} {
		if !strings.HasSuffix(r.change, r.want) {
			t.Errorf("advice %q, want it to end with %q", r.change, r.want)
		}
	}
}

// Attempts are numbered on after a replay. What is above the task's maximum is explained.
func TestAttemptsBeforeAReplayAreNamed(t *testing.T) {
	fresh := &schema.Exec{State: task.Claimed, Failures: 1}
	replayed := &schema.Exec{State: task.Claimed, Failures: 2, Crashes: 1, Exhausted: 2}
	failed := &schema.Attempt{Number: 3, Outcome: task.OutcomeFailed, Then: task.Retrying}
	for _, c := range []struct{ got, want string }{
		{whyRunning(task.ID{}, fresh, 2).Detail, ", attempt 2 of 2; "},
		{whyRunning(task.ID{}, replayed, 4).Detail, ", attempt 4 of 4 (2 of them before its last replay); "},
		{whyNotDue(task.ID{}, &schema.Exec{State: task.Retrying, Failures: 3, Exhausted: 2}, failed, 4).Detail,
			"attempt 3 of 4 (2 of them before its last replay) failed"},
		{whyNotDue(task.ID{}, &schema.Exec{State: task.Retrying, Failures: 3}, failed, 4).Detail, "attempt 3 of 4 failed"},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("%q lacks %q", c.got, c.want)
		}
	}
}
