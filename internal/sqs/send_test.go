package sqs

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

func fifoQueue(more map[string]string) queues.Queue {
	notes := map[string]string{noteAttribute + "FifoQueue": "true"}
	for name, v := range more {
		notes[noteAttribute+name] = v
	}
	return queues.Queue{Name: "a.fifo", Config: task.QueueConfig{Version: 1, Annotations: notes}}
}

// errorShown returns the code and the text of an error.
func errorShown(err error) string {
	if e, ok := err.(*wire.Error); ok {
		return e.Code + ": " + e.Message
	}
	return fmt.Sprint(err)
}

// What a message may be: the refusals are those of Amazon SQS.
func TestMessagesAreChecked(t *testing.T) {
	standard := queues.Queue{Name: "a", Config: task.QueueConfig{Version: 1}}
	plainFIFO, content := fifoQueue(nil), fifoQueue(map[string]string{"ContentBasedDeduplication": "true"})
	with := func(name string, a wire.Attribute) wire.Input {
		return wire.Input{Body: "b", MessageAttrs: map[string]wire.Attribute{name: a}}
	}
	number := func(s string) wire.Input {
		return with("n", wire.Attribute{DataType: "Number.x", StringValue: &s})
	}
	const (
		ok    = "<nil>"
		lacks = "InvalidParameterValue: The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId " +
			"provided explicitly"
		noNumber = "InvalidParameterValue: Can't cast the value of message (user) attribute 'n' to a number."
		badID    = "InvalidParameterValue: Value %s for parameter %[2]s is invalid. Reason: %[2]s can only include alphanumeric and " +
			"punctuation characters. 1 to 128 in length."
	)
	long := strings.Repeat("i", 129)
	for _, c := range []struct {
		what string
		q    queues.Queue
		in   wire.Input
		want string
	}{
		{"a name with accents", standard, with("attr.1øßä", value("v")), ok},
		{"a name with a space", standard, with("a b", value("v")), "InvalidParameterValue: Invalid message attribute name 'a b'."},
		{"no name", standard, with("", value("v")), "InvalidParameterValue: Invalid message attribute name ''."},
		{"a name of 256 characters", standard, with(strings.Repeat("٣_-ß", 64), value("v")), ok},
		{"a name of 257 characters", standard, with(strings.Repeat("ß", 257), value("v")),
			"InvalidParameterValue: Invalid message attribute name '" + strings.Repeat("ß", 50) + "'."},
		{"a bad character in a value", standard, with("a", value("\x01")),
			"InvalidParameterValue: Invalid characters found in message attribute 'a'."},
		{"a control character in a type", standard, with("a", wire.Attribute{DataType: "String.\n", StringValue: new("v")}),
			"InvalidParameterValue: The type of message (user) attribute 'a' contains invalid characters."},
		{"a list of strings", standard, with("a", wire.Attribute{DataType: "String", StringValue: new("v"), StringList: []string{"v"}}),
			"AWS.SimpleQueueService.UnsupportedOperation: Message attribute list values in SendMessage operation are not supported."},
		{"a list of bytes", standard, with("a", wire.Attribute{DataType: "Binary", BinaryValue: []byte("v"), BinaryList: [][]byte{nil}}),
			"AWS.SimpleQueueService.UnsupportedOperation: Message attribute list values in SendMessage operation are not supported."},
		{"38 digits", standard, number("-0" + strings.Repeat("9", 20) + "." + strings.Repeat("9", 18) + "00e7"), ok},
		{"39 digits", standard, number(strings.Repeat("9", 20) + "." + strings.Repeat("9", 19)), noNumber},
		{"a large number", standard, number("1e126"), ok},
		{"a larger number", standard, number("1.1e126"), noNumber},
		{"a small number", standard, number("-1e128"), ok},
		{"a smaller number", standard, number("-1e129"), noNumber},
		{"no number", standard, number("1e9999"), noNumber},
		{"a group in a standard queue", standard, wire.Input{Body: "b", GroupID: new("g")}, ok},
		{"an empty group in a standard queue", standard, wire.Input{Body: "b", GroupID: new("")}, fmt.Sprintf(badID, "", "MessageGroupId")},
		{"no group", content, wire.Input{Body: "b"}, "MissingParameter: The request must contain the parameter MessageGroupId."},
		{"an empty group", content, wire.Input{Body: "b", GroupID: new("")}, fmt.Sprintf(badID, "", "MessageGroupId")},
		{"a long group", content, wire.Input{Body: "b", GroupID: &long}, fmt.Sprintf(badID, long, "MessageGroupId")},
		{"no deduplication", plainFIFO, wire.Input{Body: "b", GroupID: new("g")}, lacks},
		{"an empty deduplication ID", plainFIFO, wire.Input{Body: "b", GroupID: new("g"), DeduplicationID: new("")}, fmt.Sprintf(badID, "",
			"MessageDeduplicationId")},
		{"a long deduplication ID", plainFIFO, wire.Input{Body: "b", GroupID: new("g"), DeduplicationID: &long}, fmt.Sprintf(badID, long,
			"MessageDeduplicationId")},
		{"a delay", content, wire.Input{Body: "b", GroupID: new("g"), DelaySeconds: new(2)},
			"InvalidParameterValue: Value 2 for parameter DelaySeconds is invalid. Reason: " + forOtherType},
	} {
		core := &limited{}
		core.q = c.q
		c.in.QueueURL = c.q.Name
		x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil), in: &c.in}
		if got := errorShown(send(x)); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.what, got, c.want)
		}
	}
}

// A batch with a message that lacks what all messages of the queue must have is refused as a whole. Other errors are
// those of single messages.
func TestBatchesToFIFOQueues(t *testing.T) {
	good := wire.Entry{ID: "1", Body: "b", GroupID: new("g"), DeduplicationID: new("d")}
	for what, c := range map[string]struct {
		bad  wire.Entry
		want string
	}{
		"no group": {wire.Entry{ID: "2", Body: "b", DeduplicationID: new("e")},
			"InvalidParameterValue: The request must contain the parameter MessageGroupId."},
		"no deduplication ID": {wire.Entry{ID: "2", Body: "b", GroupID: new("g")},
			"InvalidParameterValue: The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId " +
				"provided explicitly"},
		"a delay":        {wire.Entry{ID: "2", Body: "b", GroupID: new("g"), DeduplicationID: new("e"), DelaySeconds: new(2)}, "<nil>"},
		"nothing":        {wire.Entry{ID: "2", GroupID: new("g"), DeduplicationID: new("e")}, "<nil>"},
		"an empty group": {wire.Entry{ID: "2", Body: "b", GroupID: new(""), DeduplicationID: new("e")}, "<nil>"},
	} {
		for _, entries := range [][]wire.Entry{{good, c.bad}, {c.bad, good}} {
			core := &limited{}
			core.q = fifoQueue(nil)
			x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil),
				in: &wire.Input{QueueURL: "a.fifo", Entries: entries}}
			if got := errorShown(sendBatch(x)); got != c.want {
				t.Errorf("%s: %s\nwant %s", what, got, c.want)
			}
			sent, failed := 1, 1
			if c.want != "<nil>" {
				sent, failed = 0, 0
			}
			if len(x.out.Successful) != sent || len(x.out.Failed) != failed || (core.got.Queue != "") != (sent > 0) {
				t.Errorf("%s: %d messages were sent and %d failed, want %d and %d; enqueued is %+v", what, len(x.out.Successful),
					len(x.out.Failed), sent, failed, core.got)
			}
		}
	}
}

// In a FIFO queue the delay is the queue's, also for a message whose own delay is 0.
func TestDelays(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		q := queues.Queue{Name: "a", Config: task.QueueConfig{Version: 1, Annotations: map[string]string{noteAttribute +
			"DelaySeconds": "5"}}}
		if fifo {
			q = fifoQueue(map[string]string{"DelaySeconds": "5"})
		}
		for _, own := range []*int{nil, new(0), new(7)} {
			if fifo && own != nil && *own == 7 {
				continue // refused
			}
			want := 5 * time.Second
			if own != nil && !fifo {
				want = time.Duration(*own) * time.Second
			}
			o := outgoing{body: "b", group: "g", delay: own}
			if fifo {
				o.dedup = "d"
			}
			s, err := o.spec(&q, "")
			if err != nil || s.Delay != want {
				t.Errorf("FIFO %t, own delay %v: %v, %v, want %v", fifo, own, s.Delay, err, want)
			}
		}
	}
}

// The trace of a message is its own, or else that of its request.
func TestTraces(t *testing.T) {
	own := map[string]wire.Attribute{traceHeader: value("Root=own")}
	for _, c := range []struct {
		header string
		system map[string]wire.Attribute
		want   string
	}{
		{"", nil, ""}, {"Root=r", nil, "Root=r"}, {"Root=r", own, "Root=own"}, {"", own, "Root=own"},
		{"Root=\x01", nil, ""}, {strings.Repeat("r", maxTraceHeader), nil, strings.Repeat("r", maxTraceHeader)},
		{strings.Repeat("r", maxTraceHeader+1), nil, ""},
	} {
		for _, batch := range []bool{false, true} {
			core := &limited{}
			core.q = queues.Queue{Config: task.QueueConfig{Version: 1}}
			r := httptest.NewRequest("POST", "http://pawl/", nil)
			r.Header.Set("X-Amzn-Trace-Id", c.header)
			x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: r, in: &wire.Input{QueueURL: "a", Body: "b",
				SystemAttrs: c.system, Entries: []wire.Entry{{ID: "1", Body: "b", SystemAttrs: c.system}}}}
			do := send
			if batch {
				do = sendBatch
			}
			if err := do(x); err != nil || core.got.Headers[headerTrace] != c.want {
				t.Errorf("header %.20q, attribute %v: the trace is %.20q, %v, want %.20q", c.header, c.system,
					core.got.Headers[headerTrace], err, c.want)
			}
			if !batch && (x.out.Sent.MD5OfSystemAttributes != "") != (c.system != nil) {
				t.Errorf("header %.20q, attribute %v: the checksum of system attributes is %q", c.header, c.system,
					x.out.Sent.MD5OfSystemAttributes)
			}
		}
	}
}

// A change of the scope in which deduplication IDs are unique applies after a minute. Those used before are then
// remembered for the rest of their time.
func TestDeduplicationScopeChanges(t *testing.T) {
	const queue, group = "queue", groupScope
	for _, c := range []struct {
		changes map[time.Duration]string // when to what
		at      time.Duration
		want    [2]string // the scope, and the older one
	}{
		{nil, 0, [2]string{queue}},
		{map[time.Duration]string{0: group}, 0, [2]string{queue}},
		{map[time.Duration]string{0: group}, time.Minute - 1, [2]string{queue}},
		{map[time.Duration]string{0: group}, time.Minute, [2]string{group, queue}},
		{map[time.Duration]string{0: group}, 6*time.Minute - 1, [2]string{group, queue}},
		{map[time.Duration]string{0: group}, 6 * time.Minute, [2]string{group}},
		{map[time.Duration]string{0: group, 30 * time.Second: group}, time.Minute, [2]string{group, queue}},
		{map[time.Duration]string{0: group, 30 * time.Second: queue}, 2 * time.Minute, [2]string{queue}},
		{map[time.Duration]string{0: group, 2 * time.Minute: queue}, 3*time.Minute - 1, [2]string{group}},
		{map[time.Duration]string{0: group, 2 * time.Minute: queue}, 3 * time.Minute, [2]string{queue, group}},
	} {
		began, q := time.Unix(1e9, 0), fifoQueue(nil)
		for _, at := range slices.Sorted(maps.Keys(c.changes)) {
			setAttributesOf(&q.Config, map[string]string{dedupScope: c.changes[at]}, began.Add(at))
		}
		scope, older := scopes(&q.Config, began.Add(c.at))
		if got := [2]string{scope, older}; got != c.want {
			t.Errorf("after %v, %v: %q, want %q", c.changes, c.at, got, c.want)
		}
	}
	c := task.QueueConfig{}
	if setAttributesOf(&c, map[string]string{"FifoQueue": "true", dedupScope: group}, time.Now()); c.Annotations[noteScope] != "" {
		t.Error("the scope of a new queue is a change")
	}
	synctest.Test(t, func(t *testing.T) {
		q := fifoQueue(nil)
		setAttributesOf(&q.Config, map[string]string{dedupScope: group}, time.Now())
		keys := func(q *queues.Queue) [2]string {
			o := outgoing{body: "b", group: "g", dedup: "d"}
			s, err := o.spec(q, "")
			if err != nil {
				t.Fatal(err)
			}
			return [2]string{s.IdempotencyKey, s.OlderKey}
		}
		before := keys(&q)
		spread := q
		spread.Parts = []queues.Part{{Shard: 1}, {Shard: 2}}
		inParts := keys(&spread)
		time.Sleep(time.Minute)
		after := keys(&q)
		time.Sleep(5 * time.Minute)
		if last := keys(&q); after[1] != before[0] || after[0] == before[0] || before[1] != "" || last != [2]string{after[0]} ||
			inParts != last {
			t.Errorf("keys %q, then %q, then %q; in several shards %q", before, after, last, inParts)
		}
	})
}
