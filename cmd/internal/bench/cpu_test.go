package bench

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestCPUPerTask(t *testing.T) {
	s := spent{took: time.Second, server: 30 * time.Millisecond, client: 20 * time.Millisecond}
	if got := s.perTask(1000); got == nil || *got != (cpuResult{Server: 30, Client: 20}) {
		t.Errorf("the CPU time per task, of 1000 tasks, is %+v", got)
	}
	for _, none := range []*cpuResult{s.perTask(0), spent{server: time.Second}.perTask(1)} {
		if none != nil {
			t.Errorf("an unknown CPU time per task is %+v, want nil", none)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	var before syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		t.Fatal(err)
	}
	used := time.Duration(before.Utime.Nano() + before.Stime.Nano())
	if got := cpuTime(os.Getpid()); got < used-time.Millisecond || got > used+time.Second {
		t.Errorf("cpuTime of this process = %v, want about %v as reported by the system", got, used)
	}
	if got := cpuTime(0); got != 0 {
		t.Errorf("cpuTime of no process = %v, want 0", got)
	}
	m := (&run{flags: flags{pid: os.Getpid()}}).startMeter() // the test is both sides
	if s := m.stop(); s.server <= 0 || s.client <= 0 {
		t.Errorf("in a short measurement the server used %v and the client %v, want more than 0", s.server, s.client)
	}
}
