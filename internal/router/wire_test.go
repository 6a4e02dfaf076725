package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// filler creates values in which every field is set, or, if bare, every pointer points to a zero value.
type filler struct {
	t    *testing.T
	rand *rand.Rand
	bare bool
}

var (
	timeType  = reflect.TypeFor[time.Time]()
	errorType = reflect.TypeFor[error]()
)

func (f *filler) fill(v reflect.Value, path string) {
	switch {
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(time.UnixMicro(f.rand.Int64N(1 << 52)).UTC()))
		return
	case v.Type() == errorType:
		if !f.bare {
			e := &task.Error{}
			f.fill(reflect.ValueOf(e).Elem(), path)
			v.Set(reflect.ValueOf(e))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.Name == "_" { // it controls the encoding, and holds nothing
				continue
			}
			if !field.IsExported() {
				f.t.Errorf("%s.%s is not exported: it would be lost on the way to another node", path, field.Name)
				continue
			}
			f.fill(v.Field(i), path+"."+field.Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		if f.bare || strings.Count(path, ".Then") > 2 { // a task in a task in a task
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i), path)
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), path)
		}
	case reflect.Map:
		if f.bare {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, path)
			f.fill(value, path)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("%d \x00 ü \xff", f.rand.Int()))
	case reflect.Bool:
		v.SetBool(!f.bare)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(f.rand.Int64() >> (64 - min(v.Type().Bits(), 63)))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + f.rand.Uint64()>>(64-v.Type().Bits())>>1)
	case reflect.Float64:
		v.SetFloat(f.rand.NormFloat64())
	default:
		f.t.Errorf("%s is a %s: the test does not know how to fill it", path, v.Kind())
	}
}

// onTheWay is a value that is sent, how, and what arrives.
type onTheWay struct {
	sent, kept, got any // pointers to values of one type
	send            func() error
}

// travels sends values over the wire and compares what arrives.
func travels(t *testing.T, name string, make func(t *testing.T) onTheWay) {
	for _, bare := range []bool{false, true} {
		if bare && strings.HasSuffix(name, "answer") {
			continue // an answer that is an empty list may arrive as none
		}
		seeds := uint64(20)
		if testing.Short() {
			seeds = 2
		}
		for seed := range seeds {
			w := make(t)
			for _, to := range []any{w.sent, w.kept} {
				f := &filler{t: t, rand: rand.New(rand.NewPCG(seed, 1)), bare: bare}
				f.fill(reflect.ValueOf(to).Elem(), name)
			}
			if err := w.send(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if bare {
				compareBare(t, name, reflect.ValueOf(w.kept).Elem(), reflect.ValueOf(w.got).Elem())
				continue
			}
			forgetBeside(reflect.ValueOf(w.kept))
			forgetBeside(reflect.ValueOf(w.got))
			if !reflect.DeepEqual(w.kept, w.got) {
				t.Fatalf("%s: sent %+v\ngot %+v", name, w.kept, w.got)
			}
		}
	}
}

// plain is a value that travels without a call.
func plain[T any](*testing.T) onTheWay {
	var sent, kept, got T
	return onTheWay{&sent, &kept, &got, func() error {
		b, err := verb.Encode(&sent)
		if err != nil {
			return err
		}
		return verb.Decode(b, &got)
	}}
}

// request and answer are those of a call.
func request(make func() verb.Call) func(*testing.T) onTheWay {
	return func(*testing.T) onTheWay {
		sent, kept, got := make(), make(), make()
		return onTheWay{sent.Request(), kept.Request(), got.Request(), func() error {
			b, err := sent.EncodeRequest()
			if err != nil {
				return err
			}
			return got.DecodeRequest(b)
		}}
	}
}

func answer(make func() verb.Call) func(*testing.T) onTheWay {
	return func(t *testing.T) onTheWay {
		sent, kept, got := make(), make(), make()
		return onTheWay{sent.Answer(), kept.Answer(), got.Answer(), func() error {
			b, err := sent.EncodeReply(nil)
			if err != nil {
				return err
			}
			raw, err := got.DecodeReply(b)
			if f, bad := readFault(raw); f != nil || bad != nil {
				t.Errorf("no error arrives as %v, %v", f, bad)
			}
			return err
		}}
	}
}

// forgetBeside clears what an answer carries only for the transport.
func forgetBeside(v reflect.Value) {
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return
	}
	for _, name := range []string{"Faults", "Timeouts"} {
		if f := v.Elem().FieldByName(name); f.IsValid() {
			f.SetZero()
		}
	}
}

// compareBare checks that a pointer to an empty value does not arrive as nil, nor a nil list as an empty one.
func compareBare(t *testing.T, path string, want, got reflect.Value) {
	switch want.Kind() {
	case reflect.Struct:
		if want.Type() == timeType {
			return
		}
		for i := range want.NumField() {
			if name := want.Type().Field(i).Name; name != "Faults" && name != "Timeouts" {
				compareBare(t, path+"."+name, want.Field(i), got.Field(i))
			}
		}
	case reflect.Pointer:
		if got.IsNil() {
			t.Errorf("%s: a pointer to an empty value arrives as nil", path)
		} else {
			compareBare(t, path, want.Elem(), got.Elem())
		}
	case reflect.Slice, reflect.Map:
		if got.Len() != want.Len() {
			t.Errorf("%s: an empty list arrives as %v", path, got)
		}
	}
}

// everyName lists what a router serves.
func everyName() []string {
	return slices.Concat(broker.Verbs.Names(), cluster.Verbs.Names(), slices.Collect(maps.Keys(served)))
}

// Whatever fields the broker's types get, they arrive at the other node.
func TestEverythingTravels(t *testing.T) {
	for _, name := range everyName() {
		make := func() verb.Call { return (&Router{}).callNamed(name) }
		travels(t, name+" request", request(make))
		travels(t, name+" answer", answer(make))
	}
	travels(t, "postings", plain[watchFrame])
	travels(t, "notices", plain[notices])
}

// reply is the answer as nodes of all releases encode and decode it.
type reply[R any] struct {
	Out   *R
	Fault *fault
}

// A selection by an empty list of ids is not one by filter, and an empty payload is not a missing one.
func TestNothingIsNotNone(t *testing.T) {
	var nothing []byte
	a := broker.TaskCommand{Edit: broker.Edit{Payload: &nothing}}
	b, err := verb.Encode(&a)
	var got broker.TaskCommand
	if err != nil || verb.Decode(b, &got) != nil || got.Edit.Payload == nil {
		t.Errorf("an empty payload arrives as %v", got.Edit.Payload)
	}
	s := settleArgs{Calls: []broker.Settle{{Verb: broker.Extend, Extend: broker.Extension{Checkpoint: &nothing}}, {Verb: broker.Extend}}}
	b, err = verb.Encode(&s)
	var settled settleArgs
	if err != nil || verb.Decode(b, &settled) != nil || settled.Calls[0].Extend.Checkpoint == nil || settled.Calls[1].Extend.Checkpoint != nil {
		t.Errorf("checkpoints arrive as %+v", settled.Calls)
	}
	for _, ids := range [][]task.ID{nil, {}} {
		a := broker.OnDead{Selection: broker.Selection{IDs: ids}}
		b, _ := verb.Encode(&a)
		var got broker.OnDead
		if err := verb.Decode(b, &got); err != nil || (got.Selection.IDs == nil) != (ids == nil) {
			t.Errorf("ids %#v arrive as %#v", ids, got.Selection.IDs)
		}
	}
}

func TestErrorsTravel(t *testing.T) {
	way := func(err error) error {
		a := reply[int]{Fault: faultOf(err)}
		b, bad := verb.Encode(&a)
		var got reply[int]
		if bad == nil {
			bad = verb.Decode(b, &got)
		}
		if bad != nil {
			t.Fatal(bad)
		}
		return got.Fault.err(1, 2)
	}
	full := &task.Error{Code: task.CodeStaleClaim, Message: "m", Reason: task.StaleReclaimed, Field: "f", Holder: "w7", State: task.Claimed, RetryAfter: time.Second}
	if got, ok := task.AsError(way(fmt.Errorf("wrapped: %w", full))); !ok || *got != *full {
		t.Errorf("a refusal arrives as %+v", got)
	}
	var notLeader *broker.NotLeader
	if err := way(&broker.NotLeader{Shard: 3, Node: 2}); !errors.As(err, &notLeader) || *notLeader != (broker.NotLeader{Shard: 3, Node: 2}) {
		t.Errorf("elsewhere arrives as %v", err)
	}
	var to *moved
	if err := way(&moved{Name: "q", Shard: 3, Config: task.QueueConfig{Version: 7}}); !errors.As(err, &to) || to.Shard != 3 || to.Config.Version != 7 {
		t.Errorf("moved arrives as %v", err)
	}
	err := way(broker.Unknown("shard %d", 3))
	if e, ok := task.AsError(err); !errors.Is(err, broker.ErrUnknown) || !ok || e.Code != task.CodeUnavailable {
		t.Errorf("unknown arrives as %v", err)
	}
	for _, cut := range []error{context.Canceled, fmt.Errorf("x: %w", context.DeadlineExceeded)} {
		if err := way(cut); !errors.Is(err, broker.ErrUnknown) || !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("%v arrives as %v", cut, err)
		}
	}
	if err := way(errors.New("secret")); err == nil || errors.Is(err, broker.ErrUnknown) || errors.Is(err, task.ErrUnavailable) {
		t.Errorf("an inner error arrives as %v", err)
	}
	if way(nil) != nil {
		t.Error("no error arrives as one")
	}
}

// Nodes of two versions: a field that one does not know is ignored.
func TestUnknownFieldsArePassedOver(t *testing.T) {
	newer := struct {
		Shard uint32
		Later map[string][]int
		Wait  time.Duration
	}{3, map[string][]int{"x": {1}}, time.Second}
	b, err := verb.Encode(&newer)
	var got awaitArgs
	if err != nil || verb.Decode(b, &got) != nil || got.Shard != 3 || got.Wait != time.Second {
		t.Errorf("got %+v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range []any{enqueueAnswer{Out: make([]broker.Enqueued, 2)}, claimAnswer{Out: make([]broker.Claimed, 1), Timeouts: make([]time.Duration, 3)}, watchFrame{Add: make([]broker.Hold, 2)}} {
		b, err := cbor.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x9f, 0x9f, 0x9f})
	f.Fuzz(func(t *testing.T, b []byte) {
		if raw, err := enqueue.call(1, enqueueArgs{}).DecodeReply(b); err == nil {
			if f, err := readFault(raw); err == nil && f != nil {
				_ = f.err(1, 2)
			}
		}
		var e enqueueAnswer
		_ = verb.Decode(b, &e)
		var c claimAnswer
		_ = verb.Decode(b, &c)
		var p watchFrame
		_ = verb.Decode(b, &p)
		var q []queues.Queue
		_ = verb.Decode(b, &q)
	})
}
