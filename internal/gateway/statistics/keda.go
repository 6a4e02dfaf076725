package statistics

import (
	"context"
	"math"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl/api/keda"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// Scaler implements KEDA's ExternalScaler. KEDA divides the value from GetMetrics, the slots that a queue needs, by the one from
// GetMetricSpec, the slots of one worker, and rounds up.
type Scaler struct {
	keda.UnimplementedExternalScalerServer
	Stats  *Service
	Broker interface{ Draining() <-chan struct{} }
}

const (
	// activeLook is how often a stream checks whether a queue is active.
	activeLook = 2 * time.Second
	// maxTrigger bounds a value of a trigger's metadata, in bytes.
	maxTrigger = 1024
)

// scaleOf decodes a trigger's metadata. KEDA adds its own settings, so unknown ones are ignored.
func (g *Scaler) scaleOf(ctx context.Context, ref *keda.ScaledObjectRef) (*pawlv1.GetQueueScaleResponse, int64, error) {
	req := &pawlv1.GetQueueScaleRequest{Queue: ref.GetScalerMetadata()["queue"], Slots: defaultScaleSlots}
	if req.Queue == "" {
		return nil, 0, task.Invalid("queue", "is required in the metadata of the trigger")
	}
	slots, err := triggerNumber(ref, "slotsPerWorker", contract.MaxScaleSlots)
	if err != nil {
		return nil, 0, err
	}
	if slots > 0 {
		req.Slots = int32(slots) // #nosec G115 -- bounded
	}
	seconds, err := triggerNumber(ref, "targetSeconds", int64(maxScaleTarget/time.Second))
	if err != nil {
		return nil, 0, err
	}
	if seconds > 0 {
		req.Target = durationpb.New(time.Duration(seconds) * time.Second)
	}
	s, err := g.Stats.GetQueueScale(ctx, req)
	return s, int64(req.Slots), err
}

// triggerNumber parses a positive number in a trigger's metadata; 0 if it is absent.
func triggerNumber(ref *keda.ScaledObjectRef, name string, most int64) (int64, error) {
	s, given := ref.GetScalerMetadata()[name]
	if !given {
		return 0, nil
	}
	n, err := strconv.ParseInt(task.Cut(s, maxTrigger), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, task.Invalid(name, "%q is not between 1 and %d", task.Cut(s, 64), most)
	}
	return n, nil
}

// metricName returns the name of a queue's metric.
func metricName(queue string) string { return "pawl-slots-" + queue }

// IsActive reports whether a queue has anything to do.
func (g *Scaler) IsActive(ctx context.Context, ref *keda.ScaledObjectRef) (*keda.IsActiveResponse, error) {
	s, _, err := g.scaleOf(ctx, ref)
	return &keda.IsActiveResponse{Result: s.GetActive()}, err
}

// StreamIsActive sends that immediately and at each change, until the caller or this node goes away.
func (g *Scaler) StreamIsActive(ref *keda.ScaledObjectRef, out grpc.ServerStreamingServer[keda.IsActiveResponse]) error {
	ctx := out.Context()
	tick := time.NewTicker(activeLook)
	defer tick.Stop()
	for sent, active := false, false; ; {
		s, _, err := g.scaleOf(ctx, ref)
		if err != nil {
			return err
		}
		if !sent || s.GetActive() != active {
			if err := out.Send(&keda.IsActiveResponse{Result: s.GetActive()}); err != nil {
				return err
			}
			sent, active = true, s.GetActive()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.Broker.Draining():
			return task.Unavailable(time.Second, "this node is shutting down")
		case <-tick.C:
		}
	}
}

// GetMetricSpec returns how much of the metric one worker handles.
func (g *Scaler) GetMetricSpec(ctx context.Context, ref *keda.ScaledObjectRef) (*keda.GetMetricSpecResponse, error) {
	s, slots, err := g.scaleOf(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &keda.GetMetricSpecResponse{MetricSpecs: []*keda.MetricSpec{{MetricName: metricName(s.GetQueue()), TargetSize: slots,
		TargetSizeFloat: float64(slots)}}}, nil
}

// GetMetrics returns how many slots a queue needs.
func (g *Scaler) GetMetrics(ctx context.Context, r *keda.GetMetricsRequest) (*keda.GetMetricsResponse, error) {
	s, _, err := g.scaleOf(ctx, r.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	name := metricName(s.GetQueue())
	if r.GetMetricName() != name {
		return nil, task.Invalid("metricName", "%q is not the metric of the queue, which is %q", task.Cut(r.GetMetricName(), 256), name)
	}
	return &keda.GetMetricsResponse{MetricValues: []*keda.MetricValue{{MetricName: name, MetricValue: int64(math.Ceil(s.GetSlots())),
		MetricValueFloat: s.GetSlots()}}}, nil
}
