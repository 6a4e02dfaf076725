package bench

import (
	"os"
	"time"
)

// cpuResult is the CPU time per task on both sides.
type cpuResult struct {
	Server float64 `json:"server,omitempty"`
	Client float64 `json:"client"`
}

// spent is the duration of a measurement, with the CPU time that the server and this process used in it.
type spent struct{ took, server, client time.Duration }

// meter measures what is spent from when it is started.
type meter struct {
	run            *run
	began          time.Time
	server, client time.Duration
}

func (r *run) startMeter() meter {
	return meter{r, time.Now(), cpuTime(r.pid), cpuTime(os.Getpid())}
}

func (m meter) stop() spent {
	return spent{time.Since(m.began), cpuTime(m.run.pid) - m.server, cpuTime(os.Getpid()) - m.client}
}

// perTask is nil if the CPU time is unknown.
func (s spent) perTask(n int64) *cpuResult {
	if s.client <= 0 || n == 0 {
		return nil
	}
	of := func(d time.Duration) float64 { return round3(d.Seconds() * 1e6 / float64(n)) }
	return &cpuResult{Server: of(max(s.server, 0)), Client: of(s.client)}
}
