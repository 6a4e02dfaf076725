package conformance

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// notRestored are a task's fields that are not restored from the archive.
var notRestored = []protoreflect.Name{"delay", "run_at", "request_id", "group_id"}

// archivedSpec is a task with all options set.
func archivedSpec(w *world) *pawlv1.TaskSpec {
	jitter := 0.5
	s := &pawlv1.TaskSpec{Type: "job", Payload: []byte(`{"n":1}`), ContentType: "application/json", Queue: new("default"),
		Priority: pawlv1.Priority_PRIORITY_HIGH, IdempotencyKey: new("k"), IdempotencyTtl: durationpb.New(48 * time.Hour), MaxAttempts: 7,
		Retry:   &pawlv1.RetryPolicy{Initial: durationpb.New(2 * time.Second), Factor: 3, Max: durationpb.New(time.Minute), Jitter: &jitter},
		Timeout: durationpb.New(90 * time.Second), ExpiresIn: durationpb.New(5 * time.Hour), Retention: durationpb.New(3 * time.Hour),
		Key: new("customer"), Tags: []string{"a", "b"}, Headers: map[string]string{"x-request-id": "r1"}, Cost: 3,
		Unique: &pawlv1.Unique{Key: new("u"), States: []pawlv1.State{pawlv1.State_STATE_SCHEDULED, pawlv1.State_STATE_READY,
			pawlv1.State_STATE_CLAIMED, pawlv1.State_STATE_RETRYING, pawlv1.State_STATE_DEAD}, OnConflict: pawlv1.OnConflict_ON_CONFLICT_REJECT},
		Then: []*pawlv1.TaskSpec{{Type: "next", Queue: new("default")}}}
	for i := range s.ProtoReflect().Descriptor().Fields().Len() {
		f := s.ProtoReflect().Descriptor().Fields().Get(i)
		if s.ProtoReflect().Has(f) == slices.Contains(notRestored, f.Name()) {
			w.Errorf("%s: the test's task must set this field, or notRestored must list it, but not both", f.Name())
		}
	}
	return s
}

// asSaid returns the fields that a task and its restored copy have in common.
func asSaid(t *pawlv1.Task) *pawlv1.Task {
	p := &pawlv1.Task{Type: t.GetType(), Payload: t.GetPayload(), ContentType: t.GetContentType(), Queue: t.GetQueue(),
		Priority: t.GetPriority(), IdempotencyKey: t.GetIdempotencyKey(), MaxAttempts: t.GetMaxAttempts(), Retry: t.GetRetry(),
		Timeout: t.GetTimeout(), Retention: t.GetRetention(), Key: t.GetKey(), Tags: t.GetTags(), Headers: t.GetHeaders(), Cost: t.GetCost(),
		Unique: t.GetUnique(), Parent: t.GetParent()}
	for _, f := range t.GetThen() {
		p.Then = append(p.Then, &pawlv1.Follower{Type: f.GetType(), Queue: f.GetQueue()})
	}
	return p
}

func TestArchive(t *testing.T) {
	tellAll(t, []story{
		ofTheGateway(story{name: "a dead letter is restored from the archive with all its fields, once", tell: func(w *world) {
			rpc := newRPC(w.T, w.testNode)
			made, err := ask(w.ctx(), rpc.producer.Enqueue, &pawlv1.EnqueueRequest{Task: archivedSpec(w)})
			must(w.T, err)
			first, err := ask(w.ctx(), rpc.producer.GetTask, &pawlv1.GetTaskRequest{TaskId: made.GetTask().GetTaskId()})
			must(w.T, err)
			place, archived := w.buried(rpc)
			if got, want := asSaid(archived), asSaid(first.GetTask()); !proto.Equal(got, withoutThen(want)) {
				w.Errorf("the archive has\n%v, want\n%v", got, want)
			}
			is(w, "when the archived task would have expired", archived.GetExpiresAt().AsTime(), first.GetTask().GetExpiresAt().AsTime())

			w.pass(60 * minute)
			at := w.now()
			back := w.restore(rpc, place)
			again, err := ask(w.ctx(), rpc.producer.GetTask, &pawlv1.GetTaskRequest{TaskId: back.GetTaskId()})
			must(w.T, err)
			if got, want := asSaid(again.GetTask()), asSaid(first.GetTask()); !proto.Equal(got, want) {
				w.Errorf("the restored task is\n%v, want\n%v", got, want)
			}
			is(w, "another task", back.GetTaskId() != made.GetTask().GetTaskId() && !back.GetDuplicate(), true)
			is(w, "its time to expire, from now", again.GetTask().GetExpiresAt().AsTime().Sub(at).Round(time.Second), 5*time.Hour)

			repeat := w.restore(rpc, place)
			is(w, "the repeat", repeat.GetTaskId() == back.GetTaskId() && repeat.GetDuplicate(), true)
			both, err := rpc.operator.RestoreArchive(w.ctx(), &pawlv1.RestoreArchiveRequest{Places: []string{place, place}})
			must(w.T, err)
			is(w, "two in one call", []string{both.GetResults()[0].GetTaskId(), both.GetResults()[1].GetTaskId()},
				[]string{back.GetTaskId(), back.GetTaskId()})

			// The idempotency key belongs to the new task, for its full TTL.
			w.pass(47 * 60 * minute)
			dup, err := ask(w.ctx(), rpc.producer.Enqueue, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "job", Payload: []byte(`{"n":1}`),
				ContentType: "application/json", IdempotencyKey: new("k")}})
			must(w.T, err)
			is(w, "who repeats the enqueue gets", dup.GetTask().GetTaskId(), back.GetTaskId())
		}}),
		ofTheGateway(story{name: "a follow-up task is restored with its parent's result", tell: func(w *world) {
			rpc := newRPC(w.T, w.testNode)
			_, err := ask(w.ctx(), rpc.producer.Enqueue, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "parent",
				Then: []*pawlv1.TaskSpec{{Type: "child"}}}})
			must(w.T, err)
			parent := w.claim()
			w.ackWith(parent, `{"sum":42}`)
			place, archived := w.buried(rpc)
			is(w, "the parent's result in the archive", string(archived.GetParent().GetResult()), `{"sum":42}`)
			again, err := ask(w.ctx(), rpc.producer.GetTask, &pawlv1.GetTaskRequest{TaskId: w.restore(rpc, place).GetTaskId()})
			must(w.T, err)
			is(w, "the parent", again.GetTask().GetParent().GetTaskId(), parent.ID)
			is(w, "its result", string(again.GetTask().GetParent().GetResult()), `{"sum":42}`)
		}}),
		ofTheGateway(story{name: "restoring a task whose key is taken is a conflict", tell: func(w *world) {
			rpc := newRPC(w.T, w.testNode)
			w.enqueue(spec{Payload: `1`, IdempotencyKey: "k", IdempotencyTTL: minute})
			place, _ := w.buried(rpc)
			w.pass(minute)
			other := w.enqueue(spec{Payload: `1`, IdempotencyKey: "k", IdempotencyTTL: minute})
			got := w.restore(rpc, place)
			is(w, "the refusal", []string{got.GetError().GetCode(), got.GetError().GetField()}, []string{"conflict", "idempotency_key"})
			is(w, "what is stored", len(w.list(filter{Queue: "default", States: []string{"ready"}})), 1)
			w.ack(w.claim())
			is(w, "who was run", w.state(other.ID), "succeeded")
			w.pass(minute)
			is(w, "once the key is free", w.restore(rpc, place).GetError(), (*pawlv1.Error)(nil))
		}}),
		ofTheGateway(story{name: "an invalid place in the archive is refused", tell: func(w *world) {
			rpc := newRPC(w.T, w.testNode)
			w.enqueue(spec{})
			place, _ := w.buried(rpc)
			for _, bad := range []string{"", "x", "a:1", "dead-x.jsonl", "dead-\x00.jsonl:1", "\x00:" + place, place + "\x00", "\x00" + place,
				place + "\n", "dead-../../etc/passwd.jsonl:1", "dead-/.jsonl:1", "dead-x.jsonl:0", "dead-x.jsonl:-1", "dead-x.jsonl:+1",
				"dead-x.jsonl:01", "dead-x.jsonl:1e3", "dead-x.jsonl:99999999999999999999", " " + place, "é:" + place} {
				got := w.restore(rpc, bad).GetError()
				is(w, bad, []string{got.GetCode(), got.GetField()}, []string{"invalid_argument", "places"})
			}
			for _, absent := range []string{place + "0", "dead-x.jsonl:1", "n9:" + place} {
				is(w, absent, w.restore(rpc, absent).GetError().GetCode(), "not_found")
			}
			is(w, "with its node's name", w.restore(rpc, "n1:"+place).GetError(), (*pawlv1.Error)(nil))
		}}),
	})
}

// withoutThen drops what the archive's list doesn't show.
func withoutThen(t *pawlv1.Task) *pawlv1.Task {
	t.Then = nil
	return t
}

// buried makes the only waiting task die and be discarded, and finds it in the archive.
func (w *world) buried(rpc *rpc) (place string, t *pawlv1.Task) {
	w.Helper()
	w.fail(w.claim(), failing{Outcome: "dead"})
	ok[counted](w)(w.api.DiscardDead(w.ctx(), selection{Queue: "default", Filter: &filter{}}))
	list, err := rpc.operator.ListArchive(w.ctx(), &pawlv1.ListArchiveRequest{})
	must(w.T, err)
	if len(list.GetItems()) != 1 {
		w.Fatalf("the archive has %v, want one item", list)
	}
	return list.GetItems()[0].GetPlace(), list.GetItems()[0].GetTask()
}

func (w *world) restore(rpc *rpc, place string) *pawlv1.RestoredTask {
	w.Helper()
	got, err := rpc.operator.RestoreArchive(w.ctx(), &pawlv1.RestoreArchiveRequest{Places: []string{place}})
	must(w.T, err)
	return got.GetResults()[0]
}
