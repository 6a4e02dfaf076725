package pawltest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// A client records the metrics that OpenTelemetry's conventions require of clients.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		client := pawltest.New(t).Client(t, pawl.DialOptions{Telemetry: pawl.Telemetry{
			MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}})
		w := &traced{T: t, client: client}
		if _, err := client.Enqueue(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Enqueue(t.Context(), task, pawl.Priority("urgent")); err == nil { // refused before it is sent
			t.Fatal("an invalid priority was accepted")
		}
		if _, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "t", Payload: []byte("{")}); err == nil {
			t.Fatal("a payload that is not JSON was accepted")
		}
		if _, err := client.EnqueueBatch(t.Context(), []pawl.Item{{Args: pawl.RawTask{Type: "bad"}},
			{Args: task, Options: []pawl.Option{pawl.Queue("other")}}}); err != nil {
			t.Fatal(err)
		}
		w.work(10*time.Second, map[string]pawl.Handler{
			"t":   func(context.Context, *pawl.Claim) error { time.Sleep(2 * time.Second); return nil },
			"bad": func(context.Context, *pawl.Claim) error { return pawl.DeadLetter(errors.New("no route")) },
		})
		claimed, err := claims.New(client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"other"}})
		if err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		if err := claims.New(client).Ack(t.Context(), claimed[0]); err != nil {
			t.Fatal(err)
		}
		want := `
messaging.client.consumed.messages claim other: 1
messaging.client.consumed.messages process default: 2
messaging.client.operation.duration ack default: 1
messaging.client.operation.duration ack other: 1
messaging.client.operation.duration claim other: 1
messaging.client.operation.duration fail default: 1
messaging.client.operation.duration send default error=invalid_argument: 1
messaging.client.operation.duration send default: 1
messaging.client.operation.duration send: 1
messaging.client.sent.messages send default error=invalid_argument: 1
messaging.client.sent.messages send default: 1
messaging.client.sent.messages send: 2
messaging.process.duration process default error=*errors.errorString: 1, 0s
messaging.process.duration process default: 1, 2s`
		if got := measured(t, reader); got != strings.TrimSpace(want) {
			t.Errorf("got\n%s\nwant%s", got, want)
		}
	})
}

// measured returns a line for each series: its metric, verb and queue, and how often it was recorded. For runs it adds how long they took.
func measured(t *testing.T, reader *metric.ManualReader) string {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	add := func(name string, of attribute.Set, value string) {
		verb, _ := of.Value("messaging.operation.name")
		line := name + " " + verb.AsString()
		if queue, ok := of.Value("messaging.destination.name"); ok {
			line += " " + queue.AsString()
		}
		if failed, ok := of.Value("error.type"); ok {
			line += " error=" + failed.AsString()
		}
		if system, _ := of.Value("messaging.system"); system.AsString() != "pawl" {
			t.Errorf("%s has the messaging.system %q, want pawl", line, system.AsString())
		}
		lines[line+": "+value] = true
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, fmt.Sprint(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					value := fmt.Sprint(p.Count)
					if m.Name == "messaging.process.duration" {
						value += ", " + time.Duration(p.Sum*float64(time.Second)).Round(time.Second).String()
					}
					add(m.Name, p.Attributes, value)
				}
			default:
				t.Errorf("metric %s has the type %T", m.Name, data)
			}
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n")
}
