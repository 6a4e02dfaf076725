package test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"github.com/pawlq/pawl/test/history"
)

// disk is a small in-memory file system.
type disk struct {
	t    *testing.T
	path string
}

// mountDisk mounts a disk of the given size, which is removed after the test.
func mountDisk(t *testing.T, mib int) *disk {
	t.Helper()
	skipIfShort(t)
	d := &disk{t, t.TempDir()}
	if out, err := d.mount(mib, "nosuid").CombinedOutput(); err != nil {
		t.Skipf("this test needs root to mount a file system: %v %s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.path, 0); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *disk) mount(mib int, how string) *exec.Cmd {
	return exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("%s,size=%dm", how, mib), "pawl-test", d.path)
}

// grow makes the disk larger.
func (d *disk) grow(mib int) {
	d.t.Helper()
	if out, err := d.mount(mib, "remount").CombinedOutput(); err != nil {
		d.t.Fatalf("remount: %v %s", err, out)
	}
}

// free returns the free space in MiB.
func (d *disk) free() int {
	d.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.path, &s); err != nil {
		d.t.Fatal(err)
	}
	return int(int64(s.Bavail) * s.Bsize >> 20)
}

// fill appends to a file until at most mib MiB are free.
func (d *disk) fill(mib int) {
	d.t.Helper()
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for d.free() > mib && err == nil {
		_, err = f.Write(block)
	}
	for mib == 0 && err == nil { // to the last byte
		_, err = f.Write(block[:4<<10])
	}
	if mib == 0 && errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		d.t.Fatal(err)
	}
}

// empty removes the file written by fill.
func (d *disk) empty() {
	d.t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) ballast() string { return filepath.Join(d.path, "ballast") }

// minFree is the default free space, in MiB, below which a server accepts no tasks.
const minFree = 256

// logRoom is the maximum size of the Raft log's segments, in MiB: they stay when tasks are gone.
const logRoom = 160

// others is the size, in MiB, of other files on the disk that can be removed to make room: the tasks that fill the disk stay.
const others = 64

// TestDiskFull fills the disk by enqueues, and then by other files. New tasks are refused while there is still room;
// everything else continues, through kill -9 too; and the same process accepts new tasks again once there is room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	d := mountDisk(t, 2*minFree+logRoom+others)
	d.fill(2*minFree + logRoom)
	s := newServerIn(t, filepath.Join(d.path, "data"))
	s.start()
	client := s.dial()
	held := []string{"held-1", "held-2"} // work for later, when no new tasks are accepted
	for _, q := range held {
		_, err := admin.New(client).Queues().Put(t.Context(), q, admin.QueueSettings{})
		if err == nil {
			_, err = admin.New(client).Queues().Pause(t.Context(), q)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w := newWorkload(t, s.addr, "a", "b", held[0], held[1])
	w.flow(&w.acked)
	for _, q := range held {
		w.backlog(q, 500)
	}
	var tasks [2]string // to be cancelled
	for i := range tasks {
		tasks[i] = w.enqueue(w.clients[0], history.Record{Queue: "a", Args: history.Args{DelayUS: time.Hour.Microseconds()}},
			fmt.Sprintf(`"cancel %d"`, i))
	}

	err := fillByEnqueues(t, client, 2*minFree+logRoom)
	free := d.free()
	t.Logf("new tasks were refused with %d MiB free: %v", free, err)
	if free < minFree/2 {
		t.Errorf("new tasks were accepted until only %d MiB were free", free)
	}
	checkRefusal(t, err)

	d.refuses(client)
	checkRefusalOverHTTP(t, s.addr)
	goesOn(t, w, client, held[0], tasks[0])
	d.refuses(client)
	s.kill()
	s.start()
	d.refuses(client)
	goesOn(t, w, client, held[1], tasks[1])

	d.empty()
	w.flow(&w.accepted) // by the process that refused them: no other is started
	w.finish()
	w.check()
}

// refuses fills the disk until new tasks are refused. What the server removes frees some room again, so this may take more than one try.
func (d *disk) refuses(client *pawl.Client) {
	d.t.Helper()
	eventually(d.t, "new tasks are refused", startLimit, func() bool {
		d.fill(minFree / 2)
		_, err := client.Enqueue(d.t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("c"))
		if err != nil {
			checkRefusal(d.t, err)
		}
		return err != nil
	})
}

// refusesToStart fills the disk until a server does not start for lack of space. What a start removes frees some room,
// so that it may become ready at first.
func (d *disk) refusesToStart(s *server) {
	d.t.Helper()
	for range 5 {
		d.fill(0)
		from := s.mark()
		if s.launchAndListen() == "" {
			if status, said := s.exit(), s.logSince(from); status <= 0 || !strings.Contains(said, "no space left on device") {
				d.t.Errorf("a start on the full disk exited with status %d and printed %q, without the reason", status,
					said[:min(len(said), 200)])
			}
			return
		}
		s.kill()
	}
	d.t.Error("the server started five times on a full disk")
}

// TestDiskOverflows disables the low-water mark and fills a disk to the last byte: the server must exit with an error, refuse to
// start with the reason, and have everything that it has acknowledged once the disk is larger.
func TestDiskOverflows(t *testing.T) {
	t.Parallel()
	const size = 160
	d := mountDisk(t, size)
	s := newServerIn(t, filepath.Join(d.path, "data"), "--min-free", "1")
	s.start()
	w := newWorkload(t, s.addr, "a", "b")
	w.flow(&w.acked)
	stop := fill(s)
	status := s.exit()
	stop()
	if status <= 0 {
		t.Errorf("the server exited with status %d, want one above 0", status)
	}
	if said := s.logSince(0); !strings.Contains(said, "no space left on device") {
		t.Errorf("the server's log does not report the full disk: %q", said[:min(len(said), 200)])
	}

	d.refusesToStart(s)

	d.grow(4 * size)
	s.start()
	w.flow(&w.accepted)
	w.finish()
	w.check()
}

// fillByEnqueues enqueues large tasks until one is refused, at the latest when there are more than fit on a disk of mib MiB.
func fillByEnqueues(t *testing.T, client *pawl.Client, mib int) error {
	t.Helper()
	for range mib {
		if _, err := client.EnqueueBatch(t.Context(), largeTasks(16)); err != nil {
			return err
		}
	}
	t.Fatalf("%d MiB of incompressible tasks were accepted on a disk of that size", mib)
	return nil
}

// checkRefusal checks that the error says what is wrong, and when to retry.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var refusal *pawltype.Error
	if !errors.As(err, &refusal) || !errors.Is(err, pawltype.ErrUnavailable) {
		t.Fatalf("an enqueue on a full disk returned %v, want unavailable", err)
	}
	if refusal.RetryAfter <= 0 || !strings.Contains(refusal.Message, "disk") {
		t.Errorf("the refusal has the message %q and asks to retry after %s", refusal.Message, refusal.RetryAfter)
	}
}

func checkRefusalOverHTTP(t *testing.T, addr string) {
	t.Helper()
	resp, err := http.Post("http://"+addr+"/api/v1/tasks", "application/json", strings.NewReader(`{"type":"job","queue":"c"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var problem struct{ Code, Detail string }
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || problem.Code != "unavailable" ||
		!strings.Contains(problem.Detail, "disk") {
		t.Errorf("an enqueue on a full disk returned %s, Retry-After %q, %+v", resp.Status, resp.Header.Get("Retry-After"), problem)
	}
}

// goesOn checks that while no new tasks are accepted, a paused queue can be resumed, its tasks claimed and acked, and a
// task cancelled and read.
func goesOn(t *testing.T, w *workload, client *pawl.Client, queue, cancel string) {
	t.Helper()
	if _, err := admin.New(client).Queues().Resume(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	w.flow(&w.acked)
	if r, err := w.cancel(0, w.clients[0], cancel); r.Code != history.OK {
		t.Fatal(err)
	}
	if task, err := client.Task(t.Context(), cancel); err != nil || task.State != pawltype.StateCancelled {
		t.Errorf("the cancelled task is %+v, %v", task, err)
	}
}

// largeTasks returns n tasks of 64 KiB of random data: compressible ones would not fill a disk.
func largeTasks(n int) []pawl.Item {
	items := make([]pawl.Item, n)
	for i := range items {
		payload := make([]byte, 64<<10)
		_, _ = rand.Read(payload) // never fails
		items[i] = pawl.Item{Args: pawl.RawTask{Type: "large", Payload: payload, ContentType: "application/octet-stream"},
			Options: []pawl.Option{pawl.Queue("large")}}
	}
	return items
}
