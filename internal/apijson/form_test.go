package apijson

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Every form belongs to an existing field. When a name in the proto files changes, its form must change too, or this test fails.
func TestFormsMatchFields(t *testing.T) {
	fields := map[string]bool{}
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		d := m.Descriptor()
		if d.ParentFile().Package() != "pawl.v1" {
			return true
		}
		for i := range d.Fields().Len() {
			name := string(d.Fields().Get(i).Name())
			fields[name] = true
			fields[strings.TrimPrefix(string(d.FullName()), "pawl.v1.")+"."+name] = true
		}
		return true
	})
	for name := range forms {
		if !fields[name] {
			t.Errorf("forms has %s, which is not a field", name)
		}
	}
}

func written(p proto.Message) string {
	w := &Writer{}
	w.Message(p)
	return string(w.B)
}

func read(p proto.Message, body string) error {
	return Read([]byte(body), &Budget{Left: 1 << 20}, MaxListed, func(r *Reader, name string) error {
		return r.Field(p.ProtoReflect(), name)
	})
}

// How each form is written.
func TestForms(t *testing.T) {
	for want, p := range map[string]proto.Message{
		`{"shard":7,"term":0,"applied":0,"leader":"n1"}`: &pawlv1.ClusterShard{Shard: 7, Leader: "n1"},
		`{"shard":7}`:  &pawlv1.ClusterShard{Shard: 7, Term: 3, Applied: 4},
		`{"off":true}`: &pawlv1.Breaker{Off: true, Probes: 3},
		`{"is_lower_bound":false,"states":{"ready":2,"dead":1}}`: &pawlv1.CurrentStates{States: []*pawlv1.StateCount{{State: 2, Count: 2},
			{State: 7, Count: 1}}},
		`{"rate":"30/m"}`: &pawlv1.OperationSpec{Rate: 0.5},
		`{}`:              &pawlv1.OperationSpec{},
		`{"message":""}`:  &pawlv1.TaskError{},
		`{"state":["ready","dead"],"q":"<\"\u0000"}`: &pawlv1.Filter{States: []pawlv1.State{2, 7}, Q: new("<\"\x00")},
		`{"task_id":"x","result":{"a":1}}`:           &pawlv1.Parent{TaskId: "x", Result: []byte(`{"a":1}`)},
		`{"task_id":"x","result":"AQI=","content_type":"image/png"}`: &pawlv1.Parent{TaskId: "x", Result: []byte{1, 2},
			ContentType: "image/png"},
	} {
		var a, b map[string]any
		if err := json.Unmarshal([]byte(written(p)), &a); err != nil {
			t.Fatalf("%s: %v", written(p), err)
		}
		if err := json.Unmarshal([]byte(want), &b); err != nil {
			t.Fatal(err)
		}
		for name, v := range b {
			if fmt.Sprint(a[name]) != fmt.Sprint(v) {
				t.Errorf("%T was written as %s, want %s", p, written(p), want)
			}
		}
		for name := range a {
			if _, ok := b[name]; !ok && !zero(a[name]) {
				t.Errorf("%T was written as %s with the field %q, want %s", p, written(p), name, want)
			}
		}
	}
}

// zero reports whether a value is that of a field that was not set.
func zero(v any) bool {
	list, ok := v.([]any)
	return v == nil || v == "" || v == 0.0 || v == false || ok && len(list) == 0
}

// A queue may have rules for as many keys as docs/limits.md says, in a request as well.
func TestMapsOfManyEntries(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":{"max_running":1}`, i)
		}
		return `{"settings":{"keys":{` + strings.TrimPrefix(b.String(), ",") + `}}}`
	}
	req := &pawlv1.PutQueueRequest{}
	if err := read(req, many(1000)); err != nil || len(req.GetSettings().GetKeys()) != 1000 {
		t.Errorf("1,000 keys: %d were read (%v)", len(req.GetSettings().GetKeys()), err)
	}
	if err := read(&pawlv1.PutQueueRequest{}, many(1001)); err == nil || !strings.Contains(err.Error(),
		"settings.keys: more than 1000 fields") {
		t.Errorf("1,001 keys: %v, want an error", err)
	}
}

// A number whose bounds are checked elsewhere is read unchanged. A list without a limit of its own has the default limit.
func TestBoundsOfRequests(t *testing.T) {
	hook := &pawlv1.AddWebhookRequest{}
	if err := read(hook, `{"depth_over":-1}`); err != nil || hook.GetDepthOver() != -1 {
		t.Errorf("depth_over = %d (%v), want -1", hook.GetDepthOver(), err)
	}
	if err := read(&pawlv1.RemoveNodeRequest{}, `{"force":1}`); err == nil {
		t.Error("a number was accepted as a boolean")
	}
	tags := func(n int) string { return `{"tags":[` + strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") + `]}` }
	spec := &pawlv1.TaskSpec{}
	if err := read(spec, tags(MaxListed)); err != nil || len(spec.GetTags()) != MaxListed {
		t.Errorf("%d tags of %d were read (%v)", len(spec.GetTags()), MaxListed, err)
	}
	if err := read(&pawlv1.TaskSpec{}, tags(MaxListed+1)); err == nil || !strings.Contains(err.Error(), "tags: more than 1000 items") {
		t.Errorf("%d tags: %v, want an error", MaxListed+1, err)
	}
}

// TestDurations: durations have the form that the OpenAPI description publishes.
func TestDurations(t *testing.T) {
	var published struct {
		Components struct {
			Schemas struct {
				Duration struct{ Pattern string }
			}
		}
	}
	document, err := os.ReadFile("../rest/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(document, &published); err != nil || published.Components.Schemas.Duration.Pattern != spanForm.String() {
		t.Errorf("the pattern is %q (%v), want %q", published.Components.Schemas.Duration.Pattern, err, spanForm)
	}
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "1.5h": 90 * time.Minute, "1.s": time.Second,
		"1h30m": 90 * time.Minute, "1µs": time.Microsecond, ".5s": -1, "+1s": -1, "--1s": -1, "-0s": -1, "-.5s": -1, "+0": -1, "1h.5m": -1,
		"1\u03bcs": -1, "1d": -1, "1": -1, " 1s": -1, "": -1, "9999999h": -1} {
		d, err := spanText("delay", text)
		if got := d.AsDuration(); want >= 0 && (err != nil || got != want) || want < 0 && err == nil {
			t.Errorf("%q is read as %v, %v, want %v", text, got, err, want)
		}
	}
}
