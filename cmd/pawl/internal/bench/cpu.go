package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// cpuResult is the processor time that a task costs on both sides.
type cpuResult struct {
	Server float64 `json:"server,omitempty"`
	Client float64 `json:"client"`
}

// spent is how long a measurement took, and how much processor time the server and this process used meanwhile.
type spent struct{ took, server, client time.Duration }

// meter measures what is spent from its start on.
type meter struct {
	rig            *rig
	began          time.Time
	server, client time.Duration
}

func (r *rig) startMeter() meter {
	return meter{r, time.Now(), cpuTime(r.pid), cpuTime(os.Getpid())}
}

func (m meter) stop() spent {
	return spent{time.Since(m.began), cpuTime(m.rig.pid) - m.server, cpuTime(os.Getpid()) - m.client}
}

// perTask is nil where processor time can't be known.
func (s spent) perTask(n int64) *cpuResult {
	if s.client <= 0 || n == 0 {
		return nil
	}
	of := func(d time.Duration) float64 { return round3(d.Seconds() * 1e6 / float64(n)) }
	return &cpuResult{Server: of(max(s.server, 0)), Client: of(s.client)}
}

// clockTick is the unit of the times in /proc/PID/stat, the same on all of Linux's architectures.
const clockTick = 10 * time.Millisecond

// cpuTime is how much processor time a process of this machine has used, 0 if that can't be known.
func cpuTime(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the name in parentheses, which may hold spaces. User and system time are fields 14 and 15.
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick
}
