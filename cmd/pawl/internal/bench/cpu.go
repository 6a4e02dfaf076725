package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
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

// clockTick is the unit of the times in /proc/PID/stat, the same on all Linux architectures.
const clockTick = 10 * time.Millisecond

// cpuTime returns the CPU time that a process on this machine has used, or 0 if it is unknown.
func cpuTime(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the command name in parentheses, which may contain spaces. User and system time are fields 14 and 15.
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick
}
