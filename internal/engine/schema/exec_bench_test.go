package schema

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// BenchmarkRows encodes and decodes the rows of a task that every verb reads or writes.
func BenchmarkRows(b *testing.B) {
	ready := Exec{State: task.Ready, Priority: task.Normal, Queue: "default", Type: "email", CreatedAt: 1790000000000000,
		RunAt: 1790000000000000, ReadyAt: 1790000000000000, Seq: 12345, Size: 100}
	claimed := ready
	claimed.State, claimed.Fence = task.Claimed, 1
	claimed.Claim = Claim{Nonce: 1 << 62, Worker: "worker-1", At: 1790000000000000, Until: 1790000000000000, RunUntil: 1790000000000000,
		Lease: 30 * time.Second}
	space := make([]byte, 0, 512)
	for name, x := range map[string]*Exec{"ready": &ready, "claimed": &claimed} {
		row := x.Encode()
		b.Run("encode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.AppendTo(space)
			}
		})
		b.Run("decode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeExec(row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
