package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// FuzzRows decodes any bytes as each kind of row: the result is an error or a row, never a panic, and a row survives encoding and decoding.
func FuzzRows(f *testing.F) {
	keep := time.Minute
	f.Add((&schema.Envelope{Queue: "q", Type: "t", Payload: []byte("p"), Retry: &task.DefaultRetry, Headers: map[string]string{
		"a": "b"}}).Encode())
	f.Add((&schema.Exec{State: task.Claimed, Queue: "q", Retention: &keep, Claim: schema.Claim{Nonce: 1, Worker: "w"},
		Progress: 50}).Encode())
	f.Add((&schema.Attempt{Number: 1, Failure: schema.Failure{Message: "m"}}).Encode())
	f.Add((&schema.Exec{State: task.Ready, Unique: &task.Unique{Key: "k", States: task.Unfinished, OnConflict: task.KeepLast},
		Role: schema.RoleNext}).Encode())
	f.Add((&schema.Exec{State: task.Ready, Key: "k", Order: 7, Behind: true}).Encode())
	f.Add(schema.FirstRow{Order: 7, ID: task.ID{1}, Alone: true}.Encode())
	f.Add(schema.UniqueRow{Holder: task.ID{1}, Next: task.ID{2}}.Encode())
	f.Add(schema.KeyRow{ID: task.ID{1}, Until: 5}.Encode())
	f.Add(schema.ClaimKeyRow{Until: 5, Claims: []schema.ClaimRef{{ID: task.ID{1}, Fence: 2}}}.Encode())
	f.Add((&schema.Counts{Ready: [3]int64{1, 2, 3}}).Encode())
	f.Add(schema.Result{Data: []byte("r")}.Encode())
	f.Add((&schema.Message{Spec: task.Spec{Type: "t"}, From: schema.Origin{Schedule: "s"}}).Encode())
	f.Add((&schema.Message{Spec: task.Spec{Type: "t"}, From: schema.Origin{Parent: task.ID{1}, N: 2}}).Encode())
	f.Add(schema.EncodeFollowers([]schema.Follower{{Type: "t", Spec: task.EncodeSpec(&task.Spec{Type: "t"})},
		{State: schema.FollowerCreated, ID: task.ID{1}}}))
	f.Add((&schema.Exec{State: task.Ready, Links: &schema.Links{Followed: true, Group: task.ID{1}, Ref: task.ID{2}, Revision: 3}}).Encode())
	f.Add((&schema.Envelope{Queue: "q", Parent: &task.Parent{ID: task.ID{1}, Result: []byte("r")}}).Encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		same := func(first []byte, err error, again func([]byte) ([]byte, error)) {
			if err != nil {
				return
			}
			if second, err := again(first); err != nil || !bytes.Equal(first, second) {
				t.Errorf("%x was decoded as %x: %v", first, second, err)
			}
		}
		envelope := func(b []byte) ([]byte, error) {
			e, err := schema.DecodeEnvelope("ns", task.ID{1}, b)
			return e.Encode(), err
		}
		exec := func(b []byte) ([]byte, error) { x, err := schema.DecodeExec(b); return x.Encode(), err }
		attempt := func(b []byte) ([]byte, error) { a, err := schema.DecodeAttempt(1, b); return a.Encode(), err }
		key := func(b []byte) ([]byte, error) { k, err := schema.DecodeKey(b); return k.Encode(), err }
		claimKey := func(b []byte) ([]byte, error) { c, err := schema.DecodeClaimKey(b); return c.Encode(), err }
		tally := func(b []byte) ([]byte, error) { c, err := schema.DecodeCounts(b); return c.Encode(), err }
		unique := func(b []byte) ([]byte, error) { u, err := schema.DecodeUnique(b); return u.Encode(), err }
		first := func(b []byte) ([]byte, error) { o, err := schema.DecodeFirst(b); return o.Encode(), err }
		result := func(b []byte) ([]byte, error) { r, err := schema.DecodeResult(b); return r.Encode(), err }
		message := func(b []byte) ([]byte, error) { p, err := schema.DecodeMessage(task.ID{1}, b); return p.Encode(), err }
		for _, form := range []func([]byte) ([]byte, error){envelope, exec, attempt, key, claimKey, tally, unique, first, result, message} {
			once, err := form(row)
			same(once, err, form)
		}
		_, _ = schema.DecodeLane(row)
		_, _, _ = schema.DecodeReady(row)
		if d, ok := schema.ParseDeadline(row, nil); ok && !bytes.Equal(d.Key()[1:], row[1:]) {
			t.Errorf("deadline %x was decoded as %+v", row, d)
		}
		_, _ = schema.ParseDeadline(schema.DeadlineKey(1, schema.OnLease, "ns", nil), row)
		_, _ = schema.ParseLane(row)
		_, _ = task.DecodeQueueConfig(row)
	})
}
