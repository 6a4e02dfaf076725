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
	f.Add(keyRow{id: task.ID{1}, until: 5}.encode())
	f.Add(claimKeyRow{until: 5, claims: []claimRef{{task.ID{1}, 2}}}.encode())
	f.Add((&counts{ready: [3]int64{1, 2, 3}}).encode())
	f.Add(Result{Data: []byte("r")}.encode())
	f.Add(onceRow{done: true, holder: OnceHolder{ID: task.ID{1}, Fence: 2, Nonce: 3, Worker: "w"}, result: []byte("7"), until: 5}.encode())
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
		result := func(b []byte) ([]byte, error) { r, err := decodeResult(b); return r.encode(), err }
		once := func(b []byte) ([]byte, error) { o, err := decodeOnce(b); return o.encode(), err }
		for _, form := range []func([]byte) ([]byte, error){envelope, exec, attempt, key, claimKey, tally, result, once} {
			first, err := form(row)
			same(first, err, form)
		}
		_, _, _ = decodeLane(row)
		_, _, _ = decodeReady(row)
		_, _ = parseDeadline(row)
		_, _ = parseLane(row)
		_, _ = task.DecodeQueueConfig(row)
	})
}
