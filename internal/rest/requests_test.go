package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/contract"
)

// asked are the requests that reach the API's calls.
type asked struct{ requests []string }

func (a *asked) note(name string, in proto.Message) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(in)
	var compact bytes.Buffer // protojson's spaces vary
	if err == nil {
		err = json.Compact(&compact, text)
	}
	if err != nil {
		panic(err)
	}
	a.requests = append(a.requests, name+" "+compact.String())
}

// register registers services whose calls note their request, and answer with little.
func (a *asked) register(s grpc.ServiceRegistrar) {
	for name, c := range contract.Calls() {
		service, method, _ := strings.Cut(name, "/")
		input, err := protoregistry.GlobalTypes.FindMessageByName(c.Method.Input().FullName())
		if err != nil {
			panic(err)
		}
		output, err := protoregistry.GlobalTypes.FindMessageByName(c.Method.Output().FullName())
		if err != nil {
			panic(err)
		}
		handle := func(_ any, _ context.Context, fill func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := input.New().Interface()
			if err := fill(in); err != nil {
				return nil, err
			}
			a.note(name, in)
			out := output.New().Interface()
			fillAnswer(in, out)
			return out, nil
		}
		methods := []grpc.MethodDesc{{MethodName: method, Handler: handle}}
		s.RegisterService(&grpc.ServiceDesc{ServiceName: "pawl.v1." + service, Methods: methods}, nil)
	}
}

// fillAnswer adds an answer for each item of a batch. A task is of another content type than JSON.
func fillAnswer(in, out proto.Message) {
	switch out := out.(type) {
	case *pawlv1.GetTaskResponse:
		out.Task = &pawlv1.Task{ContentType: "image/png"}
	case *pawlv1.EnqueueBatchResponse:
		for range in.(*pawlv1.EnqueueBatchRequest).GetTasks() {
			out.Results = append(out.Results, &pawlv1.EnqueueResult{})
		}
	case *pawlv1.SettleResponse:
		r := in.(*pawlv1.SettleRequest)
		out.Acks, out.Fails = settledAs(r.GetAcks()), settledAs(r.GetFails())
		out.Extends, out.Releases = settledAs(r.GetExtends()), settledAs(r.GetReleases())
	}
}

func settledAs[T any](items []T) (out []*pawlv1.Settled) {
	for range items {
		out = append(out, &pawlv1.Settled{})
	}
	return out
}

// TestRequests: what the special routes ask the API for.
func TestRequests(t *testing.T) {
	used := map[string]bool{}
	datadriven.RunTest(t, "testdata/requests.txt", func(t *testing.T, d *datadriven.TestData) string {
		a := &asked{}
		cfg := Config{Register: a.register, Call: func(r *http.Request, on *Route, handle func(context.Context) error) Outcome {
			used[on.String()] = true
			return call(r, on, handle)
		}, Batch: 1000, Large: admission.NewMemoryPool(1 << 20), Extra: admission.NewMemoryPool(1 << 20), Namespace: anyNamespace}
		cfg.Events = func(_ context.Context, r *pawlv1.WatchEventsRequest, _ func(), _ func(*pawlv1.WatchEventsResponse) error) error {
			a.note("EventService/WatchEvents", r)
			return nil
		}
		target, rest, _ := strings.Cut(d.Input, "\n")
		r := httptest.NewRequest(d.Cmd, target, nil)
		for line := range strings.SplitSeq(rest, "\n") {
			if name, value, header := strings.Cut(line, ": "); header && !strings.HasPrefix(line, "{") {
				r.Header.Add(name, value)
			} else if line != "" {
				with := httptest.NewRequest(d.Cmd, target, strings.NewReader(line))
				with.Header = r.Header
				r = with
			}
		}
		w := httptest.NewRecorder()
		New(cfg).ServeHTTP(w, r)
		for _, name := range []string{"Cache-Control", "Retry-After"} {
			if v := w.Header().Get(name); v != "" {
				a.requests = append(a.requests, name+": "+v)
			}
		}
		return strings.Join(append(a.requests, fmt.Sprint(w.Code)), "\n") + "\n"
	})
	for name := range special {
		if !used[name] {
			t.Errorf("testdata/requests.txt has no %s", name)
		}
	}
}
