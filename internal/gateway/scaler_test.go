package gateway

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/pawlq/pawl/api/keda"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// KEDA asks whether a queue has work, and how many slots it needs. The metadata of its trigger names the queue.
func TestKEDA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g, l := serve(t, f)
		g.cfg.Stats = newFakeStats()
		g.wire()
		conn := dial(t, l)
		client := keda.NewExternalScalerClient(conn)
		enqueue := func() {
			if _, err := pawlv1.NewProducerServiceClient(conn).Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a",
				Queue: new("mail")}}); err != nil {
				t.Fatal(err)
			}
		}
		enqueue()
		type trigger = map[string]string
		for _, c := range []struct {
			of     trigger
			metric string
			want   string
		}{
			{trigger{"queue": "mail"}, "pawl-slots-mail", "true, 10 of pawl-slots-mail, 6 6.0"},
			{trigger{"queue": "mail", "slotsPerWorker": "4", "targetSeconds": "1"}, "pawl-slots-mail",
				"true, 4 of pawl-slots-mail, 18 17.4"},
			{trigger{"queue": "mail", "slotsPerWorker": "100000", "targetSeconds": "86400"}, "pawl-slots-mail",
				"true, 100000 of pawl-slots-mail, 6 5.8"},
			{trigger{"queue": "idle", "slotsPerWorker": "1", "threshold": "5"}, "pawl-slots-idle", "false, 1 of pawl-slots-idle, 0 0.0"},
			{trigger{"queue": "mail"}, "pawl-slots-sms",
				`metricName: "pawl-slots-sms" is not the metric of the queue, which is "pawl-slots-mail"`},
			{trigger{}, "", "queue: is required in the metadata of the trigger"},
			{trigger{"queue": "mail", "slotsPerWorker": "0"}, "", `slotsPerWorker: "0" is not between 1 and 100000`},
			{trigger{"queue": "mail", "slotsPerWorker": "100001"}, "", `slotsPerWorker: "100001" is not between 1 and 100000`},
			{trigger{"queue": "mail", "slotsPerWorker": "many"}, "", `slotsPerWorker: "many" is not between 1 and 100000`},
			{trigger{"queue": "mail", "targetSeconds": ""}, "", `targetSeconds: "" is not between 1 and 86400`},
			{trigger{"queue": "mail", "targetSeconds": "86401"}, "", `targetSeconds: "86401" is not between 1 and 86400`},
		} {
			ref := &keda.ScaledObjectRef{ScalerMetadata: c.of}
			active, err := client.IsActive(t.Context(), ref)
			spec, err2 := client.GetMetricSpec(t.Context(), ref)
			metrics, err3 := client.GetMetrics(t.Context(), &keda.GetMetricsRequest{ScaledObjectRef: ref, MetricName: c.metric})
			var got string
			if err3 == nil && err == nil && err2 == nil {
				s, m := spec.MetricSpecs[0], metrics.MetricValues[0]
				got = fmt.Sprintf("%t, %d of %s, %d %.1f", active.Result, s.TargetSize, s.MetricName, m.MetricValue, m.MetricValueFloat)
				if s.TargetSizeFloat != float64(s.TargetSize) || m.MetricName != s.MetricName {
					t.Errorf("%v: metric spec %v, metric %v", c.of, s, m)
				}
			} else if got = status.Convert(err3).Message(); c.metric == "" && (err == nil || err2 == nil) {
				t.Errorf("%v: IsActive error %v, GetMetricSpec error %v, want both refused", c.of, err, err2)
			}
			if got != c.want {
				t.Errorf("%v: got %s, want %s", c.of, got, c.want)
			}
		}

		stream, err := client.StreamIsActive(t.Context(), &keda.ScaledObjectRef{ScalerMetadata: trigger{"queue": "later"}})
		if err != nil {
			t.Fatal(err)
		}
		sends := func(want bool, after time.Duration) {
			t.Helper()
			began := time.Now()
			if a, err := stream.Recv(); err != nil || a.Result != want || time.Since(began) != after {
				t.Errorf("after %v: got %v, %v, want %t after %v", time.Since(began), a, err, want, after)
			}
		}
		sends(false, 0)
		if _, err := pawlv1.NewProducerServiceClient(conn).Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a",
			Queue: new("later")}}); err != nil {
			t.Fatal(err)
		}
		sends(true, lookPause)
		pass(3*lookPause + lookPause/2) // between two looks, so that the next one certainly comes after the purge
		if _, err := pawlv1.NewOperatorServiceClient(conn).PurgeQueue(t.Context(), &pawlv1.PurgeQueueRequest{Queue: "later"}); err != nil {
			t.Fatal(err)
		}
		sends(false, lookPause/2)
		close(f.draining)
		if _, err := stream.Recv(); status.Convert(err).Message() != "this node is shutting down" {
			t.Errorf("the stream of a draining node ended with %v", err)
		}
		for _, of := range []trigger{{}, {"queue": "later"}} {
			f.set(func() { f.fails = nil })
			if s, err := client.StreamIsActive(t.Context(), &keda.ScaledObjectRef{ScalerMetadata: of}); err != nil {
				t.Fatal(err)
			} else if a, err := s.Recv(); (err == nil) != (of["queue"] != "") {
				t.Errorf("%v: got %v, %v", of, a, err)
			}
		}
	})
}

// deafScaler is a stream whose client accepts the first message, or nothing.
type deafScaler struct {
	grpc.ServerStreamingServer[keda.IsActiveResponse]
	ctx   context.Context
	leave func() // at the first answer
	takes error
}

func (s deafScaler) Context() context.Context { return s.ctx }
func (s deafScaler) Send(*keda.IsActiveResponse) error {
	s.leave()
	return s.takes
}

// A watch of a queue ends when its client leaves or can't be reached.
func TestWatchesOfScalersEnd(t *testing.T) {
	for _, want := range []error{context.Canceled, io.ErrClosedPipe} {
		g := newGateway(newFake())
		g.cfg.Stats = newFakeStats()
		g.wire()
		ctx, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
		ctx, leave := context.WithCancel(ctx)
		out := deafScaler{ctx: ctx, leave: leave}
		if want == io.ErrClosedPipe {
			out.leave, out.takes = func() {}, want
		}
		if err := (g.services.scaler).StreamIsActive(&keda.ScaledObjectRef{ScalerMetadata: map[string]string{"queue": "q"}},
			out); err != want {
			t.Errorf("StreamIsActive = %v, want %v", err, want)
		}
		leave()
	}
}

// This has the value in package statistics.
const lookPause = 2 * time.Second
