package archive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// id returns the id of a task.
func id(n int) string { return fmt.Sprintf("01a2072a-8f2c-7001-9e08-%012d", n) }

// lineOf returns the line of a task with this id.
func lineOf(t *testing.T, r Record) string {
	t.Helper()
	line, err := r.Line()
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

// read returns the ids of the records of a directory's files, and what is damaged.
func read(t *testing.T, dir string) (ids []string, damaged []error) {
	t.Helper()
	files, err := FilesIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for found, err := range f.Records() {
			if err != nil {
				damaged = append(damaged, err)
				continue
			}
			ids = append(ids, found.Namespace+" "+strings.TrimLeft(found.ID[24:], "0"))
			if again, err := found.Read(); err != nil || !reflect.DeepEqual(again, found.Record) {
				t.Errorf("%s: read again, the record is %+v, %v, want %+v", found.Place, again, err, found.Record)
			}
		}
	}
	return ids, damaged
}

// What is archived is read, from the archive's own directory or the data directory, and files of others are not.
func TestRecordsAreRead(t *testing.T) {
	data := t.TempDir()
	dir := filepath.Join(data, DirName)
	a := open(t, Config{Dir: dir, FileSize: 500})
	for i := range 9 {
		ns := []string{"a", "b"}[i%2]
		writeTo(t, a, ns, noon.Add(time.Duration(i)*time.Second), lineOf(t, Record{ID: id(i + 1), Namespace: ns}))
	}
	for _, name := range []string{"a@notes.jsonl", "a@dead-1.json", "dead-1.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{data, dir} {
		got, damaged := read(t, from)
		if want := "[a 1 a 3 a 5 a 7 a 9 b 2 b 4 b 6 b 8]"; fmt.Sprint(got) != want || damaged != nil {
			t.Errorf("FilesIn(%s) has %v, %v, want %s", from, got, damaged, want)
		}
	}
	if _, err := FilesIn(filepath.Join(data, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("FilesIn of a directory that does not exist: %v", err)
	}
}

// A damaged record is named, and those around it are read. What follows the last newline is no record.
func TestDamagedRecordsAreNamed(t *testing.T) {
	good := func(n int) string { return lineOf(t, Record{ID: id(n), Namespace: "team"}) + "\n" }
	for what, c := range map[string]struct{ damaged, says string }{
		"cut":                    {good(9)[:50] + "\n", "unexpected end"},
		"empty":                  {"\n", "unexpected end"},
		"not JSON":               {"\x00\x01\n", "invalid character"},
		"not a task":             {"[]\n", "cannot unmarshal"},
		"another namespace":      {lineOf(t, Record{ID: id(9), Namespace: "other"}) + "\n", `namespace "other" is not that of the file`},
		"no id":                  {lineOf(t, Record{Namespace: "team"}) + "\n", `task_id "" is not a UUID`},
		"an id in another form":  {lineOf(t, Record{ID: "urn:uuid:" + id(9), Namespace: "team"}) + "\n", "is not a UUID"},
		"a time that is none":    {`{"task_id":"` + id(9) + `","namespace":"team","ended_at":"noon"}` + "\n", "parsing time"},
		"a duration that is not": {`{"task_id":"` + id(9) + `","namespace":"team","timeout":"soon"}` + "\n", "invalid duration"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "team@dead-1.jsonl")
		if err := os.WriteFile(path, []byte(good(1)+c.damaged+good(2)+good(3)+`{"half`), 0o600); err != nil {
			t.Fatal(err)
		}
		got, damaged := read(t, dir)
		place := fmt.Sprintf("%s:%d: the record is damaged: ", path, len(good(1))+1)
		if fmt.Sprint(got) != "[team 1 team 2 team 3]" || len(damaged) != 1 || !strings.HasPrefix(damaged[0].Error(), place) ||
			!strings.Contains(damaged[0].Error(), c.says) {
			t.Errorf("%s: read %v, and %v, want %s%s", what, got, damaged, place, c.says)
		}
	}
}

// Files that can't be read are named, and those that were removed meanwhile are not.
func TestUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a@dead-1.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, open(t, Config{Dir: dir}), noon, lineOf(t, Record{ID: id(1), Namespace: "team"}))
	if err := os.Symlink("a@dead-1.jsonl", filepath.Join(dir, "b@dead-1.jsonl")); err != nil {
		t.Fatal(err)
	}
	got, damaged := read(t, dir)
	if fmt.Sprint(got) != "[team 1]" || len(damaged) != 2 || !strings.Contains(damaged[0].Error(),
		"a@dead-1.jsonl: is not a regular file") ||
		!strings.Contains(damaged[1].Error(), "b@dead-1.jsonl: is not a regular file") {
		t.Errorf("read %v, %v", got, damaged)
	}
	files, err := FilesIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	gone := files[2]
	if err := os.Remove(gone.path); err != nil {
		t.Fatal(err)
	}
	for found, err := range gone.Records() {
		t.Errorf("a file that is gone has %v, %v", found, err)
	}
	if _, err := (Place{gone, 0}).Read(); err == nil || !strings.Contains(err.Error(), gone.path+":1") {
		t.Errorf("a record that is gone: %v", err)
	}
}

// Whoever has enough reads no further.
func TestEnoughRecords(t *testing.T) {
	dir := t.TempDir()
	a := open(t, Config{Dir: dir})
	write(t, a, noon, lineOf(t, Record{ID: id(1), Namespace: "team"}), lineOf(t, Record{ID: id(2), Namespace: "team"}), "damaged")
	files, err := FilesIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	for enough := 1; enough <= 3; enough++ {
		n := 0
		for _, err := range files[0].Records() {
			if n++; (err != nil) != (n == 3) || n > enough {
				t.Fatalf("record %d of %d: %v", n, enough, err)
			}
			if n == enough {
				break
			}
		}
	}
}

// A file has its lines and their offsets, whatever their lengths and wherever the reader's buffer ends. One that is too long is skipped.
func TestLines(t *testing.T) {
	const limit = 100
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var file, want []string
		at := 0
		for range rnd.IntN(8) {
			n := []int{0, 1, 15, 16, 17, 33, limit - 1, limit, limit + 1, 5 * limit}[rnd.IntN(10)]
			file = append(file, strings.Repeat(string(rune('a'+rnd.IntN(26))), n)+"\n")
			if n > limit {
				want = append(want, fmt.Sprint(at, " ", errLong))
			} else {
				want = append(want, fmt.Sprint(at, " ", file[len(file)-1][:n]))
			}
			at += n + 1
		}
		torn := strings.Repeat("#", rnd.IntN(2)*rnd.IntN(2*limit))
		l := lines{r: bufio.NewReaderSize(strings.NewReader(strings.Join(file, "")+torn), 16), limit: limit}
		var got []string
		for {
			line, start, err := l.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				line = []byte(err.Error())
			}
			got = append(got, fmt.Sprint(start, " ", string(line)))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the lines are %q, want %q", got, want)
		}
	}
}

// A record fits into a line, even if its task was attempted often, and regardless of how its failures are written in
// JSON: the newest attempts stay.
func TestLineIsBounded(t *testing.T) {
	r := Record{ID: id(1), Namespace: "team"}
	for i := range 400 {
		r.Attempts = append(r.Attempts, Attempt{Attempt: i, Message: strings.Repeat("\x01", 8<<10), Stack: strings.Repeat("<", 8<<10)})
	}
	all := r.Attempts
	for _, c := range []struct{ attempts, max, min int }{{1, 1, 1}, {100, 100, 100}, {400, 130, 60}} {
		r.Attempts = all[400-c.attempts:]
		line := lineOf(t, r)
		back, err := decode("team", []byte(line))
		if err != nil || len(line) > MaxLine || len(back.Attempts) > c.max || len(back.Attempts) < c.min ||
			back.Attempts[len(back.Attempts)-1].Attempt != 399 {
			t.Errorf("of %d attempts %d are in a line of %d bytes, %v, want the newest %d to %d", c.attempts, len(back.Attempts), len(line),
				err, c.min, c.max)
		}
	}
	r.Attempts, r.Payload = all[:3], make([]byte, MaxLine)
	if line := lineOf(t, r); strings.Contains(line, `"attempt":`) {
		t.Errorf("a record with a payload of %d bytes keeps attempts", len(r.Payload))
	}
}
