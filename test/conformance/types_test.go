package conformance

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// ofType is a type as REST shows it.
type ofType struct {
	figures
	Type     string             `json:"type"`
	Queues   []string           `json:"queues"`
	Rates    map[string]float64 `json:"rates"`
	RunCount struct {
		Count int64 `json:"count"`
	} `json:"run"`
	Runs []struct {
		UpTo  float64 `json:"up_to_seconds"`
		Count int64   `json:"count"`
	} `json:"run_histogram"`
	Slowest []struct {
		TaskID string  `json:"task_id"`
		Worker string  `json:"worker"`
		Run    float64 `json:"run_seconds"`
		Failed bool    `json:"failed"`
	} `json:"slowest"`
	Comparison *struct {
		Before, After struct {
			Length string             `json:"length"`
			Rates  map[string]float64 `json:"rates"`
			Share  float64            `json:"failure_rate"`
		}
	} `json:"comparison"`
}

type listOfTypes struct {
	Items []struct {
		Type   string   `json:"type"`
		Queues []string `json:"queues"`
		Error  string   `json:"last_error"`
	} `json:"items"`
	Next string `json:"next_cursor"`
}

func (l *listOfTypes) names() (names []string) {
	for _, t := range l.Items {
		names = append(names, t.Type)
	}
	return names
}

func TestTypes(t *testing.T) {
	tellAll(t, []story{ofTheGateway(story{name: "statistics of types are the same through every API", shards: 2, tell: func(w *world) {
		rest, rpc, sdk := newREST(w.T, w.testNode), newRPC(w.T, w.testNode), newSDK(w.T, w.testNode)
		w.pass(minute)
		for _, queue := range []string{"mail", "mail", "mail", "bulk", "bulk"} {
			w.enqueue(spec{Queue: queue, Type: "welcome"})
		}
		w.enqueue(spec{Queue: "mail", Type: "digest/weekly"})
		slow := w.one(from("bulk"))
		for range 3 {
			c := w.one(from("mail"))
			w.pass(second / 10)
			w.ack(c)
		}
		w.pass(second)
		w.fail(slow, failing{Message: "no such address", Outcome: "dead"})
		deploy := time.Now()
		w.pass(2 * minute)
		w.pass(minute)

		var list listOfTypes
		var one ofType
		types := func(path string) {
			w.Helper()
			list = listOfTypes{}
			rest.tally(w, "/types"+path, &list)
		}
		typ := func(path string) {
			w.Helper()
			one = ofType{}
			rest.tally(w, "/types"+path, &one)
		}
		types("?window=5m")
		is(w, "by name", list.names(), []string{"digest/weekly", "welcome"})
		is(w, "its queues and error", fmt.Sprint(list.Items[1].Queues, list.Items[1].Error), "[bulk mail]no such address")
		types("?window=5m&order=most")
		is(w, "the busiest first", list.names(), []string{"welcome", "digest/weekly"})
		types("?order=failing")
		is(w, "those that fail", list.names(), []string{"welcome"})
		types("?pattern=digest*&queue=mail")
		is(w, "of a pattern", list.names(), []string{"digest/weekly"})
		types("?limit=1")
		is(w, "a page", list.names(), []string{"digest/weekly"})
		types("?limit=1&cursor=" + list.Next)
		is(w, "the next", fmt.Sprint(list.names(), list.Next), "[welcome]")

		typ("/welcome?window=5m&around=" + url.QueryEscape(deploy.Format(time.RFC3339Nano)))
		is(w, "the totals", fmt.Sprint(one.Totals["enqueued"], one.Totals["succeeded"], one.Totals["failed"], one.Totals["dead"], one.Step,
			len(one.Series["dead"])), "5 3 1 110s30")
		is(w, "the share of failures", one.Rate, 0.25)
		is(w, "how long its runs took", fmt.Sprint(len(one.Runs) > 1, one.RunCount.Count), "true 4")
		var slowest []string
		for _, r := range one.Slowest {
			slowest = append(slowest, fmt.Sprint(r.TaskID == slow.ID, r.Failed, r.Run > 1))
		}
		is(w, "the slowest", slowest, []string{"true true true", "false false false", "false false false", "false false false"})
		if is(w, "a comparison", one.Comparison != nil, true); one.Comparison != nil {
			is(w, "before and after", fmt.Sprint(one.Comparison.Before.Length, one.Comparison.After.Length,
				one.Comparison.After.Rates["out"]),
				"2m2m0")
		}
		typ("/welcome?queue=mail")
		is(w, "in one queue", fmt.Sprint(one.Totals["enqueued"], one.Totals["failed"], one.Rate, one.Queues, one.Step),
			"3 0 0 [bulk mail]1m")
		typ("/" + url.PathEscape("digest/weekly"))
		is(w, "a name with a slash", fmt.Sprint(one.Type, one.Totals["enqueued"]), "digest/weekly1")
		typ("/never")
		is(w, "one that never was", fmt.Sprint(one.Totals["enqueued"], len(one.Queues), one.Comparison == nil), "0 0 true")

		got, err := rpc.stats.GetTypeStats(w.ctx(), &pawlv1.GetTypeStatsRequest{Type: "welcome", Window: durationpb.New(24 * time.Hour)})
		must(w.T, err)
		is(w, "gRPC", fmt.Sprint(got.GetStats().GetTotals().GetEnqueued(), len(got.GetStats().GetSeries().GetDead()),
			len(got.GetSlowest())),
			"5 96 4")
		s, err := admin.New(sdk.client).Types().Stats(w.ctx(), "welcome", admin.TypeQuery{Around: deploy})
		must(w.T, err)
		is(w, "the SDK", fmt.Sprint(s.Totals.Enqueued, s.Step, s.Slowest[0].Failed, s.Comparison != nil, s.Comparison.Before.Totals.Failed),
			"5 1m0s true true 0")
		page, err := admin.New(sdk.client).Types().ListPage(w.ctx(), admin.TypeFilter{Order: admin.TypesMost},
			pawltype.PageRequest{Limit: 1})
		must(w.T, err)
		is(w, "a list of the SDK", fmt.Sprint(len(page.Items), page.Items[0].Name, page.Items[0].Totals.Dead, page.NextCursor), "1welcome1")

		for _, bad := range []string{"?window=2m", "?window=x", "?order=x", "?limit=0", "?limit=1001", "?pattern=*********", "?cursor=x",
			"?order=most&cursor=" + list.Next + "x", "?since=1", "/welcome?window=2m", "/welcome?around=x",
			"/welcome?around=2020-01-01T00:00:00Z", "/" + url.PathEscape("a\nb")} {
			is(w, "a refusal of "+bad, rest.tally(w, "/types"+bad, &one), 400)
		}
		for _, none := range []string{"?queue=none", "/welcome?queue=none"} {
			is(w, "a queue that is none", rest.tally(w, "/types"+none, &one), 404)
		}
	}})})
}
