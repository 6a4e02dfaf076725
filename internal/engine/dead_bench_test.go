package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// deadIn is the number of queues in a benchmark of dead letters, and of dead letters in each.
type deadIn struct{ queues, each int }

func (d deadIn) String() string { return fmt.Sprintf("%dx%d", d.queues, d.each) }

// fill makes tasks die of errors that differ only in numbers and ids, and one in ten of another error.
func (d deadIn) fill(w *World) {
	payload := benchPayload()
	for q := range d.queues {
		queue := fmt.Sprintf("team-%04d", q)
		w.PutQueue(queue, task.DefaultSettings(), false)
		w.Now += store.Time(time.Second / time.Microsecond)
		w.enqueueInto(queue, d.each, payload)
		got := w.Claim(ClaimRequest{Queues: []Share{{Queue: queue}}, Max: d.each})
		w.Round(func(r *Round) {
			for i, t := range got {
				f := FailRequest{Action: FailDead, Failure: schema.Failure{Type: "*net.OpError",
					Message: fmt.Sprintf("dial tcp 10.0.%d.%d:5432: connect: connection refused (order %s)", q%256, i%256, t.ID),
					Stack:   "main.go:1"}}
				if i%10 == 9 {
					f.Failure.Message = `the answer was "sold out"`
				}
				if _, err := Fail(r, Hold{Namespace: "default", ID: t.ID, Token: t.Token}, f); err != nil {
					w.T.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGroupDead counts the dead letters of all queues by error.
func BenchmarkGroupDead(b *testing.B) {
	for _, d := range []deadIn{{10, Size(1000)}, {Size(2000), 5}, {Size(2000), 10}} {
		b.Run(d.String(), func(b *testing.B) {
			w := BenchWorld(b)
			d.fill(w)
			for b.Loop() {
				groups, _ := query.GroupDead(w.Store, "default", "", task.Scope{}, task.Dead, w.Now)
				if len(groups) != 2 && d.each >= 10 {
					b.Fatalf("got %d groups of errors", len(groups))
				}
			}
		})
	}
}

func BenchmarkNormalize(b *testing.B) {
	const message = "dial tcp 10.0.7.19:5432: connect: connection refused (order 01890a5d-ac96-774b-bcce-b302099a8057)"
	for b.Loop() {
		if fingerprint.Normalize(message) != "dial tcp *: connect: connection refused (order *)" {
			b.Fatal(fingerprint.Normalize(message))
		}
	}
}
