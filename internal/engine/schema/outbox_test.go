package schema

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Messages of all kinds survive encoding and decoding.
func TestRows(t *testing.T) {
	request := task.ID{1}
	spec := task.Spec{Type: "job", Queue: "q", Payload: []byte("1")}
	for what, m := range map[string]Message{
		"a tick":                                {Spec: spec, SentAt: 5, From: Origin{Schedule: "s", Plan: task.ID{2}, Tick: 3}},
		"a tick of a schedule with a long name": {Spec: spec, From: Origin{Schedule: strings.Repeat("s", 1000), Plan: task.ID{2}}},
		"a follower":                            {Spec: spec, From: Origin{Parent: task.ID{2}, N: task.MaxThen}},
		"a moved one":                           {Spec: spec, From: Origin{Operation: task.ID{2}}},
		"a member":                              {Spec: spec},
		"an end": {Notice: &Notice{Group: task.ID{2}, Ref: task.ID{3}, Revision: 4, ID: task.ID{5}, State: task.Succeeded,
			Type: "job", Queue: "q", Result: Result{Data: []byte("2"), ContentType: "text/plain"}, NewMembers: []NewMember{
				{Ref: task.ID{6}, ID: task.ID{7}, Type: "next", Queue: "r"}, {Ref: task.ID{8}, Refused: "queue_full"}}}},
		"an end whose result is too large": {Notice: &Notice{Group: task.ID{2}, Ref: task.ID{3}, State: task.Succeeded, Omitted: true}},
		"a birth":                          {Notice: &Notice{Group: task.ID{2}, Ref: task.ID{3}, ID: task.ID{5}}},
		"a refusal":                        {Notice: &Notice{Group: task.ID{2}, Ref: task.ID{3}, Refused: "queue_full"}},
		"an order to cancel":               {Cancel: task.ID{2}},
		"a notification": {Notification: &task.Notification{Kind: task.NotifyDead, Namespace: "ns",
			Queue: "q", Count: 2}},
	} {
		m.Request = request
		got, err := DecodeMessage(request, m.Encode())
		if err != nil || !reflect.DeepEqual(*got, m) {
			t.Errorf("%s: got %+v, %v, want %+v", what, got, err, m)
		}
		if is := m.Spec.Type != ""; m.IsTask() != is {
			t.Errorf("%s: IsTask = %t", what, !is)
		}
		if m.IsTask() {
			continue
		}
		m.Spec = spec
		if got, err := DecodeMessage(request, m.Encode()); err != nil || got.Spec.Type != "" {
			t.Errorf("%s was stored with a task: %+v, %v", what, got, err)
		}
	}
}

// An invalid row is refused, whichever part of it is damaged, and whatever valid part follows.
func TestDamagedRows(t *testing.T) {
	field := func(tag byte, parts ...[]byte) []byte {
		b := bytes.Join(parts, nil)
		return append([]byte{tag<<3 | 2, byte(len(b))}, b...)
	}
	row := func(fields ...[]byte) []byte { return append([]byte{RowVersion}, bytes.Join(fields, nil)...) }
	cut := []byte{1<<3 | 2, 9}
	sound := field(8, field(1, make([]byte, 16)))
	for what, r := range map[string][]byte{
		"nothing":                     {},
		"cut":                         row(cut),
		"a spec":                      row(field(1, []byte("x"))),
		"a spec, then a notice":       row(field(1, []byte("x")), sound),
		"a notice":                    row(field(8, cut)),
		"a birth":                     row(field(8, field(12, cut))),
		"a birth, then another":       row(field(8, field(12, cut), field(12))),
		"a notification":              row(field(11, []byte("{"))),
		"a spec, then a notification": row(field(1, []byte("x")), field(11, []byte("{}"))),
	} {
		if m, err := DecodeMessage(task.ID{}, r); err == nil {
			t.Errorf("a row with a damaged part (%s) was decoded as %+v", what, m)
		}
	}
	if _, err := DecodeMessage(task.ID{}, row(sound, field(11, []byte("{}")))); err != nil {
		t.Errorf("a valid row was refused: %v", err)
	}
}

// Messages are found by request id, and listed in pages after one. A task gets its request id, so that it counts once.
func TestPutReadList(t *testing.T) {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tx := s.Begin(7, 1)
	defer tx.Close()
	(&Message{Request: task.ID{1}, Spec: task.Spec{Type: "job"}}).Put(tx, "ns")
	(&Message{Request: task.ID{2}, Cancel: task.ID{9}}).Put(tx, "ns")
	(&Message{Request: task.ID{3}, Spec: task.Spec{Type: "job"}}).Put(tx, "ns")
	(&Message{Request: task.ID{4}, Spec: task.Spec{Type: "job"}}).Put(tx, "ns2")

	m, ok := ReadMessage(tx, "ns", task.ID{1})
	if !ok || m.SentAt != 7 || m.Spec.RequestID != m.Request || m.Spec.RequestTTL != 24*time.Hour {
		t.Errorf("Read of a task = %+v, %t", m, ok)
	}
	if m, ok := ReadMessage(tx, "ns", task.ID{4}); ok {
		t.Errorf("Read found a message of another namespace: %+v", m)
	}
	order := &Message{Request: task.ID{2}, Cancel: task.ID{9}}
	if order.Put(tx, "ns"); order.Spec.RequestTTL != 0 || order.Spec.RequestID != (task.ID{}) {
		t.Errorf("a cancel message got a request id: %+v", order)
	}
	for _, c := range []struct {
		behind task.ID
		limit  int
		want   []byte
	}{
		{task.ID{}, 9, []byte{1, 2, 3}},
		{task.ID{}, 2, []byte{1, 2}},
		{task.ID{1}, 9, []byte{2, 3}},
		{task.ID{2}, 1, []byte{3}},
		{task.ID{3}, 9, nil},
	} {
		var got []byte
		for _, m := range ListMessages(tx, "ns", c.behind, c.limit) {
			got = append(got, m.Request[0])
		}
		if !bytes.Equal(got, c.want) {
			t.Errorf("List of %d messages after %d = %d, want %d", c.limit, c.behind[0], got, c.want)
		}
	}
	tx.Set(IDKey("ns", TableOutbox, task.ID{0}), []byte("x"))
	if !stops(func() { ReadMessage(tx, "ns", task.ID{0}) }) {
		t.Errorf("a damaged message was read")
	}
	all := ListMessages(tx, "ns", task.ID{}, 9)
	for i, stored := range all {
		if m, err := stored.Message(); stored.Request != (task.ID{byte(i)}) || (err != nil) != (i == 0) ||
			err == nil && (m.Request != stored.Request || m.Address() != stored.To) {
			t.Errorf("message %d of those of which the first is damaged: %+v, %+v, %v", i, stored, m, err)
		}
	}
	if len(all) != 4 {
		t.Errorf("List of messages of which the first is damaged = %+v", all)
	}
}

// The address of a message of each kind is in its row, before all else, and is where the message goes.
func TestAddresses(t *testing.T) {
	request, far := task.ID{1}, task.NewID(7, 1, 1)
	keyed := task.Spec{Queue: "q", Key: "k2", RequestID: request}
	for what, c := range map[string]struct {
		message Message
		want    Address
	}{
		"a task": {Message{Spec: task.Spec{Queue: "q", RequestID: request}},
			Address{Queue: "q", Slot: slot(task.Spec{RequestID: request})}},
		"a task with a key":  {Message{Spec: keyed}, Address{Queue: "q", Slot: task.KeySlot("k2")}},
		"a notice":           {Message{Notice: &Notice{Group: far, Queue: "r"}, Spec: keyed}, Address{Shard: 7}},
		"an order to cancel": {Message{Cancel: far, Spec: keyed}, Address{Shard: 7}},
		"a notification":     {Message{Notification: &task.Notification{Queue: "r"}, Spec: keyed}, Address{}},
		"a task of a group's home": {Message{Spec: task.Spec{Queue: "q", Key: "k2", Member: &task.Member{Group: far}}},
			Address{Queue: "q", Slot: task.KeySlot("k2")}},
	} {
		row := c.message.Encode()
		damaged := bytes.Clone(row)
		for i := len(damaged) - 3; i < len(damaged); i++ { // in what follows the address, if anything does
			damaged[i] ^= 0xff
		}
		if got := DecodeAddress(row); got != c.want || c.message.Address() != c.want {
			t.Errorf("%s goes to %+v, and its row to %+v, want %+v", what, c.message.Address(), got, c.want)
		}
		if got := DecodeAddress(damaged); got != c.want {
			t.Errorf("the damaged row of %s goes to %+v, want %+v", what, got, c.want)
		}
	}
	for _, row := range [][]byte{{}, {0xff}, {RowVersion, 14 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		{RowVersion, 14 << 3, 64}} {
		if got := DecodeAddress(row); got.Slot < 0 || got.Slot >= task.SlotCount || got.Queue != "" {
			t.Errorf("the damaged row %x goes to %+v", row, got)
		}
	}
}

func slot(s task.Spec) int { slot, _ := s.Slot(); return slot }

func stops(read func()) (stopped bool) {
	defer func() { stopped = recover() != nil }()
	read()
	return
}
