package test

import (
	"crypto/rand"
	"fmt"
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

// noSpace is what the kernel says of a full disk.
const noSpace = "no space left on device"

// backedUp is a server under load that has 16 MiB of tasks, which can't be compressed.
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

// backUp runs pawl backup to its end. As long as the node has not noticed that the backup before was broken off, it is asked
// again.
func (s *server) backUp(file string, to *os.File) (cmd *exec.Cmd) {
	s.t.Helper()
	eventually(s.t, "the node makes no other backup", startLimit, func() bool {
		cmd = command(s.t, "backup", "--server", s.addr, file)
		if to != nil {
			cmd.Stdout = to
		}
		_ = cmd.Run() // ProcessState says what it would
		return !strings.Contains(fmt.Sprint(cmd.Stderr), "making another backup")
	})
	return cmd
}

// TestBackupDiskFull backs a server up to a disk that is too small. Nothing is left there, or, of what went through standard
// output, nothing that can be restored; the server goes on; and once there is room the backup is made.
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
		fails(t, command(t, args...), cut.Name(), "it was cut")
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("a backup that was cut has made %s: %v", data, err)
	}

	d.grow(64)
	if cmd := s.backUp(file, nil); !cmd.ProcessState.Success() {
		t.Fatalf("a backup to a disk with room: %s", cmd.Stderr)
	}
	does(t, "restore", "--check", file)
	w.flow(&w.acked)
	w.finish()
	w.check()
}

// has wants these files on the disk, and no others.
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
		d.t.Errorf("the disk has %q, want %q", names, want)
	}
}

// TestRestoreDiskFull fills the disk while a backup is restored to it. No server starts on what is there, and the restore can be
// repeated there: while there is no room it is refused, then all comes back.
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

// refusesRestore wants a restore to the server's directory to end with an error that names it.
func (s *server) refusesRestore(file string, wants ...string) {
	s.t.Helper()
	fails(s.t, command(s.t, "restore", file, "--data", s.data), append(wants, s.data)...)
}

// restoring wants no server to start on what a restore has left.
func (s *server) restoring() {
	s.t.Helper()
	if said, want := s.refuses(), "a restore into "+s.data+" did not end"; !strings.Contains(said, want) {
		s.t.Errorf("a start on a restore that has failed says %q, want %q", said, want)
	}
}

// fillsDuring fills the disk after a restore has found enough room there and before it ends; false if it came too late.
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
			d.t.Fatalf("the restore ended before it began to write: %s", cmd.Stderr)
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

// restoringMark is the file by which a restore that has not ended is known.
const restoringMark = "RESTORING"

func restoringIn(data string) bool {
	_, err := os.Stat(filepath.Join(data, restoringMark))
	return err == nil
}

// TestRestoreWithoutInodes restores to a disk on which no files can be made beyond a number, and then one more, and so on: after
// each failure no server starts on what is there, and the next restore begins there anew. Then the server meets the same.
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

	failed := 0
	for inodes := 3; !t.Failed(); inodes++ { // two directories, and the lock
		d.limit(inodes)
		cmd := command(t, "restore", file, "--data", s.data)
		if cmd.Run() == nil {
			break
		}
		fails(t, cmd, noSpace, s.data)
		if !strings.Contains(fmt.Sprint(cmd.Stderr), restoringMark) { // else nothing has begun
			s.restoring()
		}
		failed++
	}
	t.Logf("%d restores failed", failed)
	if failed < 20 {
		t.Error("most files of a restore were not tried")
	}
	refused := 0
	for spare := range 5 {
		d.limit(d.inodes() + spare)
		refused += s.startWithoutRoom()
	}
	if refused == 0 {
		t.Error("no start met the end of the disk")
	}
	d.limit(1000)
	s.start()
	w.check()
}

// startWithoutRoom starts a server that may lack room for its files: then it must say so, and is counted. It may have enough, when
// it deletes others first.
func (s *server) startWithoutRoom() (refused int) {
	s.t.Helper()
	from := s.mark()
	if line := s.launchAndListen(); line != "" {
		s.kill()
		return 0
	}
	status := s.exit()
	if said := s.said(from); status <= 0 || !strings.Contains(said, noSpace) || strings.Contains(said, stackTrace) {
		s.t.Errorf("a start without room for files ends with status %d and says %q", status, said)
	}
	return 1
}

// inodes is how many files and directories the disk has.
func (d *disk) inodes() int {
	d.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.path, &s); err != nil {
		d.t.Fatal(err)
	}
	return int(s.Files - s.Ffree)
}

// limit lets the disk have so many files and directories, its own among them.
func (d *disk) limit(inodes int) {
	d.t.Helper()
	if out, err := d.mount(2*minFree, fmt.Sprintf("remount,nr_inodes=%d", inodes)).CombinedOutput(); err != nil {
		d.t.Fatalf("%v %s", err, out)
	}
}
