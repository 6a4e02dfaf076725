package history

import (
	"fmt"
	"testing"
)

// BenchmarkCheck judges about a million calls, by the log, with calls without an answer, and by search alone.
func BenchmarkCheck(b *testing.B) {
	for _, c := range []struct {
		name string
		chances
	}{
		{"answered", chances{tasks: 200_000, clients: 64, shards: 2}},
		{"unknown", chances{tasks: 200_000, clients: 64, shards: 2, lost: 0.02}},
		{"unstamped", chances{tasks: 200_000, clients: 64, shards: 2, lost: 0.02, unstamped: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := run(1, c.chances)
			var r *Report
			for b.Loop() {
				r = Check(w.records, w.options())
			}
			if !r.OK() {
				b.Fatal(r)
			}
			b.ReportMetric(float64(r.Calls)*float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			b.Log(fmt.Sprint(r))
		})
	}
}
