package pawl

import (
	"crypto/tls"
	"log/slog"
	"reflect"
	"testing"
	"time"

	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pawlq/pawl/keyring"
)

// Options that are set override earlier ones. Others leave them unchanged.
func TestOptionsAreMerged(t *testing.T) {
	set := func(word string) DialOptions {
		return DialOptions{TLS: &tls.Config{ServerName: word}, Plaintext: true, Token: word, Namespace: word, Keyring: new(keyring.Keyring),
			RetryFor: time.Duration(len(word)), Logger: slog.New(slog.DiscardHandler), NoRouting: true,
			Telemetry: Telemetry{TracerProvider: noop.NewTracerProvider(), MeterProvider: noopmetric.NewMeterProvider(),
				Propagator: propagation.Baggage{}, LinkedTraces: true}}
	}
	for _, x := range []struct{ before, next, want DialOptions }{
		{set("a"), DialOptions{}, set("a")},
		{DialOptions{}, set("a"), set("a")},
		{set("a"), set("bc"), set("bc")},
	} {
		got := x.before
		if got.merge(&x.next); !reflect.DeepEqual(got, x.want) {
			t.Errorf("merging %+v and %+v: got %+v", x.before, x.next, got)
		}
	}
	source := func() (string, error) { return "exchanged", nil }
	for want, list := range map[string][]DialOptions{"exchanged": {{Token: "a"}, {TokenSource: source}}, "b": {{TokenSource: source},
		{Token: "b"}}, "exchanged ": {{Token: "a", TokenSource: source}}} {
		var all DialOptions
		for _, o := range list {
			all.merge(&o)
		}
		if got, err := all.config().Route.Token(); err != nil || got != want[:min(len(want), 9)] {
			t.Errorf("%+v: got the token %q, %v", list, got, err)
		}
	}
	if all := (DialOptions{}); all.config().Route.Token != nil || all.config().RetryFor != defaultRetryFor {
		t.Error("by default there is a token, or RetryFor is not the default")
	}
}
