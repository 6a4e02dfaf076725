package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/node"
	"github.com/pawlq/pawl/pawltype"
)

// notRestored are a task's fields that a restored one does not have.
var notRestored = []protoreflect.Name{"delay", "run_at", "request_id", "group_id"}

// everything is a task with all options set.
func everything(t *testing.T) *pawlv1.TaskSpec {
	t.Helper()
	s := &pawlv1.TaskSpec{Type: "job", Payload: []byte("{\"n\": 1,\n\"é<\": \"\\ud800\"}"), ContentType: "application/json",
		Queue: new("mail"), Priority: pawlv1.Priority_PRIORITY_HIGH, IdempotencyKey: new("k"),
		IdempotencyTtl: durationpb.New(48 * time.Hour), MaxAttempts: 7, Retry: &pawlv1.RetryPolicy{Initial: durationpb.New(2 * time.Second),
			Factor: 3, Max: durationpb.New(time.Minute), Jitter: new(0.5)},
		Timeout: durationpb.New(90 * time.Second), ExpiresIn: durationpb.New(5 * time.Hour), Retention: durationpb.New(3 * time.Hour),
		Key: new("customer"), Tags: []string{"a", "b"}, Headers: map[string]string{"x-request-id": "r1"}, Cost: 3,
		Unique: &pawlv1.Unique{Key: new("u"), States: []pawlv1.State{pawlv1.State_STATE_SCHEDULED, pawlv1.State_STATE_READY,
			pawlv1.State_STATE_CLAIMED, pawlv1.State_STATE_RETRYING}, OnConflict: pawlv1.OnConflict_ON_CONFLICT_KEEP},
		Then: []*pawlv1.TaskSpec{{Type: "next", Queue: new("other"), Priority: pawlv1.Priority_PRIORITY_NORMAL, Payload: []byte{0, 0xff},
			ContentType: "application/octet-stream", Delay: durationpb.New(time.Minute),
			Then: []*pawlv1.TaskSpec{{Type: "last", Queue: new("other"),
				Priority: pawlv1.Priority_PRIORITY_NORMAL, Payload: []byte("2"),
				RunAt: timestamppb.New(time.Now().Add(100 * 24 * time.Hour).Truncate(time.Microsecond))}}}}}
	for i := range s.ProtoReflect().Descriptor().Fields().Len() {
		f := s.ProtoReflect().Descriptor().Fields().Get(i)
		if s.ProtoReflect().Has(f) == slices.Contains(notRestored, f.Name()) {
			t.Errorf("%s: the test's task must set this field, or notRestored must list it, but not both", f.Name())
		}
	}
	return s
}

// A dead letter is archived with all that its producer sent, and restored with that, byte for byte.
func TestRestoredTask(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, node.Config{Dir: dir})
	defer s.stop()
	ctx, spec, c := t.Context(), everything(t), claims.New(s.client)
	made, err := s.client.EnqueueBatch(ctx, []pawl.Item{view.Item(spec)})
	if err != nil || made[0].Err != nil {
		t.Fatal(err, made[0].Err)
	}
	id := made[0].Ref.ID
	got, err := c.Claim(ctx, claims.Request{Queues: pawl.Strict{"mail"}})
	if err != nil || len(got) != 1 {
		t.Fatalf("%d tasks were claimed: %v", len(got), err)
	}
	if _, err := c.Fail(ctx, got[0], pawl.DeadLetter(errors.New("down"))); err != nil {
		t.Fatal(err)
	}
	s.run(cli.ExitDone, "dlq", "discard", id)
	files, err := archive.FilesIn(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for record, err := range files[0].Records() {
		if err != nil {
			t.Fatal(err)
		}
		got, err := restoredSpec(&record.Record)
		want := proto.CloneOf(spec)
		want.Headers["restored_from"], want.Headers["restored_idempotency_key"] = id, "k"
		want.IdempotencyKey, want.IdempotencyTtl = new("{customer}restored:"+id), durationpb.New(365*24*time.Hour)
		want.Unique.OnConflict = pawlv1.OnConflict_ON_CONFLICT_REJECT
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("restored as\n%v, %v, want\n%v", got, err, want)
		}
	}
	out, _ := s.run(cli.ExitDone, "dlq", "archive", "restore", "--from", dir, id)
	back, err := s.client.Task(ctx, strings.TrimSpace(out))
	if err != nil || string(back.Payload) != string(spec.Payload) || back.Headers["restored_from"] != id || len(back.Then) != 1 ||
		back.Key != "customer" {
		t.Errorf("the restored task is %+v, %v", back, err)
	}
}

// record returns the record of a dead letter that was created n seconds after a moment long ago.
func record(n int, queue string) archive.Record {
	at := time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC)
	return archive.Record{ID: fmt.Sprintf("0199f3c2-0000-7000-8000-%012d", n), Namespace: "default", State: "dead", CreatedAt: at,
		EndedAt: at, ArchivedAt: at, Task: archive.Task{Type: "job", Queue: queue, Payload: []byte("1")}}
}

// archivedIn writes records into the archive of a node, and returns its directory.
func archivedIn(t *testing.T, records ...archive.Record) string {
	t.Helper()
	dir := t.TempDir()
	a, err := archive.Open(archive.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		line, err := r.Line()
		if err == nil {
			err = a.Append(r.Namespace, [][]byte{line}, time.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What can't be restored is named, and the rest is restored: in the order in which it was first enqueued, whichever
// node archived it when, and once, however often it was archived.
func TestRestoreFromNodes(t *testing.T) {
	s := startServer(t, node.Config{InMemory: true})
	defer s.stop()
	s.tasks("taken", pawl.Unique(pawltype.UniqueOpts{Key: "u"}))
	s.run(cli.ExitDone, "queue", "set", "mail", "--max-running", "1")
	large, taken, elsewhere, followed, twice, bad := record(4, "mail"), record(5, "taken"), record(7, "mail"), record(8, "mail"),
		record(2, "mail"), record(9, "mail")
	large.Payload = make([]byte, 1<<20+1)
	large.ContentType = "application/octet-stream"
	taken.Unique = &archive.Unique{Key: "u", States: []string{"scheduled", "ready", "claimed", "retrying"}, OnConflict: "keep"}
	elsewhere.Namespace = "team"
	followed.Parent = &archive.Parent{TaskID: "t"}
	twice.EndedAt = twice.EndedAt.Add(time.Hour)
	twice.Payload = []byte("2")
	bad.Priority = "highest"
	first := archivedIn(t, record(3, "mail"), large, record(2, "mail"), taken, elsewhere)
	second := archivedIn(t, twice, record(6, "gone"), record(1, "mail"), followed, bad)
	line := []string{"dlq", "archive", "restore", "--from", first, "--from", second, "--all", "-o", "json"}

	s.run(cli.ExitRefused, append(line, "--dry-run")...)
	if n := s.count("mail"); n != 0 {
		t.Errorf("a dry run has enqueued %d tasks", n)
	}
	id := func(n int) string { return record(n, "").ID }
	for round := range 2 {
		out, said := s.run(cli.ExitRefused, line...)
		var got struct {
			Results []restoredView `json:"results"`
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		var restored []string
		for _, r := range got.Results {
			if r.Error == "" {
				restored = append(restored, shortID(r.From))
				if r.Duplicate != (round == 1) || r.TaskID == "" {
					t.Errorf("round %d: %+v", round, r)
				}
			}
		}
		if want := "[1 2 3 8]"; fmt.Sprint(restored) != want || s.count("mail") != 4 {
			t.Errorf("restored are %v, and the queue has %d tasks, want %s", restored, s.count("mail"), want)
		}
		for n, want := range map[int]string{4: "payload_too_large", 5: "conflict", 6: `queue "gone" does not exist any more`,
			8: "is restored without the result of the task that it followed", 9: "the record is damaged"} {
			if i := slices.IndexFunc(strings.Split(said, "\n"), func(line string) bool {
				return strings.HasPrefix(line, id(n)) &&
					strings.Contains(line, want)
			}); i < 0 {
				t.Errorf("standard error does not say %q of %s:\n%s", want, id(n), said)
			}
		}
		if strings.Contains(said, id(7)) {
			t.Errorf("a task of another namespace is named:\n%s", said)
		}
	}
	var payloads []string
	for range 4 { // in the order of the queue
		c := claims.New(s.client)
		got, err := c.Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}})
		if err != nil || len(got) != 1 {
			t.Fatalf("%d tasks were claimed: %v", len(got), err)
		}
		payloads = append(payloads, shortID(got[0].Headers["restored_from"])+"="+string(got[0].Payload))
		if err := c.Ack(t.Context(), got[0]); err != nil {
			t.Fatal(err)
		}
	}
	if want := "[1=1 2=2 3=1 8=1]"; fmt.Sprint(payloads) != want {
		t.Errorf("the tasks run as %v, want %s", payloads, want)
	}
}

// count returns how many ready tasks a queue has.
func (s *server) count(queue string) (n int) {
	s.t.Helper()
	for _, err := range admin.New(s.client).Tasks().List(s.t.Context(), admin.Filter{Queue: queue,
		States: []pawltype.State{pawltype.StateReady}}) {
		if err != nil {
			s.t.Fatal(err)
		}
		n++
	}
	return n
}

// A list has the newest of all nodes and namespaces, up to its limit, and names what is damaged.
func TestListOfArchives(t *testing.T) {
	team := record(4, "mail")
	team.Namespace = "team"
	first, second := archivedIn(t, record(1, "mail"), record(5, "mail"), record(3, "sms"), team),
		archivedIn(t, record(2, "mail"), record(6, "mail"))
	damaged := filepath.Join(second, "default@dead-0.jsonl")
	if err := os.WriteFile(damaged, []byte("damaged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]string{"": "[6 5 4 3 2 1]", "--limit 1": "[6]", "--limit 2": "[6 5]", "--limit 6": "[6 5 4 3 2 1]",
		"--queue mail": "[6 5 4 2 1]", "--queue sms": "[3]", "--queue none": "[]"} {
		var out, said bytes.Buffer
		exit := run(append(strings.Fields("dlq archive ls -o json "+flags), "--from", first, "--from", second), strings.NewReader(""), &out,
			&said)
		got := idsIn(t, out.Bytes())
		if got != want || exit != cli.ExitRefused || !strings.Contains(said.String(), damaged+":1: the record is damaged") {
			t.Errorf("%s: %v, status %d, %s", flags, got, exit, said.String())
		}
		if more := strings.Contains(said.String(), "there are more"); more != (flags == "--limit 1" || flags == "--limit 2") {
			t.Errorf("%s: says that there are more: %v", flags, more)
		}
	}
}

// onWrite calls do before the first write to it.
type onWrite struct {
	bytes.Buffer
	do func()
}

func (w *onWrite) Write(b []byte) (int, error) {
	if w.Len() == 0 {
		w.do()
	}
	return w.Buffer.Write(b)
}

// A file that its node removes after the list has found its records is named, and the list goes on.
func TestListOfARemovedFile(t *testing.T) {
	removed, damaged, kept := archivedIn(t, record(2, "mail")), t.TempDir(), archivedIn(t, record(1, "mail"), record(3, "mail"))
	if err := os.WriteFile(filepath.Join(damaged, "default@dead-0.jsonl"), []byte("damaged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	said := &onWrite{do: func() { _ = os.RemoveAll(removed) }} // the damage is named when the first directory has been read
	exit := run([]string{"dlq", "archive", "ls", "-o", "json", "--from", removed, "--from", damaged, "--from", kept},
		strings.NewReader(""), &out, said)
	if got := idsIn(t, out.Bytes()); got != "[3 1]" || exit != cli.ExitRefused ||
		!strings.Contains(said.String(), removed) || !strings.Contains(said.String(), "the record is gone") {
		t.Errorf("the list has %s, status %d, and says %s", got, exit, said)
	}
}

// idsIn returns the ids of a list, without their zeros.
func idsIn(t *testing.T, list []byte) string {
	t.Helper()
	var l struct{ Items []archive.Record }
	if err := json.Unmarshal(list, &l); err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, r := range l.Items {
		ids = append(ids, shortID(r.ID))
	}
	return fmt.Sprint(ids)
}

// shortID returns the number of a record's id.
func shortID(id string) string { return strings.TrimLeft(id[24:], "0") }

// A refusal that passes ends the command before a later task of the same key is sent; a repeat restores the others.
func TestRestoreKeepsTheOrderOfKeys(t *testing.T) {
	s := startServer(t, node.Config{InMemory: true})
	defer s.stop()
	s.run(cli.ExitDone, "queue", "set", "mail", "--max-length", "1")
	var records []archive.Record
	for n := 1; n <= 3; n++ {
		r := record(n, "mail")
		r.Key = "customer"
		records = append(records, r)
	}
	dir := archivedIn(t, records...)
	_, said := s.run(cli.ExitRefused, "dlq", "archive", "restore", "--from", dir, "--all")
	if !strings.Contains(said, records[1].ID+": queue_full") || strings.Contains(said, records[2].ID) ||
		!strings.Contains(said, "1 of 3 dead letters were not tried") || s.count("mail") != 1 {
		t.Errorf("the queue has %d tasks, and the command says\n%s", s.count("mail"), said)
	}
	s.run(cli.ExitDone, "queue", "set", "mail", "--max-length", "10")
	out, said := s.run(cli.ExitDone, "dlq", "archive", "restore", "--from", dir, "--all")
	if strings.Count(out, "\n") != 3 || strings.Count(said, "was restored before") != 1 || s.count("mail") != 3 {
		t.Errorf("a repeat prints %q, and the queue has %d tasks\n%s", out, s.count("mail"), said)
	}
}

// What is sent at once has one task of each key, and few bytes.
func TestRestoreBatches(t *testing.T) {
	spec := func(queue string, key *string, size int) *pawlv1.TaskSpec {
		return &pawlv1.TaskSpec{Queue: &queue, Key: key, Payload: make([]byte, size)}
	}
	a := new("a")
	for _, c := range []struct {
		first, next *pawlv1.TaskSpec
		fits        bool
	}{
		{spec("q", a, 1), spec("q", a, 1), false}, {spec("q", a, 1), spec("p", a, 1), true},
		{spec("q", a, 1), spec("q", new("b"), 1), true}, {spec("q", nil, 1), spec("q", nil, 1), true}, {spec("q", nil, restoreBytes/2),
			spec("q", nil, restoreBytes/2), false},
		{spec("q", nil, restoreBytes/2), spec("q", nil, restoreBytes/2-100), true},
	} {
		b := &restoreBatch{}
		if !b.fits(spec("q", nil, 2*restoreBytes)) {
			t.Error("a task alone does not fit")
		}
		if b.add(archived{}, c.first); b.fits(c.next) != c.fits {
			t.Errorf("%s %s after %s %s: want %v", c.next.GetQueue(), c.next.GetKey(), c.first.GetQueue(), c.first.GetKey(), c.fits)
		}
	}
}

// A task that the broker still has is not restored beside itself, and what matches nothing is an error.
func TestNotRestored(t *testing.T) {
	s := startServer(t, node.Config{InMemory: true})
	defer s.stop()
	there := record(1, "mail")
	there.ID = s.tasks("mail")[0]
	dir := archivedIn(t, there)
	before := s.count("mail")
	if _, said := s.run(cli.ExitRefused, "dlq", "archive", "restore", "--from", dir, "--all"); s.count("mail") != before ||
		!strings.Contains(said, "the task is still there, and is ready") {
		t.Errorf("%d tasks, were %d: %s", s.count("mail"), before, said)
	}
	out, said := s.run(cli.ExitRefused, "dlq", "archive", "restore", "--from", dir, "--queue", "none", "-o", "json")
	if !strings.Contains(out, `"results": []`) || !strings.Contains(said, "no archived dead letter matches") {
		t.Errorf("nothing matches: %s%s", out, said)
	}
	if _, said = s.run(cli.ExitRefused, "dlq", "archive", "restore", "--from", t.TempDir(), "--all"); !strings.Contains(said,
		"no file of an archive in") {
		t.Errorf("a directory without an archive: %s", said)
	}
}

// A restored task that is restored again keeps the first idempotency key, and one with the maximum of headers loses
// those of its restoration.
func TestRestoredHeaders(t *testing.T) {
	r := record(1, "mail")
	r.IdempotencyKey = "first"
	for n := 2; n <= 4; n++ {
		spec, err := restoredSpec(&r)
		if err != nil || spec.Headers["restored_from"] != r.ID || spec.Headers["restored_idempotency_key"] != "first" {
			t.Fatalf("restored with %v, %v", spec, err)
		}
		r = record(n, "mail")
		r.Headers, r.IdempotencyKey, r.Key = spec.Headers, spec.GetIdempotencyKey(), []string{"", "", "", "customer", ""}[n]
	}
	for n, want := range map[int]string{62: "[]", 63: "[restored_idempotency_key]", 64: "[restored_idempotency_key restored_from]"} {
		headers := map[string]string{"restored_from": "1", "restored_idempotency_key": "2"}
		for i := range n {
			headers[fmt.Sprint(i)] = ""
		}
		if got := fitHeaders(headers); fmt.Sprint(got) != want || len(headers) > 64 {
			t.Errorf("%d headers: removed %v, want %s", n, got, want)
		}
	}
}

// A record is not another one that took its place meanwhile.
func TestChangedArchive(t *testing.T) {
	files, err := archive.FilesIn(archivedIn(t, record(1, "mail")))
	if err != nil {
		t.Fatal(err)
	}
	for found := range files[0].Records() {
		for id, want := range map[string]bool{found.ID: false, "another": true} {
			_, err := archived{Place: found.Place, id: id}.Read()
			if (err != nil && strings.Contains(err.Error(), "the file has changed")) != want {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
}
