package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// FuzzRows decodes any bytes as each kind of row: an error or a row, never a panic, and a row that is written again is
// read as the same.
func FuzzRows(f *testing.F) {
	keep := time.Minute
	f.Add((&schema.Envelope{Queue: "q", Type: "t", Payload: []byte("p"), Retry: &task.DefaultRetry, Headers: map[string]string{"a": "b"}}).Encode())
	f.Add((&schema.Exec{State: task.Claimed, Queue: "q", Retention: &keep, Claim: schema.Claim{Nonce: 1, Worker: "w"}, Progress: 50}).Encode())
	f.Add((&schema.Attempt{Number: 1, Failure: schema.Failure{Message: "m"}}).Encode())
	f.Add((&schema.Exec{State: task.Ready, Unique: &task.Unique{Key: "k", States: task.Unfinished, OnConflict: task.KeepLast}, Role: schema.RoleNext}).Encode())
	f.Add(schema.UniqueRow{Holder: task.ID{1}, Next: task.ID{2}, Slot: 63}.Encode())
	f.Add(schema.KeyRow{ID: task.ID{1}, Until: 5}.Encode())
	f.Add(schema.ClaimKeyRow{Until: 5, Claims: []schema.ClaimRef{{ID: task.ID{1}, Fence: 2}}}.Encode())
	f.Add((&schema.Counts{Ready: [3]int64{1, 2, 3}}).Encode())
	f.Add(schema.Result{Data: []byte("r")}.Encode())
	f.Add((&plan{id: task.ID{1}, version: 2, Schedule: task.Schedule{Name: "s", Cron: "@daily"}}).encode())
	f.Add((&course{id: task.ID{1}, planned: 5, fires: 6, seq: 7, reason: "r"}).encode())
	f.Add((&LedgerEntry{Planned: 5, Outcome: TickFired, Task: task.ID{1}}).encode())
	f.Add((&OutboxMessage{Spec: task.Spec{Type: "t"}, From: Origin{Schedule: "s"}}).encode())
	f.Add((&OutboxMessage{Spec: task.Spec{Type: "t"}, From: Origin{Parent: task.ID{1}, N: 2}}).encode())
	f.Add(schema.EncodeFollowers([]schema.Follower{newFollower("", &task.Spec{Type: "t"}), {Fate: schema.FateBorn, ID: task.ID{1}}}))
	f.Add((&schema.Exec{State: task.Ready, Links: &schema.Links{Followed: true, Group: task.ID{1}, Ref: task.ID{2}, Turn: 3}}).Encode())
	f.Add((&schema.Envelope{Queue: "q", Parent: &task.Parent{ID: task.ID{1}, Result: []byte("r")}}).Encode())
	f.Add(onceRow{done: true, holder: OnceHolder{ID: task.ID{1}, Fence: 2, Nonce: 3, Worker: "w"}, result: []byte("7"), until: 5}.encode())
	f.Add((&breaker{seen: window{at: 7, parts: [windowParts]tally{{3, 1}}}, lastError: "down"}).encode())
	f.Add((&breaker{state: BreakerProbing, since: 5, opened: 2, passed: 1, probe: task.ID{1}, cause: tally{4, 3}, over: time.Minute}).encode())
	f.Add((&Operation{Spec: OperationSpec{Action: task.Move, Rate: 2.5}, State: OperationPaused, Why: "w", StoppedBy: task.Author{Name: "lena"},
		Tally:  Tally{Matched: 3, Done: 1, Failed: 1, Skipped: []Skipped{{task.SkipChanged, 1}}, Errors: []TaskError{{task.ID{1}, "m"}}},
		Course: Course{Step: 7, Shard: 2, Cursor: make([]byte, 16)}}).encode())
	f.Add((&stepRow{step: 5, answer: StepAnswer{Swept: true, Away: 3}, at: 6, until: 7, away: 3, arrived: Tally{Done: 2}}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		same := func(first []byte, err error, again func([]byte) ([]byte, error)) {
			if err != nil {
				return
			}
			if second, err := again(first); err != nil || !bytes.Equal(first, second) {
				t.Errorf("%x is read as %x: %v", first, second, err)
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
		result := func(b []byte) ([]byte, error) { r, err := schema.DecodeResult(b); return r.Encode(), err }
		said := func(b []byte) ([]byte, error) { p, err := decodePlan(b); return p.encode(), err }
		at := func(b []byte) ([]byte, error) { c, err := decodeCourse(b); return c.encode(), err }
		entry := func(b []byte) ([]byte, error) {
			e, err := decodeTick(1, b)
			_ = e.Outcome.String()
			return e.encode(), err
		}
		deleted := func(b []byte) ([]byte, error) { g, err := decodeGone(b); return g.encode(), err }
		message := func(b []byte) ([]byte, error) { p, err := decodeMessage(task.ID{1}, b); return p.encode(), err }
		watched := func(b []byte) ([]byte, error) {
			at, err := decodeBreaker("t", b)
			if err != nil {
				return nil, err
			}
			return at.encode(), nil
		}
		once := func(b []byte) ([]byte, error) { o, err := decodeOnce(b); return o.encode(), err }
		operation := func(b []byte) ([]byte, error) { o, err := decodeOperation(task.ID{1}, b); return o.encode(), err }
		step := func(b []byte) ([]byte, error) { s, err := decodeStep(b); return s.encode(), err }
		for _, form := range []func([]byte) ([]byte, error){envelope, exec, attempt, key, claimKey, tally, unique, result, said, at, entry, deleted, message, once, watched, operation, step} {
			first, err := form(row)
			same(first, err, form)
		}
		_, _ = schema.DecodeLane(row)
		_, _, _ = schema.DecodeReady(row)
		_, _ = schema.ParseDeadline(row)
		_, _ = schema.ParseLane(row)
		_, _ = task.DecodeQueueConfig(row)
	})
}
