package workflow

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Rows survive encoding and decoding.
func TestRowsKeepAll(t *testing.T) {
	keep := time.Duration(0)
	g := &taskGroup{id: task.ID{1}, name: "g", state: Cancelled, open: true, counts: Counts{1, 2, 3, 4, 5, 6, 7, 8}, added: 9, results: 10,
		waits: 5, retention: &keep, createdAt: 11, endedAt: 12, keptUntil: 13, deadline: 14, cancelling: true, cancelCursor: task.ID{2},
		expired: true, within: []string{"q", "r*"}, digest: 15}
	if again, err := decodeGroup(g.id, g.encode()); err != nil || !reflect.DeepEqual(again, g) {
		t.Errorf("%+v was decoded as %+v: %v", g, again, err)
	}
	long := strings.Repeat("x", 1000)
	for _, m := range []*member{
		{revision: 1, state: task.Dead, id: task.ID{3}, typ: "t", queue: long, refused: "duplicate",
			result: schema.Result{Data: []byte("7"),
				ContentType: "text/plain"}, omitted: true, digest: 16},
		{typ: long, queue: "q", result: schema.Result{Data: []byte("7")}},
		{typ: "t", queue: "q", result: schema.Result{Data: []byte(long)}},
	} {
		if again, err := decodeMember(m.encode()); err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v was decoded as %+v: %v", m, again, err)
		}
	}
}

// FuzzRows decodes any bytes as each kind of row: the result is an error or a row, never a panic, and a row survives encoding and decoding.
func FuzzRows(f *testing.F) {
	f.Add((&taskGroup{id: task.ID{1}, name: "g", state: Running, open: true, counts: Counts{Members: 2, Pending: 2}, added: 2,
		within: []string{"q"}}).encode())
	f.Add((&member{revision: 1, state: task.Succeeded, id: task.ID{2}, typ: "t", queue: "q"}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		group := func(b []byte) ([]byte, error) { g, err := decodeGroup(task.ID{1}, b); return g.encode(), err }
		member := func(b []byte) ([]byte, error) { m, err := decodeMember(b); return m.encode(), err }
		for _, again := range []func([]byte) ([]byte, error){group, member} {
			first, err := again(row)
			if err != nil {
				continue
			}
			if second, err := again(first); err != nil || !bytes.Equal(first, second) {
				t.Errorf("%x was decoded as %x: %v", first, second, err)
			}
		}
	})
}

// The digest of a request covers all that must be the same when it is repeated, and knows where one text ends and the next begins.
func TestDigestOfCalls(t *testing.T) {
	call := func() *Call {
		return &Call{Group: task.Group{Name: "n", OnComplete: &task.Spec{Type: "c"},
			Tasks: []task.Spec{{Queue: "q", Type: "a", ContentType: "x/y", Payload: []byte("12")}, {Queue: "q", Type: "b"}}}}
	}
	seen := map[uint64]string{call().digest(): "the call"}
	for what, change := range map[string]func(c *Call){
		"name":         func(c *Call) { c.Name = "m" },
		"point":        func(c *Call) { c.OnComplete = nil },
		"other point":  func(c *Call) { c.OnComplete, c.OnSuccess = nil, c.OnComplete },
		"queue":        func(c *Call) { c.Tasks[0].Queue = "r" },
		"type":         func(c *Call) { c.Tasks[0].Type = "z" },
		"content type": func(c *Call) { c.Tasks[0].ContentType = "" },
		"payload":      func(c *Call) { c.Tasks[0].Payload = []byte("13") },
		"border":       func(c *Call) { c.Tasks[0].ContentType, c.Tasks[0].Payload = "x/y1", []byte("2") },
		"order":        func(c *Call) { c.Tasks[0], c.Tasks[1] = c.Tasks[1], c.Tasks[0] },
		"fewer":        func(c *Call) { c.Tasks = c.Tasks[:1] },
		"more":         func(c *Call) { c.Tasks = append(c.Tasks, task.Spec{}) },
	} {
		c := call()
		change(c)
		if other := seen[c.digest()]; other != "" {
			t.Errorf("the digest with another %s is that of %s", what, other)
		}
		seen[c.digest()] = what
	}
	c := call()
	c.Tasks[0].Key, c.Tasks[0].Delay, c.ID = "k", time.Second, task.ID{1}
	if seen[c.digest()] != "the call" {
		t.Error("the digest covers options")
	}
	c.Tasks[0].ContentType, c.Tasks[0].Payload = "", []byte(`{"b":1.0,"a":"<"}`)
	sent := c.digest()
	c.Tasks[0].ContentType, c.Tasks[0].Payload = "application/json", []byte(`{"a":"\u003c", "b":1}`)
	if c.digest() != sent {
		t.Error("the digest covers the notation of payloads")
	}
}

// A repeat may write the JSON of its payloads in another notation, and name JSON or not.
func TestDigestOfNotations(t *testing.T) {
	of := func(contentType, payload string) uint64 {
		return digest(&task.Spec{Queue: "q", Type: "a", ContentType: contentType, Payload: []byte(payload)})
	}
	if want := of("", `{"a":1,"b":"<"}`); of("application/json", "{ \"b\": \"\\u003c\", \"a\": 1.0 }") != want {
		t.Error("the same JSON in another notation has another digest")
	}
	if of("text/plain", "1") == of("text/plain", "1.0") {
		t.Error("two texts have one digest")
	}
}
