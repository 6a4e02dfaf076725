package forward_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// Whether a call is tried at another node depends on its error and, if it may have run, on whether it may be repeated.
func TestErrorsRetriedAtOtherNodes(t *testing.T) {
	moved := forward.MovedTo(queues.Queue{Name: "q", Shard: 4})
	for _, c := range []struct {
		name       string
		err        error
		once, safe string // what the caller gets; "": it is tried elsewhere
	}{
		{"led by another", &broker.NotLeader{Shard: 1, Node: 3}, "", ""},
		{"led by somebody", fmt.Errorf("wrapped: %w", &broker.NotLeader{Shard: 1}), "", ""},
		{"unknown", broker.Unknown("lost"), "the outcome is not known", ""},
		{"unknown refusal", &broker.UnknownError{Refusal: task.Unavailable(time.Second, "half done")}, "half done", ""},
		{"cancelled", context.Canceled, "the outcome is not known", ""},
		{"late", context.DeadlineExceeded, "the outcome is not known", ""},
		{"refused", task.Invalid("id", "is odd"), "is odd", "is odd"},
		{"busy", task.Unavailable(time.Second, "is busy"), "is busy", "is busy"},
		{"moved", moved, moved.Error(), moved.Error()},
		{"internal", errors.New("disk broke"), "shard 1: node 2: disk broke", "shard 1: node 2: disk broke"},
	} {
		inGroup(t, 3, func(g *group) {
			g.nodes[1].leads[1] = 2
			g.nodes[3].leads[1] = 3
			g.fails(2, c.err)
			for _, method := range []struct {
				name   string
				caller caller
				want   string
			}{{"once", g.nodes[1].once, c.once}, {"safe", g.nodes[1].safe, c.safe}} {
				got, err := method.caller.Call(bg, one)
				if messages := g.messages(); method.want == "" {
					if err != nil || got != "done by 3" || !strings.HasSuffix(messages, method.name+">3") {
						t.Errorf("%s, %s: got %q, %v after %s, want the answer of node 3", c.name, method.name, got, err, messages)
					}
				} else if !strings.Contains(text(err), method.want) || messages != method.name+">2" {
					t.Errorf("%s, %s: got %q, %v after %s, want %q from node 2 alone", c.name, method.name, got, err, messages, method.want)
				}
			}
		})
	}
}

// What this node runs itself is tried elsewhere for the same errors, which come back unchanged if it is not.
func TestLocalErrorsRetriedAtOtherNodes(t *testing.T) {
	internal := errors.New("disk broke")
	for _, c := range []struct {
		err        error
		once, safe bool // tried elsewhere
	}{
		{&broker.NotLeader{Shard: 1, Node: 2}, true, true},
		{broker.Unknown("lost"), false, true},
		{task.Invalid("id", "is odd"), false, false},
		{context.Canceled, false, false},
		{internal, false, false},
	} {
		inGroup(t, 2, func(g *group) {
			g.lead(1, 2)
			g.knows(1, 1)
			g.fails(1, c.err)
			for name, elsewhere := range map[string]bool{"once": c.once, "safe": c.safe} {
				call := map[string]caller{"once": g.nodes[1].once, "safe": g.nodes[1].safe}[name]
				time.AfterFunc(time.Millisecond, func() { g.knows(1, 2) })
				got, err := call.Call(bg, one)
				if elsewhere && (err != nil || got != "done by 2") || !elsewhere && (!errors.Is(err, c.err) || g.messages() != "" ||
					g.jobs() != name+"@1") {
					t.Errorf("%s after %v here: %q, %v; elsewhere: %v", name, c.err, got, err, elsewhere)
				}
				g.messages()
				g.jobs()
				g.knows(1, 1)
			}
		})
	}
}

// A verb that fails here goes the same way as a method.
func TestVerbFailsLocally(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		g.lead(1, 2)
		g.knows(1, 1)
		runs, fails := 0, error(nil)
		verbtest.On(g.nodes[1].verbs, broker.ShowSchedule, func(context.Context, broker.AtHome) (out broker.Shown[*broker.ScheduleView],
			err error) {
			runs++
			g.knows(1, 2)
			return out, fails
		})
		verbtest.On(g.nodes[2].verbs, broker.ShowSchedule, func(context.Context, broker.AtHome) (out broker.Shown[*broker.ScheduleView],
			err error) {
			out.View = &broker.ScheduleView{}
			return out, nil
		})
		g.nodes[2].home = lives(1, nil)
		g.nodes[1].system = 2
		for _, c := range []struct {
			err error
			to  string
		}{{nil, ""}, {&broker.NotLeader{Shard: 1}, "schedule>2"}, {task.Invalid("id", "is odd"), ""}, {broker.Unknown("lost"), ""}} {
			fails, runs = c.err, 0
			g.knows(1, 1)
			call := broker.ShowSchedule.Make(broker.AtHome{OnSchedule: broker.OnSchedule{OnShard: broker.OnShard{Namespace: "a"},
				Name: "s"}})
			err := g.nodes[1].Do(bg, call)
			again := call.Rule().Idempotent && errors.Is(c.err, broker.ErrUnknown)
			if again || c.to != "" {
				c.to = "schedule>2"
				same(t, "error", text(err), "")
				same(t, "view", call.Resp.View != nil, true)
			} else {
				same(t, "error", text(err), text(c.err))
			}
			same(t, "messages", g.messages(), strings.TrimSpace("find-schedule>2 "+c.to))
			same(t, "runs here", runs, 1)
		}
	})
}

// A message that was not sent is repeated. Whether one whose answer is missing ran, nobody knows.
func TestLostMessages(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		g.lead(1, 3)
		g.knows(1, 2)
		g.network = refuse(fmt.Errorf("call: %w", errNotSent), 2)
		got, err := g.nodes[1].once.Call(bg, one)
		same(t, "answer", got, "done by 3")
		same(t, "error", text(err), "")
		same(t, "messages", g.messages(), "once>2 once>3")

		g.network = refuse(errLost, 2)
		_, err = g.nodes[1].once.Call(bg, one)
		refusedWith(t, "lost answer", err, broker.ErrUnknown, "shard 1: node 2 did not answer: read: connection reset")
		same(t, "messages", g.messages(), "once>2")
		got, err = g.nodes[1].safe.Call(bg, one)
		same(t, "answer", got, "done by 3")
		same(t, "error", text(err), "")
		g.messages()

		// An answer that can't be read, or whose error can't be: it may have run.
		for _, bad := range [][]byte{nil, []byte("x"), mustEncode(t, struct{ Fault []int }{[]int{1}})} {
			g.network = func(context.Context, uint32, func() ([]byte, error)) ([]byte, error) { return bad, nil }
			_, err = g.nodes[1].once.Call(bg, one)
			refusedWith(t, "unreadable answer", err, broker.ErrUnknown, "shard 1: the answer of node 2 can't be read")
			same(t, "messages", g.messages(), "once>2")
		}
	})
}

// A node that does not know a call, or can't read what it is limited to, certainly did not run it.
func TestNodeCannotRunCall(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		g.lead(1, 2)
		g.knows(3, 3)
		var some, none verb.Table[*peer]
		newer := verb.New(&some, verb.Rule{Name: "new", Idempotent: true}, func(*peer, context.Context, job) (string, error) {
			return "new", nil
		})
		some.Serve(g.nodes[1], g.nodes[1].parts)
		some.Serve(g.nodes[3], g.nodes[3].parts)
		got, err := newer.Call(bg, g.nodes[1], one)
		same(t, "answer", got, "new")
		same(t, "error", text(err), "")
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		g.network = refuse(errNotSent, 3)
		nobody := verb.New(&none, verb.Rule{Name: "newer", Idempotent: true}, func(*peer, context.Context, job) (string, error) {
			return "", &broker.NotLeader{Shard: 1}
		})
		none.Serve(g.nodes[1], g.nodes[1].parts)
		_, err = nobody.Call(ctx, g.nodes[1], one)
		refusedWith(t, "call that nobody knows", err, task.ErrUnavailable, `node "n2" does not answer (it does not know the call "newer")`)
		same(t, "unknown", errors.Is(err, broker.ErrUnknown), false)
	})
}

// What a call waits for includes the time that it was at nodes that stopped leading meanwhile.
func TestWaitCountsElapsedTime(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		var waits []time.Duration
		serve := func(n uint32, took time.Duration, err error) {
			g.runs(n, func(_ context.Context, j job) (string, error) {
				g.with(func() { waits = append(waits, j.Wait) })
				routertest.Pass(took)
				return fmt.Sprint("done by ", n), err
			})
		}
		try := func(what string, wait time.Duration, want ...time.Duration) {
			t.Helper()
			waits = nil
			got, err := g.nodes[1].safe.Call(bg, job{Shard: 1, Wait: wait})
			if got != "done by 3" || err != nil || fmt.Sprint(waits) != fmt.Sprint(want) {
				t.Errorf("%s: %q, %v with the waits %v, want %v", what, got, err, waits, want)
			}
		}
		s := time.Second
		g.lead(1, 2)
		serve(1, 5*s, &broker.NotLeader{Shard: 1, Node: 2})
		serve(2, 12*s, &broker.NotLeader{Shard: 1, Node: 3})
		serve(3, 0, nil)
		try("at other nodes", 30*s, 30*s, 18*s)
		try("longer than the wait", 10*s, 10*s, 0)
		g.knows(1, 1)
		g.with(func() { g.nodes[1].run = nil })
		g.runs(1, func(_ context.Context, j job) (string, error) {
			g.with(func() { waits = append(waits, j.Wait) })
			routertest.Pass(5 * s)
			g.knows(1, 2)
			return "", &broker.NotLeader{Shard: 1, Node: 2}
		})
		try("here first", 30*s, 30*s, 25*s, 13*s)
		g.knows(1, 1)
		try("here, longer than the wait", 3*s, 3*s, 0, 0)
		g.knows(1, 1)
		waits = nil
		got, err := forward.Call(bg, g.nodes[1].Forwarder, safe, 1, job{Shard: 1, Wait: 30 * s})
		if want := []time.Duration{30 * s, 25 * s, 13 * s}; got != "done by 3" || err != nil || !slices.Equal(waits, want) {
			t.Errorf("forward.Call: %q, %v with the waits %v, want %v", got, err, waits, want)
		}
	})
}

// The same holds for a verb that waits.
func TestWaitingVerb(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		g.lead(1, 2)
		g.knows(1, 1)
		var waits []time.Duration
		for n, p := range g.nodes {
			verbtest.On(p.verbs, broker.ShowOperation, func(_ context.Context,
				q broker.OperationWait) (out broker.Shown[broker.OperationView], err error) {
				waits = append(waits, q.Wait)
				if n == 1 {
					routertest.Pass(5 * time.Second)
					g.knows(1, 2)
					err = &broker.NotLeader{Shard: 1, Node: 2}
				}
				return out, err
			})
		}
		on := broker.OnOperation{Namespace: "a", ID: task.NewID(1, 1, 1)}
		_, err := broker.ShowOperation.Call(bg, g.nodes[1], broker.OperationWait{OnOperation: on, Wait: 30 * time.Second})
		same(t, "error", text(err), "")
		same(t, "waits", fmt.Sprint(waits), "[30s 25s]")
	})
}
