package convert

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/broker/archived"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Every field of an archived task is shown, and every setting of the task counts again when it is restored.
func TestFieldsOfArchivedTasks(t *testing.T) {
	at, id := time.Unix(1e9, 0).UTC(), task.NewID(1, 2, 3).String()
	keep := broker.Period(time.Hour)
	full := func() *broker.ArchivedTask {
		return &broker.ArchivedTask{ArchivedAt: at, Cause: "discard", ID: id, Namespace: "team", Queue: "q", Type: "t", State: "dead", Reason: "r",
			Priority: "high", Key: "k", Tags: []string{"a"}, Headers: map[string]string{"h": "v"}, Payload: []byte("1"), ContentType: "x/y",
			IdempotencyKey: "i", CreatedAt: at, IdempotencyTTL: 2, MaxAttempts: 3, Timeout: 4, ExpiresIn: 5, Retention: &keep, Cost: 7, Failures: 2, Crashes: 3, Releases: 4, Snoozes: 5,
			Retry:  &broker.ArchivedRetry{Initial: 8, Max: 9, Factor: 3, Jitter: 0.5},
			Unique: &broker.ArchivedUnique{Key: "u", States: []string{"ready"}, OnConflict: "replace"},
			Parent: &broker.ArchivedParent{TaskID: id, GroupID: id, Result: []byte("2"), ContentType: "x/z", Omitted: true},
			Then:   [][]byte{task.EncodeSpec(&task.Spec{Type: "next"})}, EndedAt: at,
			Attempts: []broker.ArchivedAttempt{{Attempt: 1, Fence: 2, Worker: "w", StartedAt: at, EndedAt: at, Outcome: "failed", Message: "m", ErrorType: "e", Stack: "s"}}}
	}
	shown := func(a *broker.ArchivedTask) proto.Message { return ArchivedProto(a, "a:1") }
	restored := func(a *broker.ArchivedTask) proto.Message {
		p, err := RestoredSpec(a)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		what   string
		of     func(*broker.ArchivedTask) proto.Message
		except string // fields that it does not have
	}{
		{"an item of the list", shown, " Namespace IdempotencyTTL Then "},
		{"the task that is restored", restored, " ArchivedAt Cause ID Namespace State Reason CreatedAt EndedAt Attempts Failures Crashes Releases Snoozes Parent Unique.OnConflict "},
	} {
		eachPart("", reflect.ValueOf(full()).Elem(), func(path string, part func(reflect.Value) reflect.Value) {
			top, _, _ := strings.Cut(path, ".")
			if strings.Contains(c.except, " "+path+" ") || strings.Contains(c.except, " "+top+" ") {
				return
			}
			without := full()
			part(reflect.ValueOf(without).Elem()).SetZero()
			if proto.Equal(c.of(without), c.of(full())) {
				t.Errorf("%s is the same without the field %s", c.what, path)
			}
		})
	}
}

// eachPart calls fn for each field of a struct and of those in it, with a function that finds the field in another such struct.
func eachPart(path string, v reflect.Value, fn func(path string, part func(reflect.Value) reflect.Value)) {
	for i := range v.NumField() {
		name := strings.TrimPrefix(path+"."+v.Type().Field(i).Name, ".")
		fn(name, func(v reflect.Value) reflect.Value { return v.Field(i) })
		to := func(v reflect.Value) reflect.Value { return v.Field(i).Elem() }
		inner := v.Field(i)
		if inner.Kind() == reflect.Slice {
			to = func(v reflect.Value) reflect.Value { return v.Field(i).Index(0) }
			inner = inner.Index(0)
		} else if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.Type() != reflect.TypeFor[time.Time]() {
			eachPart(name, inner, func(path string, part func(reflect.Value) reflect.Value) {
				fn(path, func(v reflect.Value) reflect.Value { return part(to(v)) })
			})
		}
	}
}

// An archived dead letter is shown as it was before, except for what belongs to its place and to its queue.
func TestArchivedTasksAreShownAsBefore(t *testing.T) {
	at := func(s int) broker.Time { return broker.TimeOf(time.Unix(int64(s), 0)) }
	v := &broker.View{
		Envelope: &schema.Envelope{ID: task.NewID(1, 1, 1), Namespace: "n", Queue: "q", Type: "a", Key: "k", Payload: []byte("1"), IdempotencyKey: "i",
			Retry: &task.Retry{Initial: 1, Factor: 2, Max: 3, Jitter: 0.5}, Timeout: time.Second, Tags: []string{"t"}, Headers: map[string]string{"h": "v"}},
		Exec: &schema.Exec{State: task.Dead, Priority: task.Low, Queue: "q", Type: "a", MaxAttempts: 4, Failures: 2, Crashes: 1, Releases: 3, Snoozes: 4, Fence: 12,
			Reason: "r", Cost: 2, CreatedAt: at(1), EndedAt: at(4), ExpiresAt: at(5), Claim: schema.Claim{Worker: "w"}},
		Settings: task.DefaultSettings(),
		Attempts: []*broker.Attempt{{Fence: 12, Number: 3, Worker: "w", StartedAt: at(2), EndedAt: at(4), Outcome: task.OutcomeFailed, Failure: broker.Failure{Message: "m"}}},
	}
	before, a := TaskProto(v, true), archived.New(v, "discard", time.Unix(5, 0))
	after := ArchivedProto(&a, "a:1").GetTask()
	before.Etag, before.Retention, before.AttemptLog[0].Waited = "", nil, nil
	if !proto.Equal(before, after) {
		t.Errorf("the dead letter was shown as\n%v\nand is shown in the archive as\n%v", before, after)
	}
}

// A restored task takes over all that is known of what it followed.
func TestOriginsOfRestoredTasks(t *testing.T) {
	id := task.NewID(1, 2, 3)
	a := &broker.ArchivedTask{ID: id.String(), EndedAt: time.Unix(1e9, 0)}
	a.Parent = &broker.ArchivedParent{TaskID: id.String(), GroupID: id.String(), Result: []byte("1"), ContentType: "x/y", Omitted: true}
	got, err := OriginOf(a)
	want := Origin{ID: id, EndedAt: a.EndedAt, Parent: &task.Parent{ID: id, Group: id, Result: []byte("1"), ContentType: "x/y", Omitted: true}}
	if err != nil || !reflect.DeepEqual(got, want) || got.Bytes() != 1 {
		t.Errorf("the origin of %+v is %+v, %d bytes, %v", a, got, got.Bytes(), err)
	}
	for i := range reflect.ValueOf(*want.Parent).NumField() {
		if reflect.ValueOf(*want.Parent).Field(i).IsZero() {
			t.Errorf("the test has no value for %s", reflect.TypeFor[task.Parent]().Field(i).Name)
		}
	}
}
