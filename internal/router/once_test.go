package router_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// onceScript answers calls on once keys in the order given by the test.
type onceScript struct {
	*routertest.Script
	says  []onceSays
	calls []broker.OnceCall
}

type onceSays struct {
	answer broker.OnceAnswer
	err    error
}

func (s *onceScript) answer(_ context.Context, q router.OnceIn) (out router.OnceAnswered, err error) {
	says := s.says[0]
	s.says = s.says[1:]
	s.Note("once in %d", q.Shard)
	s.calls = append(s.calls, q.Call)
	out.Out, out.At = says.answer, routertest.At(q.Shard)
	return out, says.err
}

// A once key is looked up in the task's shard, then along the route of its slot. The hold of a claim that has ended is void.
func TestOnceKeysAreFound(t *testing.T) {
	holder := func(shard uint32) broker.OnceHolder { return broker.OnceHolder{ID: task.NewID(shard, 1, 5), Fence: 3} }
	says := func(a broker.OnceAnswer, errs ...error) onceSays { return onceSays{a, errors.Join(errs...)} }
	away := says(broker.OnceAnswer{State: broker.OnceAway, Queue: "spread", Holder: holder(3)})
	lost := says(broker.OnceAnswer{State: broker.OnceAway, Queue: "none", Holder: holder(3)})
	done, moved := says(broker.OnceAnswer{State: broker.OnceDone}), says(broker.OnceAnswer{}, broker.ErrSlotMoved)
	far := func(shard uint32) onceSays {
		return says(broker.OnceAnswer{State: broker.OnceHeld, Far: true, Holder: holder(shard)})
	}
	for _, c := range []struct {
		name  string
		says  []onceSays
		holds error // nil: the holder still holds it; ErrNotFound: it does not; otherwise unknown
		want  string
		state broker.OnceState
		err   error
	}{
		{"here", []onceSays{done}, nil, "once in 1", broker.OnceDone, nil},
		{"refused", []onceSays{says(broker.OnceAnswer{State: broker.OnceAway}, routertest.ErrAway)}, nil, "once in 1", broker.OnceAway,
			routertest.ErrAway},
		{"in the shard of the slot", []onceSays{away, moved, done}, nil, "once in 1, once in 1, once in 2", broker.OnceDone, nil},
		{"where its slot was", []onceSays{away, done}, nil, "once in 1, once in 1", broker.OnceDone, nil},
		{"its queue can't be placed", []onceSays{lost}, nil, "once in 1, place none", 0, routertest.ErrAway},
		{"held", []onceSays{away, moved, far(3)}, nil, "once in 1, once in 1, once in 2, holds in 3", broker.OnceHeld, nil},
		{"held by one that has ended", []onceSays{away, moved, far(3), done}, task.ErrNotFound,
			"once in 1, once in 1, once in 2, holds in 3, once in 2", broker.OnceDone, nil},
		{"held in a shard that nobody has", []onceSays{away, moved, far(77), done}, nil, "once in 1, once in 1, once in 2, once in 2",
			broker.OnceDone, nil},
		{"nobody knows of the holder", []onceSays{away, moved, far(3)}, routertest.ErrAway, "once in 1, once in 1, once in 2, holds in 3",
			broker.OnceHeld, routertest.ErrAway},
		{"the shard is not the queue's any more", []onceSays{away, says(broker.OnceAnswer{}, movedQueue), done}, nil,
			"once in 1, once in 1, once in 2", broker.OnceDone, nil},
	} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			script := &onceScript{Script: s, says: c.says}
			verbtest.On(m.Broker, router.UseOnce, script.answer)
			verbtest.On(m.Broker, broker.OnceHolds, func(_ context.Context, q broker.OnceHold) (bool, error) {
				s.Note("holds in %d", q.TargetShard())
				if errors.Is(c.holds, task.ErrNotFound) {
					return false, nil
				}
				return c.holds == nil, c.holds
			})
			out, _, err := m.Once(context.Background(), broker.OnceCall{Verb: broker.OnceBegin, Key: "k",
				Hold: broker.Hold{Namespace: routertest.Namespace, ID: task.NewID(1, 1, 1)}})
			for i, call := range script.calls { // a shard that the slot has left begins no key, whatever its copy of the queue says
				if call.Left != (i == 1) {
					t.Errorf("%s: call %d says that the slot has left: %t", c.name, i+1, call.Left)
				}
			}
			if got := s.Was(); got != c.want || out.State != c.state || !errors.Is(err, c.err) || len(script.says) > 0 {
				t.Errorf("%s: calls %s, state %d, error %v; want %s, state %d, %v", c.name, got, out.State, err, c.want, c.state, c.err)
			}
			// the claim's own shard knows the holder, the others are told. Each is told by which queue it was chosen
			for i, call := range script.calls {
				there := !strings.HasSuffix(strings.Split(c.want, ", ")[min(i, 1)], "1") || i > 1
				told := call.By != nil && *call.By == holder(3)
				if told != there || !there && call.By != nil || (call.Queue == "spread") != (i > 0) || i == 0 && call.Queue != "" {
					t.Errorf("%s: call %d was sent with holder %+v and queue %q", c.name, i, call.By, call.Queue)
				}
				if ended := call.Ended != nil; ended != (i == 3) {
					t.Errorf("%s: call %d reported that the claim of %+v has ended", c.name, i, call.Ended)
				}
			}
		})
	}
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		c := broker.OnceCall{Verb: broker.OnceBegin, Key: "k", Hold: broker.Hold{Namespace: routertest.Namespace, ID: task.NewID(77, 1, 1)}}
		if _, _, err := m.Once(context.Background(), c); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("Once for a task in a shard that does not exist: %v, want not found", err)
		}
	})
}

var movedQueue = forward.MovedTo(queues.Queue{Namespace: routertest.Namespace, Name: "spread", Shard: 2,
	Config: task.QueueConfig{Version: 4}})

// A moving slot is waited for, as long as the caller has time.
func TestOnceKeysOfMovingSlots(t *testing.T) {
	for _, c := range []struct {
		name        string
		time        time.Duration // of the caller; 0: unlimited
		comes       time.Duration // when the slot arrives; 0: never
		least, most time.Duration
	}{
		{"it comes", 0, time.Second, time.Second, 2 * time.Second},
		{"it comes in time", 5 * time.Second, time.Second, time.Second, 2 * time.Second},
		{"never", 0, 0, forward.SearchTime, forward.SearchTime + time.Second},
		{"never, for a caller with little time", 2 * time.Second, 0, time.Second, 2 * time.Second},
	} {
		routertest.InScript(t, func(_ *routertest.Script, m *routertest.Member) {
			ctx := context.Background()
			if c.time > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.time)
				defer cancel()
			}
			m.Fleet.Queues["spread"] = m.Copy["spread"]
			began := time.Now()
			asked := false
			verbtest.On(m.Broker, router.UseOnce, func(_ context.Context, q router.OnceIn) (out router.OnceAnswered, err error) {
				out.At = routertest.At(q.Shard)
				switch {
				case !asked:
					out.Out, asked = broker.OnceAnswer{State: broker.OnceAway, Queue: "spread"}, true
				case c.comes > 0 && time.Since(began) >= c.comes:
					out.Out.State = broker.OnceDone
				default:
					err = broker.ErrSlotMoved
				}
				return out, err
			})
			out, _, err := m.Once(ctx, broker.OnceCall{Verb: broker.OnceBegin, Key: "k", Hold: broker.Hold{Namespace: routertest.Namespace,
				ID: task.NewID(1, 1, 1)}})
			took := time.Since(began)
			if came := c.comes > 0; came != (err == nil) || !came && !errors.Is(err, broker.ErrSlotMoved) ||
				(out.State == broker.OnceDone) != came || took < c.least || took > c.most {
				t.Errorf("%s: state %d, %v after %s", c.name, out.State, err, took)
			}
		})
	}
}
