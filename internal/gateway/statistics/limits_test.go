package statistics

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl/api/keda"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// Nothing is returned along with an error.
func TestNoValueBesideError(t *testing.T) {
	limited, g := t.Context(), &Scaler{Stats: &Service{}}
	refused := map[string]func() (told any, err error){
		"number": func() (any, error) {
			return triggerNumber(&keda.ScaledObjectRef{ScalerMetadata: map[string]string{"x": "0"}}, "x", 9)
		},
		"trigger": func() (any, error) {
			_, n, err := g.scaleOf(limited, &keda.ScaledObjectRef{})
			return n, err
		},
		"slots of trigger": func() (any, error) {
			_, n, err := g.scaleOf(limited, &keda.ScaledObjectRef{ScalerMetadata: map[string]string{"queue": "q", "slotsPerWorker": "x"}})
			return n, err
		},
		"target of trigger": func() (any, error) {
			_, n, err := g.scaleOf(limited, &keda.ScaledObjectRef{ScalerMetadata: map[string]string{"queue": "q", "targetSeconds": "x"}})
			return n, err
		},
		"window":          func() (any, error) { return windowOf(durationpb.New(time.Second)) },
		"broken window":   func() (any, error) { return windowOf(&durationpb.Duration{Seconds: 1, Nanos: -1}) },
		"window of types": func() (any, error) { return typeWindowOf(durationpb.New(2 * time.Minute)) },
		"broken of types": func() (any, error) { return typeWindowOf(&durationpb.Duration{Seconds: 1, Nanos: -1}) },
	}
	for what, do := range refused {
		if told, err := do(); err == nil || !reflect.ValueOf(told).IsZero() {
			t.Errorf("%s: got %v with error %v, want the zero value and an error", what, told, err)
		}
	}
}

// Long input is quoted only in part.
func TestLongInputIsTruncated(t *testing.T) {
	long := strings.Repeat("x", 5000)
	_, number := triggerNumber(&keda.ScaledObjectRef{ScalerMetadata: map[string]string{"x": long}}, "x", 9)
	for what, c := range map[string]struct {
		said error
		most int
	}{"pattern": {checkTypePattern(strings.Repeat("*", 9)+long, task.Limits{Name: 9999}), 64 - 9}, "number": {number, 64}} {
		if repeated := regexp.MustCompile("x{9,}").FindString(fmt.Sprint(c.said)); len(repeated) != c.most {
			t.Errorf("%s: the error repeats %d bytes, want %d: %.400v", what, len(repeated), c.most, c.said)
		}
	}
}

// These limits are part of what callers rely on. Changing one must be deliberate.
func TestLimitsAreStable(t *testing.T) {
	for what, c := range map[string][2]int{
		"why a webhook fails": {maxWhy, 160}, "lines of a matter": {maxLines, 3}, "attempts that tell of failure": {fewAttempts, 10},
		"failures of a webhook": {hookFails, 3}, "a trigger": {maxTrigger, 1024}, "slots of a scaling question": {defaultScaleSlots, 10},
		"queues of a type": {maxTypeQueues, 20},
	} {
		if c[0] != c[1] {
			t.Errorf("limit of %s = %d, want %d", what, c[0], c[1])
		}
	}
}

// Without a cluster and webhooks, attention reports nothing about them.
func TestAttentionWithoutACluster(t *testing.T) {
	g := &Service{}
	if o, known := g.askOverview(t.Context()); !known || len(o.Nodes) != 0 {
		t.Errorf("askOverview without a cluster = %+v, %t", o, known)
	}
	if hooks := g.askWebhooks(t.Context(), "default"); hooks != nil {
		t.Errorf("askWebhooks without webhooks = %v", hooks)
	}
	g.Nodes = silentNodes{}
	if _, known := g.askOverview(t.Context()); known {
		t.Error("the overview of a cluster that does not answer is reported as known")
	}
}

// silentNodes is a cluster that does not answer.
type silentNodes struct{}

func (silentNodes) Overview(context.Context) (cluster.Overview, error) {
	return cluster.Overview{}, task.Unavailable(0, "planted")
}
