package metrics

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/pawlq/pawl/internal/stats"
)

var update = flag.Bool("update", false, "write testdata/page.txt and the table of docs/metrics.md anew")

func sources(recorder *stats.Recorder) Sources {
	return Sources{Version: "v1", Stats: recorder,
		Queues: func(context.Context) ([]Queue, error) {
			return []Queue{{Namespace: "default", Name: "mail", Ready: 3, Claimed: 2, Dead: 5, NewDead: 1, Looked: true,
				OldestReady: 90 * time.Second, MaxWait: time.Minute, Blocked: map[string]int64{"queue_paused": 3, "no_worker": 1}},
				{Namespace: "default", Name: `od"d\`, Scheduled: 1}}, nil
		},
		Shards: func(context.Context) []Shard {
			return []Shard{{ID: 0, Leads: true, Answers: true, HasLeader: true, LeaderChanges: 1, Applied: 90, Bytes: 4096,
				Lag: map[string]uint64{"n2": 0, "n3": 12}, Differs: map[string]bool{"n1": false, "n2": false, "n3": true}},
				{ID: 1, HasLeader: true, LeaderChanges: 4, Applied: 1000, Bytes: 1 << 20}, {ID: 2, Leads: true, HasLeader: true,
					Applied: 7, Bytes: 1 << 10}}
		},
		Spaces: func() []string { return []string{"default", "team-a"} },
		Namespaces: func(context.Context) []Namespace {
			return []Namespace{{Name: "team-a", Quotas: map[string]int64{"max_backlog": 1000, "max_running": 5},
				Usage: map[string]int64{"max_backlog": 850, "max_running": 5}, Refused: map[string]int64{"max_backlog": 3,
					"max_requests_per_second": 12}}}
		},
		Workers: func() []Workers {
			return []Workers{{Namespace: "default", Queues: map[string]int{"mail": 2, "video": 1}, Busy: 7, Free: 13}}
		},
		Node: func() Node {
			return Node{DiskFree: 5 << 30, DiskTotal: 10 << 30, MinFree: 256 << 20, ClockOffset: -1500 * time.Millisecond,
				LogBytes: 1 << 20, CertificateEnds: map[string]time.Time{"server": time.Unix(1_800_000_000, 0),
					"peer": time.Unix(1_900_000_000, 0)},
				Refused: map[string]uint64{"none": 0, "malformed": 0, "unknown": 7, "expired": 0, "denied": 1},
				Events: map[string]Events{
					"logins": {3, 0}, "refusals": {100, 20}}, EventsLost: 2}
		},
		Webhooks: func(context.Context) Webhooks {
			return Webhooks{Delivered: 12, Failed: 3, Dropped: 1, Oldest: 90 * time.Second, Leads: true,
				States: map[string]map[string]int{"team-a": {"active": 2, "failing": 0, "paused": 0, "disabled": 1}}}
		}}
}

// scenario has something of everything.
func scenario() *Page {
	recorder := stats.New(time.Now())
	of := func(c ...stats.Counter) (s stats.Set) {
		for _, c := range c {
			s = s.With(c)
		}
		return s
	}
	for i := range 10 {
		recorder.Record(time.Now(), []stats.Event{
			{Namespace: "default", Queue: "mail", Type: "welcome", Counts: of(stats.Enqueued), Ran: -1},
			{Namespace: "default", Queue: "mail", Type: "welcome", Counts: of(stats.Claimed), Waited: time.Duration(i) * time.Second,
				Ran: -1},
			{Namespace: "default", Queue: "mail", Type: "welcome", Counts: of(stats.Succeeded), Ran: 20 * time.Millisecond},
		})
	}
	recorder.Record(time.Now(), []stats.Event{
		{Namespace: "default", Queue: "mail", Type: "report", Counts: of(stats.Failed, stats.Dead), Ran: time.Minute},
		{Namespace: "default", Queue: "mail", Type: "report", Counts: of(stats.Crashed), Ran: -1}})
	recorder.Stale("default", "reclaimed")
	recorder.Tick(time.Now(), stats.Tick{Namespace: "default", Schedule: "nightly", Late: 40 * time.Millisecond})
	recorder.Tick(time.Now(), stats.Tick{Namespace: "default", Schedule: "nightly", Late: time.Hour, Skipped: 3, Reason: "missed"})
	p := New(sources(recorder))
	p.Called("grpc", "ProducerService/Enqueue", "ok", 3*time.Millisecond, false)
	p.Called("rest", "GET /api/v1/tasks/{id}", "not_found", 200*time.Microsecond, false)
	p.Called("rest", "GET /api/v1/tasks/{id}", "ok", 20*time.Second, true)
	p.Streams("grpc", "WorkerService/Work", 1)
	p.Streams("grpc", "WorkerService/Work", 1)
	p.Streams("grpc", "WorkerService/Work", -1)
	p.Called("grpc", "WorkerService/Work", "ok", -1, false)
	p.Shard(1).Saved(2 * time.Millisecond)
	p.Shard(1).Committed(4 * time.Millisecond)
	return p
}

func (p *Page) read(t testing.TB) string {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("the page has status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// The page as Prometheus reads it, except for the version of Go.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := regexp.MustCompile(`go_version="[^"]*"`).ReplaceAllString(scenario().read(t), `go_version="go"`)
		const golden = "testdata/page.txt"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || got != string(want) {
			t.Errorf("the page has changed (%v). Check the difference, and run go test ./internal/metrics -update. Got\n%s", err, got)
		}
		problems, err := promlint.New(strings.NewReader(got)).Lint()
		for _, p := range problems {
			if p.Metric != "pawl_queues" && !strings.Contains(p.Text, "should not include") {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// TestSeriesBeginAtZero: counters that alerts or the dashboard use are exported as 0 before they have counted anything, or their first
// increase would be invisible.
func TestSeriesBeginAtZero(t *testing.T) {
	recorder := stats.New(time.Now())
	src := sources(recorder)
	src.Node = func() Node { return Node{Refused: map[string]uint64{"unknown": 0}} }
	src.Webhooks = func(context.Context) Webhooks { return Webhooks{} }
	p := New(src)
	p.Shard(1)
	fresh := p.read(t)
	recorder.Record(time.Now(), []stats.Event{{Namespace: "default", Queue: "mail", Type: "welcome",
		Counts: stats.Set(0).With(stats.Enqueued), Ran: -1}})
	began := p.read(t)
	for _, c := range []struct{ page, series string }{
		{fresh, `pawl_cron_skipped_total{namespace="team-a",reason="missed"} 0`},
		{fresh, `pawl_schedules_late{namespace="team-a"} 0`},
		{fresh, `pawl_webhook_dropped_total 0`},
		{fresh, `pawl_webhook_deliveries_total{outcome="failed"} 0`},
		{fresh, `pawl_access_refused_total{reason="unknown"} 0`},
		{fresh, `pawl_audit_events_lost_total 0`},
		{fresh, `pawl_queue_new_dead_letters{namespace="default",queue="od\"d\\"} 0`},
		{fresh, `pawl_audit_evicted_entries_total{shard="0"} 0`},
		{fresh, `pawl_archive_evicted_bytes_total 0`},
		{fresh, `pawl_raft_fsync_seconds_count{shard="1"} 0`},
		{began, `pawl_tasks_total{namespace="default",outcome="claimed",queue="mail",type="welcome"} 0`},
		{began, `pawl_tasks_total{namespace="default",outcome="succeeded",queue="mail",type="welcome"} 0`},
		{began, `pawl_tasks_total{namespace="default",outcome="failed_attempt",queue="mail",type="welcome"} 0`},
		{began, `pawl_tasks_total{namespace="default",outcome="crashed",queue="mail",type="welcome"} 0`},
		{began, `pawl_tasks_total{namespace="default",outcome="timed_out",queue="mail",type="welcome"} 0`},
		{began, `pawl_tasks_total{namespace="default",outcome="dead",queue="mail",type="welcome"} 0`},
		{began, `pawl_lease_expired_total{namespace="default",queue="mail"} 0`},
		{began, `pawl_stale_acks_total{namespace="default",reason="reclaimed"} 0`},
	} {
		if !strings.Contains(c.page, c.series+"\n") {
			t.Errorf("the page lacks %s", c.series)
		}
	}
}

// whole is a page with all metrics of the maximum number of queues, of a broker with 10,000.
func whole() *Page {
	recorder := stats.New(time.Now())
	for i := range 1100 {
		for j := range 10 {
			e := stats.Event{Namespace: "default", Queue: fmt.Sprintf("queue-%04d", i), Type: fmt.Sprintf("type-%d", j),
				Waited: time.Second, Ran: time.Second}
			for _, c := range []stats.Counter{stats.Enqueued, stats.Claimed, stats.Succeeded, stats.Failed} {
				e.Counts = e.Counts.With(c)
			}
			recorder.Record(time.Now(), []stats.Event{e})
		}
	}
	src := sources(recorder)
	queues := make([]Queue, 10_000)
	for i := range queues {
		queues[i] = Queue{Namespace: "default", Name: fmt.Sprintf("queue-%04d", i), Ready: int64(i), Looked: i >= 9_800, Dead: 1}
	}
	queues[7].NewDead = 1
	src.Queues = func(context.Context) ([]Queue, error) { return queues, nil }
	return New(src)
}

func TestPageIsBounded(t *testing.T) {
	var page string
	synctest.Test(t, func(t *testing.T) { page = whole().read(t) }) // on a busy machine it would time out otherwise
	series := map[string]int{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			name, _, _ := strings.Cut(line, "{")
			series[strings.Fields(name)[0]]++
		}
	}
	if n := series["pawl_queue_tasks"]; n != 6*(maxQueues+1) {
		t.Errorf("%d series of queues, want %d", n, 6*(maxQueues+1))
	}
	if n := series["pawl_tasks_total"]; n > 7*(2000+1001) {
		t.Errorf("there are %d series of types, too many", n)
	}
	if !strings.Contains(page, `pawl_queue_tasks{namespace="default",queue="_other",state="dead"} 9000`) {
		t.Error("the queues without their own series are not summed")
	}
	if !strings.Contains(page, `pawl_queue_tasks{namespace="default",queue="queue-9999",state="ready"} 9999`) {
		t.Error("the queue with the most tasks has no series")
	}
	if !strings.Contains(page, `pawl_queue_new_dead_letters{namespace="default",queue="queue-0007"} 1`) {
		t.Error("a queue with a new dead letter has no series because it has few tasks")
	}
	t.Logf("%d MB, %v", len(page)>>20, series)
}

// Queues without series of their own are summed in all respects; the oldest wait and the longest acceptable one are those of the queue that
// exceeds its own by most.
func TestQueuesAreAddedUp(t *testing.T) {
	of := func(ns string, n int64, wait, most time.Duration) Queue {
		return Queue{Namespace: ns, Name: fmt.Sprint(n), Scheduled: n, Ready: 10 * n, Claimed: 100 * n,
			Retrying: 1000 * n, Dead: 10_000 * n, Poisoned: 100_000 * n, Looked: most > 0, OldestReady: wait, MaxWait: most,
			Blocked: map[string]int64{"paused": n}}
	}
	got := addUp([]Queue{of("a", 1, time.Second, time.Hour), of("b", 4, 0, 0), of("a", 2, time.Minute, time.Minute),
		of("a", 3, 0, 2*time.Hour), of("a", 4, time.Hour, 2*time.Hour), of("b", 1, 0, 0)})
	want := []Queue{of("a", 10, time.Minute, time.Minute), of("b", 5, 0, 0)}
	for i := range want {
		want[i].Name = stats.Other
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// Only the node that sends notifications reports how long they have waited: what another one knows is outdated.
func TestOldestNoticeOnlyAtTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := sources(stats.New(time.Now()))
		for _, leads := range []bool{true, false} {
			src.Webhooks = func(context.Context) Webhooks { return Webhooks{Oldest: time.Minute, Leads: leads} }
			if told := strings.Contains(New(src).read(t), "pawl_webhook_oldest_undelivered_seconds 60"); told != leads {
				t.Errorf("with leads %v the age is on the page: %v", leads, told)
			}
		}
	})
}

// The page waits for the slowest of its sources, which may ask a shard that hangs, not for one after another.
func TestSourcesAreAskedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := sources(stats.New(time.Now()))
		src.Queues = func(context.Context) ([]Queue, error) { time.Sleep(time.Second); return nil, context.DeadlineExceeded }
		src.Shards = func(context.Context) []Shard { time.Sleep(time.Second); return []Shard{{ID: 7}} }
		src.Namespaces = func(context.Context) []Namespace { time.Sleep(time.Second); return nil }
		src.Webhooks = func(context.Context) Webhooks { time.Sleep(time.Second); return Webhooks{Dropped: 5} }
		began := time.Now()
		page := New(src).read(t)
		if took := time.Since(began); took != time.Second || !strings.Contains(page, `shard="7"`) ||
			!strings.Contains(page, "pawl_webhook_dropped_total 5") {
			t.Errorf("four sources that take a second each gave this page after %v: %s", took, page)
		}
	})
}

// BenchmarkPage scrapes the largest page.
func BenchmarkPage(b *testing.B) {
	p := whole()
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(p.read(b))))
	}
}

const (
	doc        = "../../docs/metrics.md"
	tableBegin = "<!-- table: written by go test ./internal/metrics -update -->\n"
	tableEnd   = "<!-- end of table -->"
)

// table lists all metrics, as docs/metrics.md has them.
func table(t *testing.T) string {
	types := map[string]string{}
	help := map[string]string{}
	labels := map[string]string{}
	var names []string
	for line := range strings.Lines(scenario().read(t)) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 4)
		switch {
		case strings.HasPrefix(line, "# HELP"):
			names = append(names, f[2])
			help[f[2]] = f[3]
		case strings.HasPrefix(line, "# TYPE"):
			types[f[2]] = f[3]
		default:
			name, rest, labeled := strings.Cut(line, "{")
			if !labeled || labels[strings.TrimSuffix(name, "_bucket")] != "" {
				continue
			}
			var of []string
			for _, m := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(rest, -1) {
				if m[1] != "le" {
					of = append(of, m[1])
				}
			}
			labels[strings.TrimSuffix(name, "_bucket")] = strings.Join(of, ", ")
		}
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("| metric | type | labels | what |\n|---|---|---|---|\n")
	for _, n := range names {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", n, types[n], labels[n], help[n])
	}
	return b.String()
}

// docs/metrics.md lists what is on the page, and nothing else.
func TestDocsListEveryMetric(t *testing.T) {
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(b), tableBegin)
	said, tail, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no markers for the table", doc)
	}
	want := table(t)
	switch {
	case said == want:
	case *update:
		if err := os.WriteFile(doc, []byte(head+tableBegin+want+tableEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of %s does not match the page: run go test ./internal/metrics -update", doc)
	}
}
