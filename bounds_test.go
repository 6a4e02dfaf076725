package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/google/uuid"
	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

// Run reports invalid fields of a worker's configuration, and the bounds themselves are valid.
func TestWorkerConfigBounds(t *testing.T) {
	_, client := start(t)
	ended, end := context.WithCancel(t.Context())
	end() // a valid worker ends immediately
	types := func(n int) *pawl.Mux {
		mux := pawl.NewMux()
		for i := range n {
			mux.HandleFunc(fmt.Sprint("t", i), func(context.Context, *pawl.Claim) error { return nil })
		}
		return mux
	}
	for what, x := range map[string]struct {
		mux   *pawl.Mux
		cfg   pawl.WorkerConfig
		field string // empty: valid
	}{
		"no types":        {types(0), pawl.WorkerConfig{}, "types"},
		"many types":      {types(1000), pawl.WorkerConfig{}, ""},
		"too many":        {types(1001), pawl.WorkerConfig{}, "types"},
		"no slots":        {types(1), pawl.WorkerConfig{Concurrency: -1}, "concurrency"},
		"the most slots":  {types(1), pawl.WorkerConfig{Concurrency: 10_000}, ""},
		"one more":        {types(1), pawl.WorkerConfig{Concurrency: 10_001}, "concurrency"},
		"a short lease":   {types(1), pawl.WorkerConfig{Lease: time.Second}, ""},
		"a shorter one":   {types(1), pawl.WorkerConfig{Lease: time.Second - 1}, "lease"},
		"a long lease":    {types(1), pawl.WorkerConfig{Lease: 12 * time.Hour}, ""},
		"a longer one":    {types(1), pawl.WorkerConfig{Lease: 12*time.Hour + 1}, "lease"},
		"negative bytes":  {types(1), pawl.WorkerConfig{MaxBytes: -1}, "max_bytes"},
		"the longest":     {types(1), pawl.WorkerConfig{Name: strings.Repeat("n", 256)}, ""},
		"a longer name":   {types(1), pawl.WorkerConfig{Name: strings.Repeat("n", 257)}, "worker"},
		"not UTF-8":       {types(1), pawl.WorkerConfig{Name: "\xff"}, "worker"},
		"a wrong queue":   {types(1), pawl.WorkerConfig{Queues: pawl.Strict{""}}, "queues"},
		"without queues":  {types(1), pawl.WorkerConfig{Queues: pawl.Strict{}}, "queues"},
		"all by default":  {types(1), pawl.WorkerConfig{}, ""},
		"one slot, named": {types(1), pawl.WorkerConfig{Concurrency: 1, Name: "w", Lease: time.Minute, MaxBytes: 1}, ""},
	} {
		err := pawl.NewWorker(client, x.mux, x.cfg).Run(ended)
		refused, _ := errors.AsType[*pawltype.Error](err)
		if (err == nil) != (x.field == "") || err != nil && (refused == nil || refused.Field != x.field) {
			t.Errorf("%s: got %v, want an error of field %q", what, err, x.field)
		}
	}
}

// Headers accumulate, and a result that can't be waited for is an error.
func TestHeadersAddUp(t *testing.T) {
	f, client := start(t)
	ref, err := client.Enqueue(t.Context(), welcome{}, pawl.Header("a", "1"), pawl.Header("b", "2"))
	if err != nil {
		t.Fatal(err)
	}
	f.set(func() {
		if got := f.tasks[ref.ID].spec.Headers; got["a"] != "1" || got["b"] != "2" {
			t.Errorf("the task has the headers %v, want both", got)
		}
	})
	ended, end := context.WithCancel(t.Context())
	end()
	if err := ref.Result(ended, new(int)); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a result with an ended context: %v, want Canceled", err)
	}
}

// Without random numbers there are no request ids, and nothing is sent.
func TestNoRandomIDs(t *testing.T) {
	f, client := start(t)
	uuid.SetRand(iotest.ErrReader(errors.New("no entropy")))
	defer uuid.SetRand(nil)
	_, alone := client.Enqueue(t.Context(), welcome{})
	_, group := client.EnqueueGroup(t.Context(), pawl.GroupSpec{})
	for _, err := range []error{alone, group} {
		if err == nil || !strings.HasSuffix(err.Error(), ": request id: no entropy") || len(f.enqueues) > 0 {
			t.Errorf("got %v after %d requests, want an error about the request id and no request", err, len(f.enqueues))
		}
	}
}

// Each task of a batch has a span that ends, and an empty batch has none.
func TestTasksOfBatchesAreTraced(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	f, client := start(t, pawl.DialOptions{Telemetry: pawl.Telemetry{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}})
	f.set(func() {
		f.operator = func(method string, _ any) (any, bool) {
			return &pawlv1.AddGroupTasksResponse{Results: []*pawlv1.EnqueueResult{{}, {}}}, method == "AddGroupTasks"
		}
	})
	items := []pawl.Item{{Args: welcome{}}, {Args: welcome{}}}
	traced := func(what string, specs ...*pawlv1.TaskSpec) {
		t.Helper()
		for i, spec := range specs {
			if spec.GetHeaders()["traceparent"] == "" {
				t.Errorf("%s: task %d has no traceparent", what, i)
			}
		}
	}
	ended := func(what string, err error, want int) {
		t.Helper()
		if got := len(spans.Ended()); err != nil || got != want {
			t.Errorf("%s: %v, %d spans have ended, want %d", what, err, got, want)
		}
	}
	_, err := client.EnqueueBatch(t.Context(), nil)
	ended("nothing", err, 0)
	_, err = client.EnqueueBatch(t.Context(), items)
	ended("a batch", err, 3)
	_, err = client.AddToGroup(t.Context(), "g", items)
	ended("tasks of a group", err, 6)
	_, err = client.Enqueue(t.Context(), welcome{})
	ended("a task", err, 7)
	var group *pawlv1.CreateGroupRequest
	f.set(func() {
		f.operator = func(_ string, req any) (any, bool) {
			group = req.(*pawlv1.CreateGroupRequest)
			return &pawlv1.CreateGroupResponse{Tasks: []*pawlv1.EnqueueResult{{}, {}}}, true
		}
	})
	_, err = client.EnqueueGroup(t.Context(), pawl.GroupSpec{Tasks: items, OnComplete: &items[0], RequestID: "r"})
	ended("a group", err, 10)
	if traced("what follows a group", group.GetOnComplete()); group.GetOnSuccess() != nil || group.GetRequestId() != "r" {
		t.Errorf("the group was sent as %v", group)
	}
	_, err = client.EnqueueGroup(t.Context(), pawl.GroupSpec{Tasks: items})
	ended("another group", err, 13)
	if id, err := uuid.Parse(group.GetRequestId()); err != nil || id.Version() != 7 {
		t.Errorf("the group has the request id %q, want a UUIDv7", group.GetRequestId())
	}
	f.set(func() { f.operator, f.enqueues = nil, nil })
	_, err = client.EnqueueBatch(t.Context(), slices.Repeat(items[:1], 1001))
	ended("two requests", err, 1016)
	traced("a request", f.enqueues[0]...)
	traced("the request after it", f.enqueues[1]...)
	_, err = client.EnqueueBatch(t.Context(), []pawl.Item{{Args: pawl.RawTask{Type: "big", Payload: make([]byte, 5<<20),
		ContentType: "x"}}})
	ended("a request for one that is too large", err, 1016+2)
}
