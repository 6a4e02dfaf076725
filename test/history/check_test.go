package history

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// worlds are the kinds of histories that must pass.
var worlds = map[string]chances{
	"calm":    {tasks: 80, clients: 6},
	"lossy":   {tasks: 80, clients: 6, shards: 2, lost: 0.04, crashes: 2},
	"retried": {tasks: 80, clients: 6, lost: 0.06, retried: 0.5, crashes: 1},
	"awful":   {tasks: 60, clients: 8, shards: 2, lost: 0.12, retried: 0.2, crashes: 3},
	"hot":     {tasks: 3, clients: 16, acts: 500, lost: 0.01, crashes: 1},
	"blind":   {tasks: 80, clients: 6, lost: 0.02, unstamped: true},
}

const seeds = 40

// TestLegal: the responses of a correct queue pass, whatever happens to the calls.
func TestLegal(t *testing.T) {
	for name, c := range worlds {
		t.Run(name, func(t *testing.T) {
			sums := Report{}
			var all []Record
			takenBack := 0
			for seed := range uint64(seeds) {
				w := run(seed, c)
				r := Check(w.records, w.options())
				if !r.OK() {
					t.Fatalf("seed %d: %s", seed, r)
				}
				all = append(all, w.records...)
				for _, h := range w.shards {
					takenBack += h.given
				}
				sums.Calls += r.Calls
				sums.Tasks += r.Tasks
				sums.Replayed += r.Replayed
				sums.Searched += r.Searched
				sums.Sampled += r.Sampled
			}
			t.Log(fmt.Sprint(&sums))
			happened(t, all)
			if c.lost > 0.02 && takenBack == 0 {
				t.Error("no claim without an answer was taken back by the broker")
			}
		})
	}
}

// TestRecords: a written record can be read again, and its one-line form is complete.
func TestRecords(t *testing.T) {
	w := run(5, worlds["retried"])
	var file bytes.Buffer
	if err := Write(&file, w.records); err != nil {
		t.Fatal(err)
	}
	lines := bytes.Count(file.Bytes(), []byte("\n"))
	got, err := Read(&file)
	if err != nil || lines != len(w.records) || !reflect.DeepEqual(got, w.records) {
		t.Fatalf("%d records became %d lines and %d records: %v", len(w.records), lines, len(got), err)
	}
	for i := range got {
		if line := got[i].String(); strings.ContainsAny(line, "\n\t") {
			t.Fatalf("the record is not one line: %q", line)
		}
	}
	if _, err := Read(strings.NewReader(`{"client":1}` + "\n" + `{"clint":2}`)); err == nil || !strings.Contains(err.Error(), "record 1") {
		t.Errorf("Read with a misspelt field: %v", err)
	}
}

// TestRecorder: many clients, one clock.
func TestRecorder(t *testing.T) {
	r := NewRecorder()
	var clients sync.WaitGroup
	for id := range 8 {
		clients.Go(func() {
			for seq := range 100 {
				call := r.Now()
				r.Add(Record{Client: id, Seq: seq, CallNS: call, ReturnNS: r.Now(), Op: Get})
			}
		})
	}
	clients.Wait()
	last := map[int]Record{}
	for _, got := range r.Records() {
		if was, ok := last[got.Client]; ok && (got.Seq != was.Seq+1 || got.CallNS < was.ReturnNS) || got.ReturnNS < got.CallNS {
			t.Fatalf("%v follows %v", got.String(), was.String())
		}
		last[got.Client] = got
	}
	if len(r.Records()) != 800 {
		t.Fatalf("there are %d records, want 800", len(r.Records()))
	}
}
