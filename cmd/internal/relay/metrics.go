package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawlq/pawl/outbox"
)

// scrapeTime is how long a scrape waits for the database.
const scrapeTime = 5 * time.Second

// figures are the Prometheus metrics of a relay and its outbox.
type figures struct {
	box   *outbox.Outbox
	relay *outbox.Relay
}

var (
	upDesc      = prometheus.NewDesc("pawl_outbox_up", "Whether the database answered the relay's question for this scrape.", nil, nil)
	waitingDesc = prometheus.NewDesc("pawl_outbox_waiting_rows", "Rows that are committed and not enqueued yet.", nil, nil)
	oldestDesc  = prometheus.NewDesc("pawl_outbox_oldest_row_seconds",
		"For how long the first of those rows has waited; 0 if there is none.", nil, nil)
	deadDesc   = prometheus.NewDesc("pawl_outbox_dead_rows", "Rows that the server has refused for good.", nil, nil)
	activeDesc = prometheus.NewDesc("pawl_outbox_relay_active", "Whether this relay holds the lease.", nil, nil)
	rowsDesc   = prometheus.NewDesc("pawl_outbox_rows_total",
		"Rows that this relay has dealt with: enqueued, repeated (the task was there), or dead.", []string{"result"}, nil)
)

// Describe implements prometheus.Collector.
func (f *figures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, waitingDesc, oldestDesc, deadDesc, activeDesc, rowsDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector. While the database doesn't answer, the metrics of its tables are left out.
func (f *figures) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	s, err := f.box.Status(ctx, 0)
	gauge(upDesc, number(err == nil))
	if err == nil {
		gauge(waitingDesc, float64(s.Waiting))
		gauge(oldestDesc, s.Oldest.Seconds())
		gauge(deadDesc, float64(s.Dead))
	}
	r := f.relay.Stats()
	gauge(activeDesc, number(r.Active))
	for result, n := range map[string]int64{"enqueued": r.Enqueued, "repeated": r.Repeated, "dead": r.Dead} {
		to <- prometheus.MustNewConstMetric(rowsDesc, prometheus.CounterValue, float64(n), result)
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (f *figures) handler() http.Handler {
	all := prometheus.NewRegistry()
	all.MustRegister(f)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return mux
}

// serveMetrics serves GET /metrics at an address until ctx is done; stop waits for the server to end.
func serveMetrics(ctx context.Context, addr string, f *figures, log *slog.Logger) (stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: f.handler(), ReadHeaderTimeout: scrapeTime, ReadTimeout: scrapeTime, WriteTimeout: 2 * scrapeTime,
		IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	log.Info("serving metrics", "address", l.Addr().String())
	return func() { _ = server.Close(); <-done }, nil
}
