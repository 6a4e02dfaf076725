package node

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
)

// scrape reads the metrics page of a node.
func scrape(t *testing.T, s *server) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.gateway.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("the page is %d, %v: %s", w.Code, w.Header(), w.Body)
	}
	return w.Body.String()
}

// The leader reports the queue, and a node keeps what it counted while it led, so that sums over all nodes are right.
func TestMetricsAndStatsOfThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		c := w.nodes["n1"].client()
		enqueue := func(n int) {
			for range n {
				if _, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail")); err != nil {
					t.Fatal(err)
				}
			}
		}
		first := w.leaderOf(1)
		enqueue(3)
		other := "n1"
		if first == "n1" {
			other = "n2"
		}
		w.until("another leads", func() error { return admin.New(c).Cluster().TransferLeader(t.Context(), 1, other) })
		w.until("it does", func() error {
			if w.leaderOf(1) != other {
				return errors.New("not yet")
			}
			return nil
		})
		enqueue(2)
		time.Sleep(6 * time.Second) // fake time: the queues' figures may be 5 s old

		depths := 0
		for name, s := range w.nodes {
			page := scrape(t, s)
			for line, want := range map[string]bool{
				`pawl_queue_tasks{namespace="default",queue="mail",state="ready"} 5`:                 name == other,
				`pawl_tasks_total{namespace="default",outcome="enqueued",queue="mail",type="job"} 3`: name == first,
				`pawl_tasks_total{namespace="default",outcome="enqueued",queue="mail",type="job"} 2`: name == other,
				`pawl_raft_is_leader{shard="1"} 1`:                                                   name == other,
				`pawl_raft_has_leader{shard="1"} 1`:                                                  true,
				`pawl_blocked_tasks{namespace="default",queue="mail",reason="no_worker"} 5`:          name == other,
				`pawl_raft_fsync_seconds_count{shard="1"} 0`:                                         false,
			} {
				if strings.Contains(page, line+"\n") != want {
					t.Errorf("%s, while %s leads and %s did: %s is there: %v, want %v", name, other, first, line, !want, want)
				}
			}
			if lags := regexp.MustCompile(`(?m)^pawl_raft_lag_entries\{node="n\d",shard="1"\} 0$`).FindAllString(page,
				-1); len(lags) != 2 == (name == other) {
				t.Errorf("%s tells the lags %q", name, lags)
			}
			system := regexp.MustCompile(`(?m)^pawl_(shard_answers\{shard="0"\} 1|` +
				`raft_lag_entries\{node="n\d",shard="0"\} \d+|raft_replica_differs\{node="n\d",shard="0"\} 0)$`)
			want := 0
			if name == w.leaderOf(0) {
				want = 1 + 2 + 3
			}
			if lines := system.FindAllString(page, -1); len(lines) != want {
				t.Errorf("%s says %q of the system shard, want %d lines", name, lines, want)
			}
			if strings.Contains(page, `queue="mail",state=`) {
				depths++
			}
		}
		if depths != 1 {
			t.Errorf("%d nodes tell how the queue stands, want 1", depths)
		}

		s, err := admin.New(c).Stats(t.Context(), 0)
		if err != nil || s.Totals.Enqueued != 5 || s.Queues.Ready != 5 || len(s.Missing) != 0 {
			t.Errorf("all nodes together tell %+v, %+v, missing %v (%v); want 5 tasks", s.Totals, s.Queues, s.Missing, err)
		}
		third := "n3"
		for name := range w.nodes {
			if name != first && name != other {
				third = name
			}
		}
		w.crash(first)
		w.until("who is away is named", func() error {
			s, err = admin.New(w.nodes[third].client()).Stats(t.Context(), 0)
			if err != nil {
				return err
			}
			if len(s.Missing) == 0 || s.Missing[0].Node != first || s.Totals.Enqueued != 2 {
				return fmt.Errorf("got %+v, missing %v", s.Totals, s.Missing)
			}
			return nil
		})
		if i := slices.IndexFunc(s.Attention, func(a admin.Attention) bool { return a.Kind == "node" && a.Subject == first }); i < 0 {
			t.Errorf("nobody says that %s is away: %+v", first, s.Attention)
		}
	})
}

// fullArchive is an archive that has removed some of it early.
type fullArchive struct{}

func (fullArchive) Evicted() uint64 { return 1 << 20 }

// What the audit log of a shard and the archive have removed early is on the page.
func TestMetricsOfEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{InMemory: true, DataShards: 2})
		for id, n := range map[uint32]int{0: 3, 2: 5} {
			if _, _, err := shard.Update(t.Context(), s.replicas.get(id).shard, func(tx *store.Tx) (struct{}, error) {
				tx.Set([]byte{'A', 0, 'h'}, fmt.Appendf([]byte{1}, `{"evicted":%d}`, n)) // as package audit writes it
				return struct{}{}, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		c := &collector{cfg: s.cfg, health: s.health, replicas: s.replicas, auth: s.auth, archive: fullArchive{}, gateway: s.serves.Load}
		if got := c.nodeMetrics().ArchiveEvicted; got != 1<<20 {
			t.Errorf("%d bytes of the archive count as removed early, want 1 MiB", got)
		}
		page := scrape(t, s)
		for _, want := range []string{`pawl_audit_evicted_entries_total{shard="0"} 3`, `pawl_audit_evicted_entries_total{shard="1"} 0`,
			`pawl_audit_evicted_entries_total{shard="2"} 5`, "pawl_archive_evicted_bytes_total 0"} {
			if !strings.Contains(page, want+"\n") {
				t.Errorf("the page lacks %s", want)
			}
		}
	})
}

// A shard that hangs makes a scrape neither fail nor take longer than a second. Its figures are missing, as the page
// says, and all others are there.
func TestMetricsBesideAHangingShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultyNode(t)
		s.must("AccessService/SetQuotas", `{"name":"default","quotas":{"maxBacklog":"1000"}}`)
		time.Sleep(10 * time.Second)
		series := func() map[string]bool {
			began, all := time.Now(), map[string]bool{}
			for line := range strings.Lines(scrape(t, s.server)) {
				name, value, _ := strings.Cut(line, " ")
				if strings.HasPrefix(name, "pawl_shard_answers") {
					name += " " + strings.TrimSpace(value)
				}
				all[name] = true
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("a scrape takes %v", took)
			}
			return all
		}
		before := series()
		for id := range bulkheadShards + 1 {
			if !before[fmt.Sprintf("pawl_shard_answers{shard=\"%d\"} 1", id)] ||
				!before[fmt.Sprintf("pawl_rows_set_apart{shard=\"%d\"}", id)] {
				t.Errorf("shard %d does not answer, while none hangs", id)
			}
		}
		shardOf := map[string]uint32{} // by queue
		for id := range uint32(bulkheadShards) {
			for _, queue := range slices.Concat(slices.Collect(maps.Values(s.fixtures[id+1]))...) {
				shardOf[queue] = id + 1
			}
		}
		queueSeries := regexp.MustCompile(`^pawl_(?:queue|blocked)_.*queue="(.*?)"`)
		for faulty := range uint32(bulkheadShards + 1) {
			of := fmt.Sprintf(`shard="%d"`, faulty)
			heal := s.hang(faulty)
			for range 2 {
				now := series()
				for name := range before {
					of := "{" + of + "}"
					want := name != "pawl_rows_set_apart"+of && !strings.HasPrefix(name, "pawl_audit_evicted_entries_total"+of) &&
						!strings.HasPrefix(name, "pawl_audit_unexported_entries"+of) && name != "pawl_shard_answers"+of+" 1"
					if m := queueSeries.FindStringSubmatch(name); m != nil {
						if shardOf[m[1]] == 0 {
							continue
						}
						want = shardOf[m[1]] != faulty
					}
					if strings.HasPrefix(name, "pawl_webhooks{") {
						want = faulty != 0
					}
					if now[name] != want {
						t.Errorf("while shard %d hangs, %s is there: %t, want %t", faulty, name, now[name], want)
					}
				}
				if !now["pawl_shard_answers{"+of+"} 0"] {
					t.Errorf("the page does not say that shard %d hangs", faulty)
				}
				time.Sleep(4 * time.Second)
			}
			heal()
			time.Sleep(10 * time.Second) // the queues' figures may be 5 s old
		}
	})
}
