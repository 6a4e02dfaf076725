package history

import (
	"fmt"
	"testing"
)

// BenchmarkCheck checks about a million calls (a tenth with -short): with the log, with unanswered calls, and by search alone.
func BenchmarkCheck(b *testing.B) {
	tasks := 200_000
	if testing.Short() {
		tasks /= 10
	}
	for _, c := range []struct {
		name string
		chances
	}{
		{"answered", chances{tasks: tasks, clients: 64, shards: 2}},
		{"unknown", chances{tasks: tasks, clients: 64, shards: 2, lost: 0.02}},
		{"unstamped", chances{tasks: tasks, clients: 64, shards: 2, lost: 0.02, unstamped: true}},
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
