package enqueue

import (
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// travel returns what arrives of a value.
func travel[T any](t *testing.T, sent T) (got T) {
	t.Helper()
	b, err := verb.Encode(&sent)
	if err == nil {
		err = verb.Decode(b, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The error of each item arrives with it, those of created members as well as those of a group's new ones.
func TestErrorsRoundTrip(t *testing.T) {
	no := func(field string) error { return task.Invalid(field, "is bad") }
	made := travel(t, GroupCreated{Made: broker.GroupMade{Tasks: []broker.Joined{{}, {Err: no("a")}}}})
	added := travel(t, MembersAdded{Joined: []broker.Joined{{Err: no("b")}, {}, {Err: no("c")}}})
	one := travel(t, TasksEnqueued{Out: []broker.Enqueued{{}, {Err: no("d")}}})
	for i, c := range []struct {
		got  error
		want string
	}{{made.Made.Tasks[0].Err, ""}, {made.Made.Tasks[1].Err, "a"}, {added.Joined[0].Err, "b"}, {added.Joined[1].Err, ""},
		{added.Joined[2].Err, "c"}, {one.Out[0].Err, ""}, {one.Out[1].Err, "d"}} {
		if e, ok := task.AsError(c.got); ok != (c.want != "") || ok && e.Field != c.want {
			t.Errorf("item %d has the error %v, want one about %q", i, c.got, c.want)
		}
	}
}

// Responses of other nodes may have more or fewer errors than items.
func FuzzDecode(f *testing.F) {
	for _, v := range []any{TasksEnqueued{Out: make([]broker.Enqueued, 2)}, MembersAdded{Joined: make([]broker.Joined, 2)}} {
		b, err := cbor.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x9f, 0x9f, 0x9f})
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = verb.Decode(b, new(TasksEnqueued))
		_ = verb.Decode(b, new(MembersAdded))
		_ = verb.Decode(b, new(GroupCreated))
	})
}
