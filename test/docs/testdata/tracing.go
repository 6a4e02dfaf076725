package fragment

import (
	"github.com/pawlq/pawl"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

var (
	addr    string
	tracers trace.TracerProvider
	meters  metric.MeterProvider
)
