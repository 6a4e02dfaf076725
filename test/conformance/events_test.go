package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/admin"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// happened is an event. Cursor is the position after it.
type happened struct {
	Kind   string `json:"kind"`
	Queue  string `json:"queue"`
	Type   string `json:"type"`
	Key    string `json:"key"`
	TaskID string `json:"task_id"`
	State  string `json:"state"`
	Worker string `json:"worker"`
	Reason string `json:"reason"`
	Error  string `json:"error"`
	Name   string `json:"name"`
	Cursor string `json:"-"`
}

func (h happened) String() string {
	return strings.Join(strings.Fields(strings.Join([]string{h.Kind, h.Queue, h.Type, h.Key, h.Worker, h.Reason, h.Error, h.Name}, " ")),
		" ")
}

type watching struct {
	Queue, Type, Task string
	Kinds             []string
	After             string
	Digest            time.Duration
}

type eventsAPI interface {
	// Watch sends events until ctx is done. The stream has begun when it returns.
	Watch(ctx context.Context, f watching) (<-chan happened, error)
}

// stream is the events that a story receives.
type stream struct {
	w    *world
	in   <-chan happened
	last happened
	stop context.CancelFunc
}

func (w *world) watch(f watching) *stream {
	w.Helper()
	ctx, stop := context.WithCancel(w.ctx())
	in, err := w.api.(eventsAPI).Watch(ctx, f)
	must(w.T, err)
	synctest.Wait()
	return &stream{w: w, in: in, stop: stop}
}

// hears compares the events with those expected. Events of several shards have no order, and are compared sorted.
func (s *stream) hears(what string, want ...string) {
	s.w.Helper()
	s.w.pass(second)
	var got []string
	for more := true; more; {
		select {
		case s.last, more = <-s.in:
			if more {
				got = append(got, s.last.String())
			}
		default:
			more = false
		}
		synctest.Wait()
	}
	slices.Sort(got)
	slices.Sort(want)
	is(s.w, what, got, want)
}

const resetReason = "earlier events of the shard may be missing: read the current state"

func TestEvents(t *testing.T) {
	tellAll(t, []story{
		ofTheGateway(story{name: "task and queue events are streamed as they happen", tell: func(w *world) {
			w.put("mail", settings{})
			w.id(spec{Queue: "mail", Type: "before"})
			s := w.watch(watching{})
			id := w.id(spec{Queue: "mail", Type: "welcome", MaxAttempts: 1})
			s.hears("an enqueue", "task.enqueued mail welcome")
			is(w, "its task", []string{s.last.TaskID, s.last.State}, []string{id, "ready"})
			c := w.claims(claimCall{Queues: []string{"mail"}, Types: []string{"welcome"}, Max: 1, Worker: "w1"})
			s.hears("a claim", "task.claimed mail welcome w1")
			w.fail(c[0], failing{Message: "no route"})
			s.hears("a failure", "task.failed mail welcome w1 no route", "task.dead mail welcome w1 attempts_exhausted")
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "mail", pause{Reason: "deploy"}))
			ok[queueInfo](w)(w.api.Resume(w.ctx(), "mail", pause{}))
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "mail", pause{Type: "welcome"}))
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "mail", pause{Key: "acme", Reason: "unpaid"}))
			ok[queueInfo](w)(w.api.Resume(w.ctx(), "mail", pause{Type: "welcome"}))
			ok[queueInfo](w)(w.api.Resume(w.ctx(), "mail", pause{Key: "acme"}))
			w.put("mail", settings{MaxLength: 9})
			s.hears("a queue's settings", "queue.paused mail deploy", "queue.resumed mail",
				"queue.paused mail welcome", "queue.paused mail acme unpaid", "queue.resumed mail welcome", "queue.resumed mail acme",
				"queue.changed mail")
			w.put("new", settings{})
			must(w.T, w.api.DeleteQueue(w.ctx(), "new"))
			s.hears("a queue's life", "queue.created new", "queue.deleted new")
			s.stop()
		}}),
		ofTheGateway(story{name: "a stream continues after a cursor and applies its filter", shards: 3, tell: func(w *world) {
			queues := []string{"a", "b", "c", "d", "e"}
			for _, q := range queues {
				w.put(q, settings{})
			}
			s := w.watch(watching{Kinds: []string{"task.*"}})
			for _, q := range queues {
				w.id(spec{Queue: q, Type: "x"})
			}
			want := []string{"task.enqueued a x", "task.enqueued b x", "task.enqueued c x", "task.enqueued d x", "task.enqueued e x"}
			s.hears("all queues", want...)
			behind := s.last.Cursor
			s.stop()
			for _, q := range queues {
				w.id(spec{Queue: q, Type: "y"})
			}
			w.put("a", settings{MaxLength: 100})
			id := w.id(spec{Queue: "b", Type: "z"})
			s = w.watch(watching{Kinds: []string{"task.*"}, After: behind})
			s.hears("behind the cursor", "task.enqueued a y", "task.enqueued b y", "task.enqueued c y", "task.enqueued d y",
				"task.enqueued e y", "task.enqueued b z")
			s.stop()
			for _, c := range []struct {
				f    watching
				want []string
			}{
				{watching{Queue: "b", Kinds: []string{"task.*"}}, []string{"task.enqueued b y", "task.enqueued b z"}},
				{watching{Type: "z", Kinds: []string{"task.*"}}, []string{"task.enqueued b z"}},
				{watching{Task: id}, []string{"task.enqueued b z"}},
				// the first stream did not read the system shard
				{watching{Kinds: []string{"queue.changed"}}, []string{"reset " + resetReason}},
				{watching{Kinds: []string{"task.dead", "breaker.*"}}, nil},
			} {
				c.f.After = behind
				s = w.watch(c.f)
				s.hears(fmt.Sprintf("with %+v", c.f), c.want...)
				s.stop()
			}
			for _, bad := range []watching{{After: "x"}, {Kinds: []string{"nothing"}}, {Task: "x"}} {
				_, err := w.api.(eventsAPI).Watch(w.ctx(), bad)
				is(w, fmt.Sprintf("a refusal of %+v", bad), err != nil, true)
			}
		}}),
		ofTheGateway(story{name: "a digest reports that something changed, and no details", tell: func(w *world) {
			w.put("a", settings{})
			w.put("b", settings{})
			s := w.watch(watching{Queue: "a", Kinds: []string{"task.*"}, Digest: time.Second})
			w.fill(5, spec{Queue: "a"})
			w.fill(5, spec{Queue: "b"})
			s.hears("much of a queue", "changed")
			is(w, "its cursor", s.last.Cursor, "")
			w.fill(1, spec{Queue: "b"})
			s.hears("another queue")
			w.fill(2, spec{Queue: "a"})
			s.hears("the queue again", "changed")
			s.stop()
			for _, bad := range []watching{{Digest: time.Minute}, {Digest: time.Millisecond}} {
				_, err := w.api.(eventsAPI).Watch(w.ctx(), bad)
				is(w, fmt.Sprintf("a refusal of %+v", bad), err != nil, true)
			}
		}}),
		ofTheGateway(story{name: "events of operations, breakers and schedules are streamed", tell: func(w *world) {
			w.put("default", settings{Breaker: &breaker{FailureRate: 100, MinAttempts: 1, Window: minute, Hold: hour, Probes: 1}})
			w.fill(2, spec{})
			s := w.watch(watching{Kinds: []string{"operation.*", "breaker.*", "schedule.*"}})
			c := w.claims(from("default").most(1))
			w.fail(c[0], failing{Message: "down", Outcome: "dead"})
			s.hears("a breaker", `breaker.opened default 1 1 of 1 attempt failed within 1m0s, the last with "down" down`)
			ok[queueInfo](w)(w.api.CloseBreaker(w.ctx(), "default", "", ""))
			s.hears("its end", "breaker.closed default 1 operator down")
			w.start(operation{Action: "cancel", Filter: filter{Queue: "default"}})
			s.hears("an operation", "operation.started default", "operation.done default")
			w.schedule(schedule{Name: "nightly", Cron: "0 3 * * *", Missed: "skip", Task: spec{Type: "report"}})
			w.pass(30 * hour)
			s.hears("a schedule", "schedule.missed default report missed nightly")
			s.stop()
		}}),
	})
}

func (d *rest) Watch(ctx context.Context, f watching) (<-chan happened, error) {
	q := url.Values{}
	for name, value := range map[string]string{"queue": f.Queue, "type": f.Type, "task": f.Task, "kind": strings.Join(f.Kinds, ","),
		"cursor": f.After} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Digest > 0 {
		q.Set("digest", f.Digest.String())
	}
	req, err := http.NewRequestWithContext(ctx, "GET", "http://localhost/api/v1/events?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	out := make(chan happened)
	go func() {
		defer close(out)
		defer resp.Body.Close()
		lines, id := bufio.NewScanner(resp.Body), ""
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ":")
			switch name {
			case "id":
				id = strings.TrimSpace(value)
			case "data":
				h := happened{Cursor: id}
				if err := json.Unmarshal([]byte(value), &h); err != nil {
					h.Kind = err.Error()
				}
				select {
				case out <- h:
				case <-ctx.Done():
				}
			}
		}
	}()
	return out, nil
}

func (d *rpc) Watch(ctx context.Context, f watching) (<-chan happened, error) {
	req := &pawlv1.WatchEventsRequest{Queue: text(f.Queue), Type: text(f.Type), TaskId: text(f.Task), Kinds: f.Kinds, Cursor: f.After}
	if f.Digest > 0 {
		req.Digest = durationpb.New(f.Digest)
	}
	s, err := d.events.WatchEvents(ctx, req)
	if err != nil {
		return nil, err
	}
	first, err := s.Recv()
	if err != nil || len(first.GetEvents()) > 0 || (first.GetCursor() == "") != (f.Digest > 0) {
		return nil, fmt.Errorf("the first frame is %v, %w", first, err)
	}
	out := make(chan happened)
	go func() {
		defer close(out)
		for {
			frame, err := s.Recv()
			if err != nil {
				return
			}
			for _, e := range frame.GetEvents() {
				h := happened{Kind: e.GetKind(), Queue: e.GetQueue(), Type: e.GetType(), Key: e.GetKey(), TaskID: e.GetTaskId(),
					State: word(e.GetState(), "STATE_"), Worker: e.GetWorker(), Reason: e.GetReason(), Error: e.GetError(),
					Name: e.GetName(), Cursor: e.GetCursor()}
				select {
				case out <- h:
				case <-ctx.Done():
				}
			}
		}
	}()
	return out, nil
}

func (d *sdk) Watch(ctx context.Context, f watching) (<-chan happened, error) {
	filter := admin.EventFilter{Queue: f.Queue, Type: f.Type, TaskID: f.Task, After: f.After, Digest: f.Digest}
	for _, k := range f.Kinds {
		filter.Kinds = append(filter.Kinds, admin.EventKind(k))
	}
	out, failed := make(chan happened), make(chan error, 1)
	go func() {
		defer close(out)
		for e, err := range d.admin().Events(ctx, filter) {
			if err != nil {
				failed <- err
				return
			}
			h := happened{Kind: string(e.Kind), Queue: e.Queue, Type: e.Type, Key: e.Key, TaskID: e.TaskID, State: string(e.State),
				Worker: e.Worker, Reason: e.Reason, Error: e.Error, Name: e.Name, Cursor: e.Cursor}
			select {
			case out <- h:
			case <-ctx.Done():
			}
		}
	}()
	synctest.Wait() // otherwise it is unknown whether it has begun
	select {
	case err := <-failed:
		return nil, err
	default:
		return out, nil
	}
}

func (d *roundRobin) Watch(ctx context.Context, f watching) (<-chan happened, error) {
	return d.next().(eventsAPI).Watch(ctx, f)
}
