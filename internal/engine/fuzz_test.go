package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// FuzzRows decodes any bytes as each kind of row: an error or a row, never a panic, and a row that is written again is
// read as the same.
func FuzzRows(f *testing.F) {
	keep := time.Minute
	f.Add((&Envelope{Queue: "q", Type: "t", Payload: []byte("p"), Retry: &task.DefaultRetry, Headers: map[string]string{"a": "b"}}).encode())
	f.Add((&Exec{State: task.Claimed, Queue: "q", Retention: &keep, Claim: Claim{Nonce: 1, Worker: "w"}, Progress: 50}).encode())
	f.Add((&Attempt{Number: 1, Failure: Failure{Message: "m"}}).encode())
	f.Add((&Exec{State: task.Ready, Unique: &task.Unique{Key: "k", States: task.Unfinished, OnConflict: task.KeepLast}, Role: Next}).encode())
	f.Add(uniqueRow{holder: task.ID{1}, next: task.ID{2}, slot: 63}.encode())
	f.Add(keyRow{id: task.ID{1}, until: 5}.encode())
	f.Add(claimKeyRow{until: 5, claims: []claimRef{{task.ID{1}, 2}}}.encode())
	f.Add((&counts{ready: [3]int64{1, 2, 3}}).encode())
	f.Add(Result{Data: []byte("r")}.encode())
	f.Add((&plan{id: task.ID{1}, version: 2, Schedule: task.Schedule{Name: "s", Cron: "@daily"}}).encode())
	f.Add((&course{id: task.ID{1}, planned: 5, fires: 6, seq: 7, reason: "r"}).encode())
	f.Add((&LedgerEntry{Planned: 5, Outcome: TickFired, Task: task.ID{1}}).encode())
	f.Add((&OutboxMessage{Spec: task.Spec{Type: "t"}, From: Origin{Schedule: "s"}}).encode())
	f.Add((&OutboxMessage{Spec: task.Spec{Type: "t"}, From: Origin{Parent: task.ID{1}, N: 2}}).encode())
	f.Add(encodeFollowers([]Follower{newFollower("", &task.Spec{Type: "t"}), {Fate: FateBorn, ID: task.ID{1}}}))
	f.Add((&Exec{State: task.Ready, Ties: &Ties{Followed: true, Group: task.ID{1}, Ref: task.ID{2}, Turn: 3}}).encode())
	f.Add((&Envelope{Queue: "q", Parent: &task.Parent{ID: task.ID{1}, Result: []byte("r")}}).encode())
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
			e, err := decodeEnvelope("ns", task.ID{1}, b)
			return e.encode(), err
		}
		exec := func(b []byte) ([]byte, error) { x, err := decodeExec(b); return x.encode(), err }
		attempt := func(b []byte) ([]byte, error) { a, err := decodeAttempt(1, b); return a.encode(), err }
		key := func(b []byte) ([]byte, error) { k, err := decodeKey(b); return k.encode(), err }
		claimKey := func(b []byte) ([]byte, error) { c, err := decodeClaimKey(b); return c.encode(), err }
		tally := func(b []byte) ([]byte, error) { c, err := decodeCounts(b); return c.encode(), err }
		unique := func(b []byte) ([]byte, error) { u, err := decodeUnique(b); return u.encode(), err }
		result := func(b []byte) ([]byte, error) { r, err := decodeResult(b); return r.encode(), err }
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
		_, _ = decodeLane(row)
		_, _, _ = decodeReady(row)
		_, _ = parseDeadline(row)
		_, _ = parseLane(row)
		_, _ = task.DecodeQueueConfig(row)
	})
}
