package enqueue

import (
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// The error of each item arrives with it, those of created members as well as those of a group's new ones.
func TestErrorsRoundTrip(t *testing.T) {
	no := func(field string) error { return task.Invalid(field, "is bad") }
	sent := groupAnswer{Made: broker.GroupMade{Tasks: []broker.Joined{{}, {Err: no("a")}}}, Joined: []broker.Joined{{Err: no("b")}, {}, {Err: no("c")}}}
	b, err := verb.Encode(&sent)
	if err != nil {
		t.Fatal(err)
	}
	var got groupAnswer
	if err := verb.Decode(b, &got); err != nil || len(got.Made.Tasks) != 2 || len(got.Joined) != 3 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for i, want := range []string{"", "a", "b", "", "c"} {
		if e, ok := task.AsError(*got.item(i)); ok != (want != "") || ok && e.Field != want {
			t.Errorf("item %d has the error %v, want one about %q", i, *got.item(i), want)
		}
	}
	one := enqueueAnswer{Out: []broker.Enqueued{{}, {Err: no("a")}}}
	var back enqueueAnswer
	if b, err = verb.Encode(&one); err != nil || verb.Decode(b, &back) != nil || back.Out[0].Err != nil {
		t.Fatalf("got %+v, %v", back, err)
	}
	if e, ok := task.AsError(back.Out[1].Err); !ok || e.Field != "a" {
		t.Errorf("the error arrives as %v", back.Out[1].Err)
	}
}

// Responses of other nodes may have more or fewer errors than items.
func FuzzDecode(f *testing.F) {
	for _, v := range []any{enqueueAnswer{Out: make([]broker.Enqueued, 2)}, groupAnswer{Joined: make([]broker.Joined, 2)}} {
		b, err := cbor.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x9f, 0x9f, 0x9f})
	f.Fuzz(func(_ *testing.T, b []byte) {
		var e enqueueAnswer
		_ = verb.Decode(b, &e)
		var g groupAnswer
		_ = verb.Decode(b, &g)
	})
}
