package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/pawlq/pawl/internal/version"
)

// Logs returns a function that exports log records, and returns how many the collector has rejected for good, once it has accepted the
// others; nil: they are not exported. It is called by one goroutine at a time. Outages of the collector go to log. stop ends the connection
// to the collector.
func Logs(ctx context.Context, service string, log *slog.Logger) (export Export, stop func(), err error) {
	protocol, err := protocolOf(logs)
	if protocol == "" || err != nil {
		return nil, func() {}, err
	}
	if err := checkSettings(logs, logSettings); err != nil {
		return nil, nil, err
	}
	logErrors(log) // before any error can occur
	l := &logExporter{log: log}
	if protocol == overGRPC {
		l.Exporter, err = otlploggrpc.New(ctx)
	} else {
		l.Exporter, err = otlploghttp.New(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	from, err := resourceOf(ctx, service)
	if err != nil {
		return nil, nil, err
	}
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(from), sdklog.WithProcessor(&l.records))
	l.logger = provider.Logger("github.com/pawlq/pawl/internal/audit/trail", otellog.WithInstrumentationVersion(version.Version))
	return l.export, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		_ = l.Shutdown(ctx) // nothing is queued in it
	}, nil
}

// Export exports log records, as trail.Config has it.
type Export = func(context.Context, []slog.Record) (rejected int, err error)

// logExporter exports log records, and logs when they stop arriving, and when they arrive again.
type logExporter struct {
	sdklog.Exporter
	log     *slog.Logger
	logger  otellog.Logger
	records recordList
	since   time.Time // start of the outage that was logged; zero: none
	logged  time.Time // when an outage was last logged
	refused time.Time // when a rejection was last logged
}

func (l *logExporter) export(ctx context.Context, records []slog.Record) (rejected int, err error) {
	for i := range records {
		l.logger.Emit(ctx, recordOf(&records[i]))
	}
	now := time.Now()
	err = l.Export(ctx, l.records.take())
	rejected, final := rejectedOf(err, len(records))
	if final { // OTLP forbids sending it again: the collector has what it will take
		if l.refused.IsZero() || now.Sub(l.refused) >= outageEvery {
			l.refused = now
			l.log.Warn("the collector did not take audit events as they are", "rejected", rejected, "error", err)
		}
		err = nil
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled): // the node stops, which is no outage: the batch is sent once more
	case err != nil && l.since.IsZero() && (l.logged.IsZero() || now.Sub(l.logged) >= outageEvery):
		l.since, l.logged = now, now
		l.log.Warn("audit events are not exported: they wait", "error", err)
	case err == nil && rejected < len(records) && !l.since.IsZero():
		l.log.Info("audit events are exported again", "after", now.Sub(l.since).Round(time.Second).String())
		l.since = time.Time{}
	}
	return rejected, err
}

// rejectedOf returns how many records of an export the collector will never take; not final: it may take all of them later.
//
// It takes none of a batch that is invalid, too large or makes it fail; its other refusals are about credentials,
// addresses and rates, which operators mend. The exporters have no types for these errors.
func rejectedOf(err error, records int) (rejected int, final bool) {
	if err == nil {
		return 0, false
	}
	text := err.Error()
	if partial, ok := strings.CutPrefix(text, "OTLP partial success: "); ok {
		_, _ = fmt.Sscanf(partial[strings.LastIndexByte(partial, '(')+1:], "%d", &rejected) // 0: it is a warning
		return min(max(rejected, 0), records), true
	}
	code, _ := strings.CutPrefix(text, "rpc error: code = ")
	if answer, ok := strings.CutPrefix(text, "failed to send logs to "); ok {
		_, code, _ = strings.Cut(answer, ": ")
	}
	if records == 1 && strings.HasPrefix(code, "ResourceExhausted ") && strings.Contains(code, "larger than max") {
		return 1, true // of several, each alone may fit
	}
	if code, _, _ = strings.Cut(code, " "); slices.Contains([]string{"400", "413", "500", "InvalidArgument", "Internal"}, code) {
		return records, true
	}
	return 0, false
}

// recordOf converts a record. The value of its attribute "event" is its event name.
func recordOf(r *slog.Record) (out otellog.Record) {
	out.SetTimestamp(r.Time)
	out.SetSeverity(otellog.Severity(int(r.Level) + int(otellog.SeverityInfo))) // both have steps of four
	out.SetSeverityText(r.Level.String())
	out.SetBody(attribute.StringValue(r.Message))
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value; v.Kind() {
		case slog.KindInt64:
			out.AddAttributes(attribute.Int64(a.Key, v.Int64()))
		case slog.KindBool:
			out.AddAttributes(attribute.Bool(a.Key, v.Bool()))
		default:
			out.AddAttributes(attribute.String(a.Key, v.String()))
		}
		if a.Key == "event" {
			out.SetEventName("pawl." + a.Value.String())
		}
		return true
	})
	return out
}

// recordList is a processor that collects records. OpenTelemetry's own ones export by themselves, and lose what a collector does not take.
type recordList struct {
	mu   sync.Mutex
	list []sdklog.Record
}

func (l *recordList) take() []sdklog.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// OnEmit implements sdklog.Processor.
func (l *recordList) OnEmit(_ context.Context, r *sdklog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, r.Clone())
	return nil
}

// Enabled implements sdklog.Processor.
func (*recordList) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// Shutdown implements sdklog.Processor.
func (*recordList) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdklog.Processor.
func (*recordList) ForceFlush(context.Context) error { return nil }
