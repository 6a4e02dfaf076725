package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ownServer is a server for one case, in a process of its own.
type ownServer struct {
	cmd       *exec.Cmd
	dir, addr string
	log       bytes.Buffer
}

// startServer runs pawl as a server.
func startServer(ctx context.Context, below string) (*ownServer, error) {
	exe, err := program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(below, "pawl-bench-")
	if err != nil {
		return nil, err
	}
	s := &ownServer{dir: dir}
	s.cmd = exec.Command(exe, "serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--log-level", "warn", "--sqs")
	s.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PAWL_") }) // settings of another server
	s.cmd.Stderr = &s.log
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop := context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() }) // so that waiting for the line ends too
	defer stop()
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, rest, ok := strings.Cut(line, " address="); ok {
		s.addr, _, _ = strings.Cut(rest, " ")
		return s, nil
	}
	s.stop()
	return nil, fmt.Errorf("the server did not start: %s", strings.TrimSpace(s.log.String()))
}

// program returns the path of pawl: beside this program, or else on the PATH.
func program() (string, error) {
	if own, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(own), "pawl")); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("pawl")
	if err != nil {
		return "", errors.New("pawl is neither beside this program nor on the PATH: install it, or name a server with --server")
	}
	return path, nil
}

// stopTimeout is for a server that has nothing to wait for.
const stopTimeout = 5 * time.Second

func (s *ownServer) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopTimeout, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	kill.Stop()
	_ = os.RemoveAll(s.dir)
}

// residentMB returns the resident memory of a process in MB, or 0 if it is unknown.
func residentMB(pid int) float64 {
	if pid == 0 {
		return 0
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		var kb float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kb); n == 1 {
			return round3(kb / 1024)
		}
	}
	return 0
}

// restTime is how long an idle server takes to settle.
const restTime = 6 * time.Second

// residentAtRest returns the residentMB of a server that has not been called for restTime.
func residentAtRest(ctx context.Context, pid int) (float64, error) {
	if pid == 0 {
		return 0, nil
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(restTime):
		return residentMB(pid), nil
	}
}
