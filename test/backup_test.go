package test

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawlq/pawl"
)

// noSpace is the kernel's message for a full disk.
const noSpace = "no space left on device"

// backedUp returns a server under load that has 16 MiB of incompressible tasks.
func backedUp(t *testing.T) (*server, *workload) {
	t.Helper()
	s := newServer(t)
	s.start()
	w := newWorkload(t, s.addr, "a", "b")
	w.flow(&w.acked)
	client := s.dial()
	for range 16 {
		tasks := largeTasks(16)
		for _, item := range tasks {
			_, _ = rand.Read(item.Args.(pawl.RawTask).Payload) // never fails
		}
		if _, err := client.EnqueueBatch(t.Context(), tasks); err != nil {
			t.Fatal(err)
		}
	}
	return s, w
}

// backUp runs pawl backup to its end. It retries until the node has noticed that the previous backup was aborted.
func (s *server) backUp(file string, to *os.File) (cmd *exec.Cmd) {
	s.t.Helper()
	eventually(s.t, "the node makes no other backup", startLimit, func() bool {
		cmd = command(s.t, "backup", "--server", s.addr, file)
		if to != nil {
			cmd.Stdout = to
		}
		_ = cmd.Run() // the caller looks at ProcessState
		return !strings.Contains(fmt.Sprint(cmd.Stderr), "making another backup")
	})
	return cmd
}

// TestBackupDiskFull backs up a server to a disk that is too small. Nothing is left there, or, of a backup through
// standard output, nothing that can be restored; the server keeps working; and once there is room the backup succeeds.
func TestBackupDiskFull(t *testing.T) {
	t.Parallel()
	d := mountDisk(t, 4)
	s, w := backedUp(t)
	file := filepath.Join(d.path, "backup")
	fails(t, s.backUp(file, nil), noSpace, filepath.Join(d.path, ".backup.unfinished-"))
	d.has()
	w.flow(&w.acked)

	cut, err := os.Create(filepath.Join(d.path, "cut"))
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	fails(t, s.backUp("-", cut), noSpace)
	d.has("cut")
	data := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{{"restore", "--check", cut.Name()}, {"restore", cut.Name(), "--data", data}} {
		fails(t, command(t, args...), cut.Name(), "it is truncated")
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("a restore of a truncated backup created %s: %v", data, err)
	}

	d.grow(64)
	if cmd := s.backUp(file, nil); !cmd.ProcessState.Success() {
		t.Fatalf("the backup failed although the disk has room: %s", cmd.Stderr)
	}
	does(t, "restore", "--check", file)
	w.flow(&w.acked)
	w.finish()
	w.check()
}

// has checks that the disk has these files and no others.
func (d *disk) has(want ...string) {
	d.t.Helper()
	entries, err := os.ReadDir(d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		d.t.Errorf("the disk has the files %q, want %q", names, want)
	}
}

// TestRestoreDiskFull fills the disk while a backup is being restored to it. No server starts on the result, and the
// restore can be repeated: without room it is refused, and with room everything is restored.
func TestRestoreDiskFull(t *testing.T) {
	t.Parallel()
	d := mountDisk(t, 2*minFree)
	s, w := backedUp(t)
	w.finish()
	file := filepath.Join(t.TempDir(), "backup")
	does(t, "backup", "--server", s.addr, file)
	s.kill()
	s.data = filepath.Join(d.path, "data")

	d.fill(minFree / 2)
	s.refusesRestore(file, "MiB free", "MiB are needed")
	d.empty()
	eventually(t, "the disk is full before a restore ends", startLimit, func() bool { return d.fillsDuring(s, file) })
	s.refusesRestore(file, "MiB free", "MiB are needed")
	s.restoring()
	d.empty()

	does(t, "restore", file, "--data", s.data)
	s.start()
	w.check()
}

// refusesRestore checks that a restore to the server's directory fails with an error that contains the given texts.
func (s *server) refusesRestore(file string, wants ...string) {
	s.t.Helper()
	fails(s.t, command(s.t, "restore", file, "--data", s.data), append(wants, s.data)...)
}

// restoring checks that no server starts on what a restore has left.
func (s *server) restoring() {
	s.t.Helper()
	if said, want := s.refuses(), "a restore into "+s.data+" did not finish"; !strings.Contains(said, want) {
		s.t.Errorf("a start after a failed restore printed %q, want %q", said, want)
	}
}

// fillsDuring fills the disk after a restore has found enough room there and before it ends; false if it was too late.
func (d *disk) fillsDuring(s *server, file string) bool {
	d.t.Helper()
	cmd := command(d.t, "restore", file, "--data", s.data)
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	for !restoringIn(s.data) {
		select {
		case <-ended:
			d.t.Fatalf("the restore ended before it wrote anything: %s", cmd.Stderr)
		case <-time.After(time.Millisecond):
		}
	}
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	d.fill(0)
	_ = cmd.Process.Signal(syscall.SIGCONT)
	<-ended
	if cmd.ProcessState.Success() {
		d.empty()
		if err := os.RemoveAll(s.data); err != nil {
			d.t.Fatal(err)
		}
		return false
	}
	fails(d.t, cmd, noSpace, s.data)
	d.t.Log(cmd.Stderr)
	return true
}

// restoringMark is the file that marks an unfinished restore.
const restoringMark = "RESTORING"

func restoringIn(data string) bool {
	_, err := os.Stat(filepath.Join(data, restoringMark))
	return err == nil
}

// TestRestoreWithoutInodes restores to disks with an increasing number of inodes: after each failure no server starts
// on the result, and the next restore starts over. Then it does the same with the server. Of the files that don't fit,
// every other one is tried, and in a long run each.
func TestRestoreWithoutInodes(t *testing.T) {
	t.Parallel()
	d := mountDisk(t, 2*minFree)
	s := newServer(t)
	s.start()
	w := newWorkload(t, s.addr, "a", "b")
	w.flow(&w.acked)
	w.finish()
	file := filepath.Join(t.TempDir(), "backup")
	does(t, "backup", "--server", s.addr, file)
	s.kill()
	s.data = filepath.Join(d.path, "data")

	failed, step := 0, 2
	if long() {
		step = 1
	}
	for inodes := 3 + mathrand.IntN(step); !t.Failed(); inodes += step { // two directories and the lock
		d.limit(inodes)
		cmd := command(t, "restore", file, "--data", s.data)
		if cmd.Run() == nil {
			break
		}
		fails(t, cmd, noSpace, s.data)
		if !strings.Contains(fmt.Sprint(cmd.Stderr), restoringMark) { // otherwise nothing has begun
			s.restoring()
		}
		failed++
	}
	t.Logf("%d restores failed for lack of inodes", failed)
	if failed*step < 20 {
		t.Error("too few restores failed: most files of a restore were not tried")
	}
	refused := 0
	for spare := range 5 {
		d.limit(d.inodes() + spare)
		refused += s.startWithoutRoom()
	}
	if refused == 0 {
		t.Error("no start ran out of inodes")
	}
	d.limit(1000)
	s.start()
	w.check()
}

// startWithoutRoom starts a server that may not have enough inodes for its files: then it must say so, and the refusal
// is counted. It may have enough, if it deletes other files first.
func (s *server) startWithoutRoom() (refused int) {
	s.t.Helper()
	from := s.mark()
	if line := s.launchAndListen(); line != "" {
		s.kill()
		return 0
	}
	status := s.exit()
	if said := s.logSince(from); status <= 0 || !strings.Contains(said, noSpace) || strings.Contains(said, stackTrace) {
		s.t.Errorf("a start without free inodes ended with status %d and printed %q", status, said)
	}
	return 1
}

// inodes returns how many files and directories the disk can have.
func (d *disk) inodes() int {
	d.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.path, &s); err != nil {
		d.t.Fatal(err)
	}
	return int(s.Files - s.Ffree)
}

// limit limits the number of files and directories on the disk, including its own.
func (d *disk) limit(inodes int) {
	d.t.Helper()
	if out, err := d.mount(2*minFree, fmt.Sprintf("remount,nr_inodes=%d", inodes)).CombinedOutput(); err != nil {
		d.t.Fatalf("remount: %v %s", err, out)
	}
}
