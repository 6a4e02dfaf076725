package conformance

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/api/keda"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// figures are the statistics as REST shows them; the other APIs must agree.
type figures struct {
	Step   string           `json:"step"`
	Totals map[string]int64 `json:"totals"`
	Series map[string][]int64
	Rate   float64 `json:"failure_rate"`
	Wait   struct {
		Count int64   `json:"count"`
		P50   float64 `json:"p50_seconds"`
	} `json:"wait"`
	Failing []struct {
		Queue, Type string
		Failures    int64
		LastError   string `json:"last_error"`
	} `json:"failing"`
	Queues    map[string]any `json:"queues"`
	Attention []struct{ Kind, Severity, Subject, Detail string }
}

func (t *figures) kinds() (kinds []string) {
	for _, a := range t.Attention {
		kinds = append(kinds, strings.TrimSuffix(a.Kind+" "+a.Subject, " "))
	}
	slices.Sort(kinds)
	return kinds
}

// tally reads statistics by REST: their answers have no shard stamp.
func (d *rest) tally(w *world, path string, into any) (status int) {
	w.Helper()
	req, err := http.NewRequestWithContext(w.ctx(), "GET", "http://localhost/api/v1"+path, nil)
	must(w.T, err)
	resp, err := d.client.Do(req)
	must(w.T, err)
	must(w.T, json.NewDecoder(resp.Body).Decode(into))
	must(w.T, resp.Body.Close())
	return resp.StatusCode
}

func TestStats(t *testing.T) {
	tellAll(t, []story{
		ofTheGateway(story{name: "task statistics are the same through every API", shards: 2, tell: func(w *world) {
			rest, rpc, sdk := newREST(w.T, w.testNode), newRPC(w.T, w.testNode), newSDK(w.T, w.testNode)
			w.fill(6, spec{Queue: "mail"})
			w.fill(2, spec{Queue: "video"})
			w.pass(second / 25)
			for range 3 {
				w.ack(w.one(from("mail")))
			}
			w.fail(w.one(from("mail")), failing{Outcome: "dead", Message: "no such address"})
			w.pass(second)

			var mail, all figures
			rest.tally(w, "/queues/mail/stats?window=5m", &mail)
			rest.tally(w, "/stats", &all)
			is(w, "the totals", fmt.Sprint(mail.Totals),
				"map[cancelled:0 claimed:4 crashed:0 dead:1 discarded:0 enqueued:6 failed:1 poisoned:0 "+
					"replayed:0 succeeded:3]")
			is(w, "the steps", fmt.Sprint(mail.Step, len(mail.Series["enqueued"])), "10s30")
			is(w, "the failure rate", mail.Rate, 0.25)
			is(w, "the waits", mail.Wait.Count, 4)
			is(w, "the median wait", mail.Wait.P50 > 0.025 && mail.Wait.P50 <= 0.05, true)
			is(w, "what fails", fmt.Sprint(mail.Failing), "[{mail 4 1 no such address}]")
			is(w, "all queues", fmt.Sprint(all.Totals["enqueued"], all.Queues["queues"], all.Queues["ready"], all.Queues["dead"],
				len(all.Series["dead"])), "8 2 4 1 360")
			is(w, "what needs attention", all.kinds(), []string{"dead_letters", "no_worker video"})

			got, err := rpc.stats.GetQueueStats(w.ctx(), &pawlv1.GetQueueStatsRequest{Queue: "mail",
				Window: durationpb.New(5 * time.Minute)})
			must(w.T, err)
			is(w, "gRPC", fmt.Sprint(got.GetStats().GetTotals().GetClaimed(), got.GetStats().GetSeries().GetClaimed()),
				fmt.Sprint(4, mail.Series["claimed"]))
			whole, err := admin.New(sdk.client).Stats(w.ctx(), 24*time.Hour)
			must(w.T, err)
			is(w, "the SDK", fmt.Sprint(whole.Totals.Enqueued, len(whole.Series), whole.Step, len(whole.Attention), whole.Queues.Ready),
				"8 288 5m0s 2 4")
			part, err := admin.New(sdk.client).Queues().Stats(w.ctx(), "video", 2*time.Minute)
			must(w.T, err)
			is(w, "another queue", fmt.Sprint(part.Totals.Enqueued, part.Totals.Claimed, len(part.Series)), "2 0 120")

			w.operate(operation{Action: "replay", Filter: filter{Queue: "mail"}})
			rest.tally(w, "/stats", &all)
			is(w, "what needs attention when the dead letter is replayed", all.kinds(), []string{"no_worker video"})

			for _, bad := range []string{"window=3m", "window=x", "window=", "since=1"} {
				is(w, "a refusal of "+bad, rest.tally(w, "/stats?"+bad, &all), 400)
			}
			is(w, "a queue that is none", rest.tally(w, "/queues/none/stats", &all), 404)
		}}),
		ofTheGateway(story{name: "disabled and failing webhooks need attention until they are repaired", tell: func(w *world) {
			rest := newREST(w.T, w.testNode)
			w.receives()
			w.hookTo(hookSpec{Name: "gone"}, "/gone/410")
			w.hookTo(hookSpec{Name: "down"}, "/down/500")
			w.hook(hookSpec{Name: "well"})
			need := func(when string, want ...string) {
				w.Helper()
				var got figures
				rest.tally(w, "/stats", &got)
				is(w, "what needs attention "+when, got.kinds(), want)
			}
			w.die("mail", 1)
			w.pass(minute)
			need("after a minute", "dead_letters", "webhook down", "webhook gone")
			w.done(w.hooks().RemoveHook(w.ctx(), "gone"))
			w.testNode.receiver.requireSignatures("/down", w.rotated("down", nil).Secret)
			ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "down", hookChange{URL: hookURL("/down")}))
			ok[posted](w)(w.hooks().TestHook(w.ctx(), "down"))
			need("when both were seen to", "dead_letters")
		}}),
		ofTheGateway(story{name: "a queue reports its rates and how many workers it needs", tell: func(w *world) {
			sdk := newSDK(w.T, w.testNode)
			w.pass(minute)
			w.fill(120, spec{})
			q, err := admin.New(sdk.client).Queues().Get(w.ctx(), "default")
			must(w.T, err)
			is(w, "rates of a queue that fills", fmt.Sprint(q.Rates.In, q.Rates.Out, q.Drain), "2 0 <nil>")
			var claimed []claim
			for range 30 {
				claimed = append(claimed, w.claim())
			}
			w.pass(4 * second)
			for _, c := range claimed {
				w.ack(c)
			}
			s, err := admin.New(sdk.client).Queues().Scale(w.ctx(), "default", time.Minute, 10)
			must(w.T, err)
			// 2/s for 4 s each are 8 slots, 90 of 4 s in a minute 6.
			is(w, "the scale", fmt.Sprint(s.Workers, s.Slots, s.Active, s.Backlog, s.Running, s.Run), "2 14 true 90 0 4s")
			s, err = admin.New(sdk.client).Queues().Scale(w.ctx(), "default", 10*time.Second, 1)
			must(w.T, err)
			is(w, "in a hurry", fmt.Sprint(s.Workers), "44")
			w.pass(2 * minute)
			for range 60 {
				w.ack(w.claim())
			}
			q, err = admin.New(sdk.client).Queues().Get(w.ctx(), "default")
			must(w.T, err)
			is(w, "rates of a queue that empties", fmt.Sprint(q.Rates.In, q.Rates.Out, *q.Drain, q.Wait.Count > 0), "0 1 30s true")
			w.fill(120, spec{Delay: hour})
			q, err = admin.New(sdk.client).Queues().Get(w.ctx(), "default")
			must(w.T, err)
			is(w, "rates when tasks come that are due in an hour", fmt.Sprint(q.Rates.In, q.Rates.Out, *q.Drain), "2 1 30s")
			_, err = admin.New(sdk.client).WithReason("deploy").Queues().Pause(w.ctx(), "default")
			must(w.T, err)
			s, err = admin.New(sdk.client).Queues().Scale(w.ctx(), "default", 0, 0)
			must(w.T, err)
			is(w, "of a paused queue", fmt.Sprint(s.Workers, s.Active), "0 false")
			s, err = admin.New(sdk.client).Queues().Scale(w.ctx(), "none-yet", 0, 0)
			must(w.T, err)
			is(w, "of a queue that has had no task", fmt.Sprint(s.Workers, s.Slots, s.Active, s.Backlog, s.Running), "0 0 false 0 0")
		}}),
		ofTheGateway(story{name: "a queue needs no more workers than its limits allow, and no fewer than its running tasks",
			tell: func(w *world) {
				scale := func() string {
					w.Helper()
					s, err := admin.New(newSDK(w.T, w.testNode).client).Queues().Scale(w.ctx(), "default", second.std(), 2)
					must(w.T, err)
					var said struct {
						Queue   string  `json:"queue"`
						Workers int64   `json:"workers"`
						Slots   float64 `json:"slots"`
						Active  bool    `json:"active"`
						Backlog int64   `json:"backlog"`
						Running int64   `json:"running"`
					}
					is(w, "REST", newREST(w.T, w.testNode).tally(w, "/queues/default/scale?target=1s&slots=2", &said), 200)
					is(w, "what it says", fmt.Sprint(said.Workers, said.Slots, said.Active, said.Backlog, said.Running),
						fmt.Sprint(s.Workers, s.Slots,
							s.Active, s.Backlog, s.Running))
					return fmt.Sprint(s.Workers, s.Slots, s.Active, s.Backlog, s.Running)
				}
				w.put("default", settings{limits: limits{MaxRunning: 5}})
				w.fill(40, spec{})
				is(w, "many wait, and 5 may run", scale(), "3 5 true 40 0")
				claimed := w.claims(claimCall{Queues: []string{"default"}, Max: 9, Lease: hour})
				is(w, "5 run", fmt.Sprint(len(claimed))+" "+scale(), "5 3 5 true 0 5")
				w.put("default", settings{limits: limits{MaxRunning: 1}})
				is(w, "5 run, and 1 may", scale(), "3 5 true 0 5")
				for _, c := range claimed[:4] {
					w.ack(c)
				}
				ok[int64](w)(w.api.Purge(w.ctx(), "default"))
				w.pass(3 * minute)
				is(w, "one runs, and nothing comes", scale(), "1 1 true 0 1")
			}}),
		ofTheGateway(story{name: "a scaler counts the work that workers could do now", tell: func(w *world) {
			scale := func(queue string) string {
				w.Helper()
				s, err := admin.New(newSDK(w.T, w.testNode).client).Queues().Scale(w.ctx(), queue, time.Minute, 10)
				must(w.T, err)
				return fmt.Sprint(s.Workers, s.Active, s.Backlog, s.ArrivalsPerSecond, s.Run)
			}
			w.pass(minute)
			w.fill(600, spec{Queue: "later", Delay: hour})
			is(w, "tasks of the next hour", scale("later"), "0 false 0 0 0s")
			w.pass(hour)
			is(w, "they are due", scale("later"), "2 true 600 10 0s") // 10/s and 600 in a minute, of 1 s each

			w.put("paused", settings{})
			_, err := admin.New(newSDK(w.T, w.testNode).client).WithReason("deploy").Queues().Pause(w.ctx(), "paused")
			must(w.T, err)
			w.fill(600, spec{Queue: "paused"})
			is(w, "what comes while a queue is paused", scale("paused"), "0 false 0 0 0s")

			w.fill(60, spec{Queue: "slow"})
			c := w.claims(claimCall{Queues: []string{"slow"}, Max: 1})[0]
			w.pass(10 * second)
			w.ack(c)
			for range 12 { // time that the statistics notice, too
				w.pass(minute / 2)
			}
			is(w, "of which one ended 6 minutes ago", scale("slow"), "1 true 59 0 10s") // 59 of 10 s in a minute
			w.fill(600, spec{Queue: "slow"})
			is(w, "and many more came", scale("slow"), "21 true 659 10 10s")
		}}),
		ofTheGateway(story{name: "a list of queues is filtered by name and by content", shards: 2, tell: func(w *world) {
			for _, queue := range []string{"mail-de", "mail-en", "media", "video"} {
				w.fill(1, spec{Queue: queue, MaxAttempts: 1})
			}
			w.fill(4, spec{Queue: "media"})
			w.fail(w.one(claimCall{Queues: []string{"mail-de"}, Max: 1, Worker: "w1"}), failing{Outcome: "dead"})
			w.fail(w.one(claimCall{Queues: []string{"video"}, Max: 1, Worker: "w1"}), failing{Outcome: "poison"})
			w.fill(1, spec{Queue: "mail-de"})
			w.fill(2, spec{Queue: "video"})
			w.fill(3, spec{Queue: "mail-en"})
			w.fail(w.one(claimCall{Queues: []string{"video"}, Max: 1, Worker: "w1"}), failing{Outcome: "dead"})
			w.fail(w.one(claimCall{Queues: []string{"video"}, Max: 1, Worker: "w1"}), failing{Outcome: "dead"})
			sdk := admin.New(newSDK(w.T, w.testNode).client)
			_, err := sdk.Queues().PauseSubset(w.ctx(), "media", admin.Subset{Type: "encode"})
			must(w.T, err)
			w.pass(3 * second) // figures of all queues may be that old
			for query, want := range map[string]string{
				"pattern=mail*": "mail-de mail-en ", "pattern=*d*&limit=2": "mail-de media more", "pattern=media": "media ",
				"pattern=nothing*": "", "having=dead": "mail-de video ", "having=poisoned": "video ", "having=paused": "media ",
				"having=dead&pattern=m*": "mail-de ", "having=no_worker": "mail-en media ", "having=no_worker&limit=1": "mail-en more",
				"having=no_worker&order=most&limit=1": "media ", "having=dead&order=most": "video mail-de ",
				"order=most": "media mail-en mail-de ",
			} {
				is(w, "queues with "+query, listOfQueues(w, query), want) // w1 has recently asked for mail-de
			}
			groups, err := sdk.DeadLetters().Groups(w.ctx(), "", false)
			must(w.T, err)
			is(w, "dead letters of all queues", fmt.Sprint(len(groups.Groups), groups.Groups[0].Count, groups.Groups[0].Queues,
				groups.Groups[0].Queue, groups.Partial), "2 2 2mail-defalse")
			var said struct {
				Groups []struct {
					Count, Queues int
					Queue         string
				}
			}
			is(w, "by REST", newREST(w.T, w.testNode).tally(w, "/dead?group_by=error", &said), 200)
			is(w, "what it says", fmt.Sprint(said.Groups), "[{2 2 mail-de} {1 1 video}]")
			is(w, "poison by REST", newREST(w.T, w.testNode).tally(w, "/poisoned?group_by=error", &said), 200)
			is(w, "what it says of poison", fmt.Sprint(said.Groups), "[{1 1 video}]")
			is(w, "a list of them", newREST(w.T, w.testNode).tally(w, "/dead", &said), 400)
			first, err := sdk.Queues().ListPage(w.ctx(), admin.QueueFilter{Having: admin.QueueDead}, pawltype.PageRequest{Limit: 1})
			must(w.T, err)
			second, err := sdk.Queues().ListPage(w.ctx(), admin.QueueFilter{Having: admin.QueueDead}, pawltype.PageRequest{Limit: 1,
				Cursor: first.NextCursor})
			must(w.T, err)
			is(w, "page by page", first.Items[0].Name+" "+second.Items[0].Name+second.NextCursor, "mail-de video")
			for _, bad := range []string{"pattern=a/b", "pattern=*********", "having=nothing", "order=least", "order=most&having=paused",
				"order=most&cursor=" + first.NextCursor} {
				is(w, "a refusal of "+bad, newREST(w.T, w.testNode).tally(w, "/queues?"+bad, &struct{}{}), 400)
			}
		}}),
		ofTheGateway(story{name: "a list of queues has the workers and the trend of each", shards: 2, tell: func(w *world) {
			w.fill(6, spec{Queue: "mail"})
			w.fill(2, spec{Queue: "video"})
			for range 3 {
				w.ack(w.one(claimCall{Queues: []string{"mail"}, Max: 1, Worker: "w1"}))
			}
			w.fail(w.one(claimCall{Queues: []string{"mail", "video"}, Max: 1, Worker: "w2"}), failing{Outcome: "dead"})
			w.fail(w.one(claimCall{Queues: []string{"mail"}, Max: 1, Worker: "w1"}), failing{Outcome: "poison"})
			w.pass(second)
			tell := func(q string, workers any, step any, in, out, failed, succeeded, poisoned []int64) string {
				sum := func(list []int64) (n int64) {
					for _, x := range list {
						n += x
					}
					return n
				}
				return fmt.Sprintln(q, "workers", workers, "in", sum(in), "out", sum(out), "failed", sum(failed),
					"succeeded", sum(succeeded), "poisoned", sum(poisoned), "of", len(in), len(out), len(failed), len(succeeded),
					len(poisoned), "steps of", step)
			}
			want := "mail workers 2 in 6 out 5 failed 2 succeeded 3 poisoned 1 of 60 60 60 60 60 steps of 1m0s\nvideo workers 1 in 2 " +
				"out 0 failed 0 succeeded 0 poisoned 0 of 60 60 60 60 60 steps of 1m0s\n"

			said := ""
			page, err := admin.New(newSDK(w.T, w.testNode).client).Queues().ListPage(w.ctx(), admin.QueueFilter{Series: time.Hour},
				pawltype.PageRequest{})
			must(w.T, err)
			for _, q := range page.Items {
				said += tell(q.Name, *q.Workers, q.Series.Step, q.Series.In, q.Series.Out, q.Series.Failed,
					q.Series.Succeeded, q.Series.Poisoned)
			}
			is(w, "the SDK", said, want)

			var list struct {
				Items []struct {
					Queue   string
					Workers *int
					Series  *struct {
						Step                span
						Start               time.Time
						In, Out, Failed     []int64
						Succeeded, Poisoned []int64
					}
				}
			}
			is(w, "the answer of REST", newREST(w.T, w.testNode).tally(w, "/queues?series=1h", &list), 200)
			said = ""
			for _, q := range list.Items {
				said += tell(q.Queue, *q.Workers, q.Series.Step.std(), q.Series.In, q.Series.Out, q.Series.Failed,
					q.Series.Succeeded, q.Series.Poisoned)
			}
			is(w, "REST", said, want)
			is(w, "where it begins", list.Items[0].Series.Start, w.now().Truncate(minute.std()).Add(-59*time.Minute))

			rpc, said := newRPC(w.T, w.testNode), ""
			got, err := rpc.operator.ListQueues(w.ctx(), &pawlv1.ListQueuesRequest{Series: durationpb.New(time.Hour)})
			must(w.T, err)
			for _, q := range got.GetItems() {
				s := q.GetSeries()
				said += tell(q.GetQueue(), q.GetWorkers(), s.GetStep().AsDuration(), s.GetIn(), s.GetOut(), s.GetFailed(),
					s.GetSucceeded(), s.GetPoisoned())
			}
			is(w, "gRPC", said, want)

			list.Items = nil
			is(w, "a list without", newREST(w.T, w.testNode).tally(w, "/queues", &list), 200)
			is(w, "its series", list.Items[0].Series == nil && *list.Items[0].Workers == 2, true)
			for _, bad := range []string{"series=3m", "series=x", "series=", "window=1h"} {
				is(w, "a refusal of "+bad, newREST(w.T, w.testNode).tally(w, "/queues?"+bad, &list), 400)
			}
			one, err := admin.New(newSDK(w.T, w.testNode).client).Queues().Get(w.ctx(), "video")
			must(w.T, err)
			is(w, "one queue", fmt.Sprint(*one.Workers, one.Series == nil), "1 true")
			for range 6 {
				w.pass(minute)
			}
			one, err = admin.New(newSDK(w.T, w.testNode).client).Queues().Get(w.ctx(), "video")
			must(w.T, err)
			is(w, "long after", *one.Workers, 0)
		}}),
		ofTheGateway(story{name: "each queue has its own maximum wait", tell: func(w *world) {
			rest := newREST(w.T, w.testNode)
			one := limits{MaxRunning: 1} // the others wait, though not for lack of workers
			w.put("quick", settings{MaxWait: 10 * second, limits: one})
			w.put("patient", settings{MaxWait: hour, limits: one})
			w.put("usual", settings{limits: one})
			for _, q := range []string{"quick", "patient", "usual"} {
				w.fill(2, spec{Queue: q})
				w.claims(claimCall{Queues: []string{q}, Max: 1, Worker: "w1", Lease: hour})
			}
			waits := func() (kinds []string) {
				w.Helper()
				for _, q := range []string{"quick", "patient", "usual"} {
					is(w, "claims beyond the limit", len(w.claims(claimCall{Queues: []string{q}, Max: 1, Worker: "w1"})), 0)
				}
				var all figures
				rest.tally(w, "/stats", &all)
				for _, k := range all.kinds() {
					if strings.HasPrefix(k, "oldest_wait") {
						kinds = append(kinds, k)
					}
				}
				return kinds
			}
			w.pass(9 * second)
			is(w, "before", waits(), nil)
			w.pass(3 * second)
			is(w, "after 12 s", waits(), []string{"oldest_wait quick"})
			w.pass(5 * minute)
			is(w, "after 5 min", waits(), []string{"oldest_wait quick", "oldest_wait usual"})
		}}),
		ofTheGateway(story{name: "KEDA learns how many workers a queue needs", tell: func(w *world) {
			scaler := newRPC(w.T, w.testNode).scaler
			ref := func(metadata ...string) *keda.ScaledObjectRef {
				r := &keda.ScaledObjectRef{Name: "workers", Namespace: "prod", ScalerMetadata: map[string]string{
					"scalerAddress": "pawl:7295"}}
				for i := 0; i < len(metadata); i += 2 {
					r.ScalerMetadata[metadata[i]] = metadata[i+1]
				}
				return r
			}
			mail := ref("queue", "default", "slotsPerWorker", "4", "targetSeconds", "10")
			active := func(what string, want bool) {
				w.Helper()
				got, err := scaler.IsActive(w.ctx(), mail)
				must(w.T, err)
				is(w, what, got.GetResult(), want)
			}
			w.put("default", settings{})
			active("an empty queue", false)
			w.fill(1, spec{})
			quick := w.claim()
			w.pass(second)
			w.ack(quick)
			active("a queue whose last task came a moment ago", true)
			w.pass(2 * minute)
			active("a queue to which nothing came for a minute", false)
			stream, err := scaler.StreamIsActive(w.ctx(), mail)
			must(w.T, err)
			first, err := stream.Recv()
			must(w.T, err)
			is(w, "the stream, of an empty queue", first.GetResult(), false)
			w.fill(100, spec{})
			active("a queue with tasks", true)
			next, err := stream.Recv()
			must(w.T, err)
			is(w, "the stream, of a queue with tasks", next.GetResult(), true)
			one := w.claim()
			w.pass(second)
			w.ack(one)

			s, err := scaler.GetMetricSpec(w.ctx(), mail)
			must(w.T, err)
			is(w, "the metric", fmt.Sprint(s.GetMetricSpecs()[0].GetMetricName(), s.GetMetricSpecs()[0].GetTargetSize(),
				s.GetMetricSpecs()[0].GetTargetSizeFloat()), "pawl-slots-default4 4")
			m, err := scaler.GetMetrics(w.ctx(), &keda.GetMetricsRequest{ScaledObjectRef: mail, MetricName: "pawl-slots-default"})
			must(w.T, err)
			plain, err := admin.New(newSDK(w.T, w.testNode).client).Queues().Scale(w.ctx(), "default", 10*time.Second, 4)
			must(w.T, err)
			value := m.GetMetricValues()[0]
			is(w, "its value is that of REST", fmt.Sprint(value.GetMetricValueFloat(), value.GetMetricValue()), fmt.Sprint(plain.Slots,
				math.Ceil(plain.Slots)))
			is(w, "it is enough for 99 tasks of 1s in 10s, and what comes in", plain.Slots > 9.9 && plain.Slots < 20, true)

			for _, bad := range []*keda.ScaledObjectRef{ref(), ref("queue", "no\nqueue"), ref("queue", "default", "slotsPerWorker", "0"),
				ref("queue", "default", "targetSeconds", "soon")} {
				_, err := scaler.IsActive(w.ctx(), bad)
				is(w, fmt.Sprintf("a refusal of %v", bad.GetScalerMetadata()), err != nil, true)
			}
			_, err = scaler.GetMetrics(w.ctx(), &keda.GetMetricsRequest{ScaledObjectRef: mail, MetricName: "other"})
			is(w, "a refusal of another metric", err != nil, true)
		}}),
	})
}

// listOfQueues returns the names in a list of queues, by REST, and whether there are more.
func listOfQueues(w *world, query string) (names string) {
	w.Helper()
	var list struct {
		Items      []struct{ Queue string }
		NextCursor string `json:"next_cursor"`
	}
	is(w, "the answer to "+query, newREST(w.T, w.testNode).tally(w, "/queues?"+query, &list), 200)
	for _, q := range list.Items {
		names += q.Queue + " "
	}
	if list.NextCursor != "" {
		names += "more"
	}
	return names
}
