package claim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// No checkpoint is distinct from an empty one.
func TestCheckpointsRoundTrip(t *testing.T) {
	var nothing []byte
	s := Settling{Calls: []broker.Settle{{Verb: broker.Extend, Extend: broker.Extension{Checkpoint: &nothing}}, {Verb: broker.Extend}}}
	b, err := verb.Encode(&s)
	var settled Settling
	if err != nil || verb.Decode(b, &settled) != nil || settled.Calls[0].Extend.Checkpoint == nil ||
		settled.Calls[1].Extend.Checkpoint != nil {
		t.Errorf("decoded checkpoints are %+v", settled.Calls)
	}
}

// A node ignores a field that it does not know, so that two versions can run together.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	newer := struct {
		Shard uint32
		Later map[string][]int
		Wait  time.Duration
	}{3, map[string][]int{"x": {1}}, time.Second}
	b, err := verb.Encode(&newer)
	var got Claiming
	if err != nil || verb.Decode(b, &got) != nil || got.Shard != 3 || got.Wait != time.Second {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A wait that another node asks for ends, whatever it asks for.
func TestAwaitForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []time.Duration{-1, 0, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			began := time.Now()
			ready, err := AwaitFor(ctx, Claiming{Wait: wait}, func(ctx context.Context, _ uint32, _ broker.ClaimCall) error {
				<-ctx.Done()
				return ctx.Err()
			})
			if took := time.Since(began); ready || err != nil || took != max(wait, 0) {
				t.Errorf("a wait of %s: %t, %v after %s", wait, ready, err, took)
			}
			cancel()
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, v := range []any{TasksClaimed{Out: make([]broker.Claimed, 1), Timeouts: make([]time.Duration, 3)},
		watchFrame{Add: make([]broker.Hold, 2)}} {
		b, err := cbor.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x9f, 0x9f, 0x9f})
	f.Fuzz(func(_ *testing.T, b []byte) {
		var c TasksClaimed
		_ = verb.Decode(b, &c)
		var s ClaimsSettled
		_ = verb.Decode(b, &s)
		var p watchFrame
		_ = verb.Decode(b, &p)
	})
}

func envelope(n uint64) *schema.Envelope {
	return &schema.Envelope{ID: task.NewID(1, 1, n), Namespace: "ns"}
}
