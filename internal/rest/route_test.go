package rest

import (
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
)

// A path parameter is a field of the request, so that no value of a path gets lost. A field that the path determines is a boolean.
func TestPathsFillRequests(t *testing.T) {
	for _, r := range Routes() {
		if r.RPC == "" {
			continue
		}
		for name, f := range r.inPath {
			if f == nil && special[r.String()] == nil && name != "queue" {
				t.Errorf("%s: the request of %s has no field for {%s}", r, r.RPC, name)
			}
		}
		d := contract.Calls()[r.RPC].Method
		for _, name := range r.fixed {
			if f := d.Input().Fields().ByName(protoreflect.Name(name)); name != "" && (f == nil || f.Kind() != protoreflect.BoolKind) {
				t.Errorf("%s determines %q, which is not a boolean field of its request", r, name)
			}
		}
		if name := r.Spec.GetAnswer(); name != "" && d.Output().Fields().ByName(protoreflect.Name(name)) == nil {
			t.Errorf("%s responds with %q, which is not a field of its response", r, name)
		}
	}
}

// Every special route exists, and none hides another.
func TestSpecialRoutes(t *testing.T) {
	routes := map[string]bool{}
	for _, r := range Routes() {
		if routes[r.String()] {
			t.Errorf("route %s is defined twice", r)
		}
		routes[r.String()] = true
	}
	for name := range special {
		if !routes[name] {
			t.Errorf("special has %s, which is not a route", name)
		}
	}
}

// What the path determines is not allowed in the body.
func TestPathFieldsAreNotInBody(t *testing.T) {
	checked := 0
	for _, r := range Routes() {
		if r.String() == "POST /api/v1/cluster/nodes/{node}/drain" {
			checked++
			for _, name := range []string{"node", "undo"} {
				if !r.Reads(name) {
					t.Errorf("%s reads %s from the body", r, name)
				}
			}
		}
		if r.String() == "GET /api/v1/poisoned" {
			if checked++; !r.Reads("poisoned") || r.Reads("queue") {
				t.Errorf("%s reads poisoned from the query, or queue from its path", r)
			}
		}
	}
	if checked != 2 {
		t.Errorf("%d of the 2 routes exist", checked)
	}
}

// A call on many tasks may take minutes, one that waits may take that long in addition, and others may take no longer than usual.
func TestExtraTime(t *testing.T) {
	checked := 0
	for _, r := range Routes() {
		var got, want time.Duration
		checked++
		switch r.String() {
		case "POST /api/v1/queues/{queue}/purge", "POST /api/v1/queues/{queue}/spread":
			got, want = r.extraTime((&pawlv1.PurgeQueueRequest{}).ProtoReflect()), slowTime
		case "POST /api/v1/claim":
			got, want = r.extraTime((&pawlv1.ClaimRequest{Wait: durationpb.New(20 * time.Second)}).ProtoReflect()), 20*time.Second
		case "GET /api/v1/queues/{queue}":
			got = r.extraTime((&pawlv1.GetQueueRequest{}).ProtoReflect())
		default:
			checked--
		}
		if got != want {
			t.Errorf("extra time of %s = %v, want %v", r, got, want)
		}
	}
	if checked != 4 {
		t.Errorf("%d of the 4 routes exist", checked)
	}
}

// TestLongWaitGetsAnAnswer: a wait that the call refuses does not move the deadline of its answer into the past.
func TestLongWaitGetsAnAnswer(t *testing.T) {
	for text, want := range map[string]time.Duration{"1s": time.Second, "2562047h47m16s": contract.MaxWait} {
		m := &pawlv1.GetTaskRequest{}
		if err := apijson.Decode("request", []byte(`{"wait":"`+text+`"}`), m); err != nil {
			t.Fatal(err)
		}
		r := &Route{takes: apijson.Of(m.ProtoReflect().Descriptor())}
		if got := r.extraTime(m.ProtoReflect()); got != want {
			t.Errorf("a call that waits for %s has %v, want %v", text, got, want)
		}
	}
}
