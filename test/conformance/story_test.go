package conformance

import (
	"context"
	"errors"
	"os"
	"reflect"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// story is something that is true of every API.
type story struct {
	name    string
	tell    func(w *world)
	gateway bool // about what the gateway does, which the broker's own callers have to do themselves
	shards  int  // number of data shards; 0: one
}

// ofTheGateway marks a story as about the gateway.
func ofTheGateway(s story) story {
	s.gateway = true
	return s
}

// overTwoShards returns stories to be repeated with a node where the queues a and b are in different shards, which the gateway combines.
func overTwoShards(stories []story) (out []story) {
	for _, s := range stories {
		tell := s.tell
		out = append(out, ofTheGateway(story{name: s.name + ", over two shards", shards: 2, tell: func(w *world) {
			tell(w)
			a, _ := w.testNode.copy.Queue(namespace, "a")
			b, _ := w.testNode.copy.Queue(namespace, "b")
			is(w, "that the shards differ", a.Shard != b.Shard, true)
		}}))
	}
	return out
}

// world is a node, the API that a story uses, and the helpers of stories. A call that a story does not expect to be refused must succeed.
type world struct {
	*testing.T
	testNode *testNode
	api      api
	other    func(ns string) api // returns an API of the same kind into a namespace; only for stories about the gateway
}

// within returns the world as seen from a namespace.
func (w *world) within(ns string) *world { return &world{w.T, w.testNode, w.other(ns), w.other} }

// apis opens each kind of API in the namespace that the calls name, for a story that may be about the gateway. Direct calls are all in the
// default namespace.
var apis = []struct {
	name string
	open func(t *testing.T, h *testNode, gateway bool, ns string) api
}{
	{"direct", func(_ *testing.T, h *testNode, _ bool, _ string) api { return newDirect(h) }},
	{"rest", func(t *testing.T, h *testNode, _ bool, ns string) api { return newRESTIn(t, h, ns) }},
	{"grpc", func(t *testing.T, h *testNode, _ bool, ns string) api { return newRPCIn(t, h, ns) }},
	{"sdk", func(t *testing.T, h *testNode, _ bool, ns string) api { return newSDKIn(t, h, ns) }},
	{"each in turn", func(t *testing.T, h *testNode, gateway bool, ns string) api {
		all := []api{newRESTIn(t, h, ns), newSDKIn(t, h, ns), newRPCIn(t, h, ns)}
		if !gateway {
			all = append(all, newDirect(h))
		}
		return &roundRobin{apis: all}
	}},
}

// tellAll runs stories through every API, each with its own node and bubble of fake time.
func tellAll(t *testing.T, stories []story) {
	t.Parallel()
	for _, d := range apis {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range stories {
				if s.gateway && d.name == "direct" {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					dir := t.TempDir()
					synctest.Test(t, func(t *testing.T) {
						h := build(t, max(s.shards, 1), dir)
						other := func(ns string) api { return d.open(t, h, s.gateway, ns) }
						s.tell(&world{t, h, other(""), other})
					})
				})
			}
		})
	}
}

// TestMain has less garbage collected than usual, which would take a sixth of the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// seeds returns how many seeds a test of random moves tries: few, or many if PAWL_LONG is set.
func seeds(few, many uint64) uint64 {
	if os.Getenv("PAWL_LONG") != "" {
		return many
	}
	return few
}

// ctx is for calls that end by themselves.
func (w *world) ctx() context.Context { return w.Context() }

// awake is how much of a long time passes without sleep: the broker looks at its clock twice in it.
const awake = minute

// pass lets time pass, and everything happen that is due. For most of a long time the machine sleeps, since each second
// awake triggers the timers of three storage engines thirty times. What is due while it sleeps happens late.
func (w *world) pass(d span) {
	if d > 2*awake {
		w.testNode.slept.Add(int64(d - awake))
		d = awake
	}
	time.Sleep(d.std())
	synctest.Wait()
}

// now returns the time of the node.
func (w *world) now() time.Time { return w.testNode.time().UTC() }

func (w *world) at(d span) time.Time { return w.now().Add(d.std()) }

// ok returns a call's answer, and fails if the call was refused.
func ok[T any](w *world) func(T, error) T {
	return func(v T, err error) T {
		w.Helper()
		if err != nil {
			w.Fatalf("the call was refused: %v", err)
		}
		return v
	}
}

// is compares a result with the expected one.
func is[T any](w *world, what string, got, want T) {
	w.Helper()
	if !reflect.DeepEqual(got, want) {
		w.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// refused checks that a call was refused like this, in every detail that a program can see.
func (w *world) refused(what string, err error, want refusal) {
	w.Helper()
	got, refused := errors.AsType[*refusal](err)
	switch {
	case err == nil:
		w.Errorf("%s: not refused, want %+v", what, want)
	case !refused:
		w.Errorf("%s: %v, want %+v", what, err, want)
	default:
		shown := *got
		shown.Text = ""
		if shown != want || got.Text == "" {
			w.Errorf("%s: refused as %+v (%q), want %+v", what, shown, got.Text, want)
		}
	}
}

// together makes concurrent calls. Those that are not expected to be refused must not be.
func (w *world) together(n int, call func(i int) error) {
	w.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := call(i); err != nil {
				w.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// enqueue enqueues a task of type job.
func (w *world) enqueue(s spec) accepted {
	w.Helper()
	if s.Type == "" {
		s.Type = "job"
	}
	return ok[accepted](w)(w.api.Enqueue(w.ctx(), s))
}

// id is enqueue for stories that need only the id.
func (w *world) id(s spec) string {
	w.Helper()
	return w.enqueue(s).ID
}

// batch enqueues many tasks, each with its own answer.
func (w *world) batch(specs []spec) []accepted {
	w.Helper()
	got := ok[[]accepted](w)(w.api.EnqueueMany(w.ctx(), specs))
	if len(got) != len(specs) {
		w.Fatalf("%d tasks got %d answers", len(specs), len(got))
	}
	return got
}

func (w *world) get(id string) view {
	w.Helper()
	return ok[view](w)(w.api.Get(w.ctx(), id))
}

// state returns a task's state, with the reason if it has ended: "dead attempts_exhausted".
func (w *world) state(id string) string {
	w.Helper()
	v := w.get(id)
	if v.Reason == "" {
		return v.State
	}
	return v.State + " " + v.Reason
}

// gone checks that the task no longer exists.
func (w *world) gone(id string) {
	w.Helper()
	_, err := w.api.Get(w.ctx(), id)
	w.refused("get", err, refusal{Code: "not_found"})
}

// claims claims tasks as worker w1, unless the call names another.
func (w *world) claims(c claimCall) []claim {
	w.Helper()
	if c.Worker == "" {
		c.Worker = "w1"
	}
	return ok[[]claim](w)(w.api.Claim(w.ctx(), c))
}

// only returns the one element that a list must have.
func only[T any](w *world, what string, list []T) T {
	w.Helper()
	if len(list) != 1 {
		w.Fatalf("%d %s, want 1: %+v", len(list), what, list)
	}
	return list[0]
}

// one claims the one task that a call must find.
func (w *world) one(c claimCall) claim {
	w.Helper()
	return only(w, "tasks claimed", w.claims(c))
}

// claim claims the one task that the default queue must have.
func (w *world) claim() claim {
	w.Helper()
	return w.one(from("default"))
}

func (w *world) claimBy(worker string) claim {
	w.Helper()
	return w.one(claimCall{Queues: []string{"default"}, Worker: worker})
}

// nothing checks that nothing can be claimed from the default queue.
func (w *world) nothing() {
	w.Helper()
	if got := w.claims(from("default")); len(got) != 0 {
		w.Fatalf("the claim got %d tasks, want none", len(got))
	}
}

func (w *world) ack(c claim) {
	w.Helper()
	if err := w.api.Ack(w.ctx(), c.hold(), result{}); err != nil {
		w.Fatalf("ack: %v", err)
	}
}

func (w *world) fail(c claim, f failing) settled {
	w.Helper()
	return ok[settled](w)(w.api.Fail(w.ctx(), c.hold(), f))
}

func (w *world) release(c claim, delay span) settled {
	w.Helper()
	return ok[settled](w)(w.api.Release(w.ctx(), c.hold(), delay))
}

func (w *world) extend(c claim, e extension) time.Time {
	w.Helper()
	return ok[time.Time](w)(w.api.Extend(w.ctx(), c.hold(), e))
}

func (w *world) put(queue string, s settings) queueInfo {
	w.Helper()
	return ok[queueInfo](w)(w.api.PutQueue(w.ctx(), queue, s))
}

func (w *world) queue(name string) queueInfo {
	w.Helper()
	return ok[queueInfo](w)(w.api.Queue(w.ctx(), name))
}

// kill makes a dead letter of a task that it enqueues.
func (w *world) kill(queue, message string) {
	w.Helper()
	w.fail(w.one(from(queue)), failing{Message: message, Outcome: "dead"})
}

func ids(items []view) (out []string) {
	for _, v := range items {
		out = append(out, v.ID)
	}
	return out
}

func claimedIDs(claimed []claim) (out []string) {
	for _, c := range claimed {
		out = append(out, c.ID)
	}
	return out
}
