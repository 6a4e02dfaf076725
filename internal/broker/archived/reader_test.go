package archived

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/task"
)

// newReader returns a reader of an archive with some tasks, the first of them the oldest.
func newReader(t *testing.T, cfg archive.Config, tasks ...Task) Reader {
	t.Helper()
	cfg.Dir = t.TempDir()
	files, err := archive.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	for i := range tasks {
		line, err := json.Marshal(&tasks[i])
		if err == nil {
			_, err = files.Append("team", [][]byte{line}, time.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return NewReader(files, nil)
}

// A page ends with the task that fills it, and has at least one.
func TestPagesFitIntoMessages(t *testing.T) {
	of := func(size int) Task {
		x := Task{ID: "x"}
		x.Payload = make([]byte, size-x.Bytes())
		return x
	}
	for _, c := range []struct {
		sizes []int // the oldest first
		want  string
	}{
		{[]int{MaxPageBytes}, "[1 0]"}, {[]int{MaxPageBytes + 1}, "[1 0]"}, {[]int{MaxPageBytes / 2, MaxPageBytes / 2}, "[2 0]"},
		{[]int{MaxPageBytes / 2, MaxPageBytes/2 + 1}, "[1 1 0]"}, {[]int{1000, MaxPageBytes + 1}, "[1 1 0]"}, {[]int{1000, 1000, MaxPageBytes - 1000, 1000}, "[2 2 0]"},
	} {
		var tasks []Task
		for _, size := range c.sizes {
			tasks = append(tasks, of(size))
		}
		r := newReader(t, archive.Config{MaxRead: 1 << 40}, tasks...)
		var got []int
		for cursor := ""; len(got) == 0 || cursor != ""; {
			p, err := r.Archived(t.Context(), "team", "", cursor, 10)
			if err != nil {
				t.Fatal(err)
			}
			got, cursor = append(got, len(p.Tasks)), p.Next
		}
		if last := len(got) - 1; got[last] != 0 {
			got = append(got, 0)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("tasks of %v bytes come in pages of %v, want %s", c.sizes, got, c.want)
		}
	}
}

// A queue's pages have its tasks and no others, regardless of their contents. A page that finds none has the cursor to go on from.
func TestQueueOfArchive(t *testing.T) {
	var tasks []Task
	for i := range 60 {
		tasks = append(tasks, Task{ID: fmt.Sprint(i), Queue: []string{"mail", "mail2", "a"}[i%3], Headers: map[string]string{"queue": "mail"}, Reason: `"queue":"mail"`})
	}
	r := newReader(t, archive.Config{MaxRead: 1000}, tasks...)
	var got []string
	pages, empty := 0, 0
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		p, err := r.Archived(t.Context(), "team", "mail", cursor, 2)
		if err != nil || len(p.Tasks) != len(p.Places) || pages > 100 {
			t.Fatalf("page %d: %+v, %v", pages, p, err)
		}
		for i := range p.Tasks {
			got = append(got, p.Tasks[i].ID)
			if one, err := r.ArchivedAt("team", p.Places[i]); err != nil || one.ID != p.Tasks[i].ID {
				t.Errorf("ArchivedAt(%q) = %v, %v", p.Places[i], one, err)
			}
		}
		if len(p.Tasks) == 0 {
			empty++
		}
		cursor = p.Next
	}
	if want := "57 54 51 48 45 42 39 36 33 30 27 24 21 18 15 12 9 6 3 0"; strings.Join(got, " ") != want {
		t.Errorf("%d pages have %q, want %s", pages, got, want)
	}
}

// What an earlier namespace of the same name has archived can neither be listed nor restored.
func TestEarlierNamespace(t *testing.T) {
	began := time.Unix(1000, 0)
	var tasks []Task
	for i := range 6 {
		tasks = append(tasks, Task{ID: fmt.Sprint(i), ArchivedAt: began.Add(time.Duration(i-3) * time.Second)})
	}
	r := newReader(t, archive.Config{}, tasks...)
	all, err := r.Archived(t.Context(), "team", "", "", 10)
	if err != nil || len(all.Tasks) != 6 {
		t.Fatalf("%d tasks, %v", len(all.Tasks), err)
	}
	r.Began = func(ns string) (time.Time, error) { return map[string]time.Time{"team": began}[ns], nil }
	for i, place := range all.Places { // the newest first
		if _, err := r.ArchivedAt("team", place); (err == nil) != (i < 3) || err != nil && !errors.Is(err, task.ErrNotFound) {
			t.Errorf("ArchivedAt(task %s) = %v", all.Tasks[i].ID, err)
		}
	}
	p, err := r.Archived(t.Context(), "team", "", "", 10)
	if err != nil || len(p.Tasks) != 3 || p.Tasks[2].ID != "3" || p.Next != "" {
		t.Errorf("the archive has %+v, %v, want tasks 5, 4 and 3", p, err)
	}
	unknown := errors.New("not known now")
	r.Began = func(string) (time.Time, error) { return time.Time{}, unknown }
	if p, err := r.Archived(t.Context(), "team", "", "", 10); !errors.Is(err, unknown) || len(p.Tasks) > 0 {
		t.Errorf("while it is not known which are its own, %d tasks are listed, %v", len(p.Tasks), err)
	}
	if one, err := r.ArchivedAt("team", all.Places[0]); !errors.Is(err, unknown) || one != nil {
		t.Errorf("while it is not known whether it is its own, ArchivedAt = %+v, %v", one, err)
	}
}

// What is counted for a task is not less than it takes up of a message, regardless of its contents.
func TestBytes(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for name, x := range map[string]Task{
		"payload": {Payload: []byte(long)}, "type": {Type: long}, "reason": {Reason: long}, "key": {Key: long}, "content type": {ContentType: long},
		"idempotency key": {IdempotencyKey: long}, "result": {Parent: &Parent{Result: []byte(long)}}, "its type": {Parent: &Parent{ContentType: long}},
		"unique key": {Unique: &Unique{Key: long}}, "tags": {Tags: []string{long}}, "headers": {Headers: map[string]string{long: ""}},
		"values of headers": {Headers: map[string]string{"": long}}, "follow-ups": {Then: [][]byte{[]byte(long)}}, "worker": {Attempts: []Attempt{{Worker: long}}},
		"message": {Attempts: []Attempt{{Message: long}}}, "type of error": {Attempts: []Attempt{{ErrorType: long}}}, "stack": {Attempts: []Attempt{{Stack: long}}},
	} {
		if got := x.Bytes(); got < 1000+taskBytes {
			t.Errorf("%s: %d bytes are counted, want 1000 and those of the task", name, got)
		}
	}
	if one, two := (&Task{Attempts: make([]Attempt, 1)}).Bytes(), (&Task{Attempts: make([]Attempt, 2)}).Bytes(); two != one+attemptBytes {
		t.Errorf("an attempt counts as %d bytes", two-one)
	}
}

// A damaged record is left out of the list and counted, and all others are in it.
func TestDamagedRecordsAreLeftOut(t *testing.T) {
	r := newReader(t, archive.Config{}, Task{ID: "a"}, Task{ID: "b"})
	files := r.Files.(*archive.Archive)
	var places []string
	for _, line := range []string{`{"task_id":"c"`, `]`} {
		at, err := files.Append("team", [][]byte{[]byte(line)}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, at...)
	}
	if _, err := files.Append("team", [][]byte{[]byte(`{"task_id":"d"}`)}, time.Now()); err != nil {
		t.Fatal(err)
	}
	var got []string
	damaged := ""
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		p, err := r.Archived(t.Context(), "team", "", cursor, 1)
		if err != nil || len(p.Tasks) != len(p.Places) {
			t.Fatalf("page %d: %v, %v", pages, p, err)
		}
		for _, x := range p.Tasks {
			got = append(got, x.ID)
		}
		damaged, cursor = cmp.Or(damaged, p.Damaged), p.Next
	}
	if fmt.Sprint(got) != "[d b a]" || damaged != places[1] || r.Damaged.Load() != 2 {
		t.Errorf("the list has %v, and says that %q is damaged; counted: %d", got, damaged, r.Damaged.Load())
	}
	_, err := r.ArchivedAt("team", places[0])
	if e, ok := task.AsError(err); !ok || e.Code != task.CodeNotFound || !strings.Contains(e.Message, "damaged") || r.Damaged.Load() != 3 {
		t.Errorf("reading a damaged record = %v, counted: %d", err, r.Damaged.Load())
	}
}

// unreadable is an archive of which a file can't be read.
type unreadable struct{ Files }

func (u unreadable) List(ctx context.Context, ns, cursor string, fn func(string, []byte) bool) (string, []string, error) {
	next, _, err := u.Files.List(ctx, ns, cursor, fn)
	return next, []string{"dead-9.jsonl", "dead-8.jsonl"}, err
}

// A page names the first file that can't be read, unless it names a record, and has all others.
func TestUnreadableFilesAreNamed(t *testing.T) {
	r := newReader(t, archive.Config{}, Task{ID: "a"})
	r.Files = unreadable{r.Files}
	p, err := r.Archived(t.Context(), "team", "", "", 2)
	if err != nil || len(p.Tasks) != 1 || p.Damaged != "dead-9.jsonl" || r.Damaged.Load() != 2 {
		t.Errorf("the page has %d tasks and names %q, %d were counted, %v", len(p.Tasks), p.Damaged, r.Damaged.Load(), err)
	}
}

// A page has one task, and others as long as there is room for them. The next one goes on after the last.
func TestPagesEndWithoutRoom(t *testing.T) {
	var tasks []Task
	for i := range 5 {
		tasks = append(tasks, Task{ID: fmt.Sprint(i)})
	}
	r := newReader(t, archive.Config{}, tasks...)
	size := tasks[0].Bytes()
	for room, want := range map[int]string{-1: "[1 1 1 1 1]", size - 1: "[1 1 1 1 1]", size: "[1 1 1 1 1]", 2*size + 1: "[2 2 1]", 4 * size: "[4 1]", 9 * size: "[5]"} {
		var got []int
		for cursor := ""; len(got) == 0 || cursor != ""; {
			left := room
			ctx := task.WithRoom(t.Context(), func(n int) bool { left -= n; return left >= 0 })
			p, err := r.Archived(ctx, "team", "", cursor, 10)
			if err != nil {
				t.Fatal(err)
			}
			got, cursor = append(got, len(p.Tasks)), p.Next
		}
		if fmt.Sprint(got) != want {
			t.Errorf("with room for %d bytes the pages have %v tasks, want %s", room, got, want)
		}
	}
}
