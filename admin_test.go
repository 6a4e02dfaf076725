package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Each operator's call sends what it was given and gives what the broker answers.
func TestAdminCalls(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	queue := &pawlv1.Queue{
		Queue: "mail", Paused: true, PausedReason: "fire", PausedBy: "lena", Depth: &pawlv1.Depth{Ready: 3, Dead: 1}, ReadyByPriority: &pawlv1.ReadyByPriority{High: 2, Low: 1},
		OldestReadyAgeSeconds: 1.5, Version: 4, Settings: &pawlv1.QueueSettings{KeyOrder: pawlv1.KeyOrder_KEY_ORDER_STRICT,
			MaxAttempts: 5, Lease: durationpb.New(30 * time.Second), MaxWait: durationpb.New(time.Hour), Weights: &pawlv1.PriorityWeights{High: 7, Normal: 2, Low: 1},
			Retention: &pawlv1.Retention{Dead: durationpb.New(time.Hour)}, Retry: &pawlv1.RetryPolicy{Initial: durationpb.New(time.Second), Jitter: proto.Float64(0)},
			MaxRunning: 50, Rate: &pawlv1.Rate{Limit: 9, Period: durationpb.New(time.Second), Burst: 3}, PerKey: &pawlv1.KeyRules{MaxRunning: 2},
			Keys: map[string]*pawlv1.KeyRules{"vip": {MaxRunning: 4, Weight: 3}}, Breaker: &pawlv1.Breaker{FailureRate: 60},
			Breakers: map[string]*pawlv1.Breaker{"sms": {Off: true}},
		},
		Breakers: []*pawlv1.BreakerStatus{{Type: "mail", State: "open", Reason: "why", Since: at, Attempts: 9, Failed: 8, Window: durationpb.New(time.Minute),
			Error: "down", Opened: 2, Passed: 1, Probes: 3, ProbeTaskId: "t1", Shard: 5}}, BreakersOpen: 1,
		Holds:   []*pawlv1.Hold{{Type: "report", Reason: "paper", By: "ops", At: at}},
		Workers: proto.Int64(6), Series: &pawlv1.QueueSeries{Step: durationpb.New(time.Minute), Start: at, In: []int64{1, 2}, Out: []int64{3, 4}, Failed: []int64{5, 6}, Succeeded: []int64{7, 8}, Poisoned: []int64{9, 10}},
	}
	wantQueue := `{mail true fire lena 0001-01-01T00:00:00Z [{report  paper ops 2026-01-02T03:04:05Z}] [{mail open why 2026-01-02T03:04:05Z 0001-01-01T00:00:00Z 9 8 60000000000 down 2 1 3 t1 5}] 1 {0 3 0 0 0 1 0} {2 0 1} 1500000000 null {0 0 0 0 0} {0 0 0 0 0} null 6 {60000000000 2026-01-02T03:04:05Z [1 2] [3 4] [5 6] [7 8] [9 10]} {{7 2 1} {1000000000 0 0 -1} 5 30000000000 0 {0 0 0 3600000000000 0} 3600000000000 0 strict 50 {9 1000000000 3} {2 {0 0 0}} {{4 {0 0 0} 3}} {false 60 0 0 0 0 0} {{true 0 0 0 0 0 0}}} 4 0001-01-01T00:00:00Z null}`
	dead := &pawlv1.Task{TaskId: "t1", State: pawlv1.State_STATE_DEAD, Status: pawlv1.Status_STATUS_FAILED, Reason: "attempts_exhausted",
		AttemptLog: []*pawlv1.Attempt{{Attempt: 1, Outcome: pawlv1.Outcome_OUTCOME_FAILED, StartedAt: at, Error: &pawlv1.TaskError{Message: "boom"}}}}
	task := &pawlv1.Task{TaskId: "t1", State: pawlv1.State_STATE_READY}
	settings := admin.QueueSettings{MaxAttempts: 9, Weights: &admin.PriorityWeights{High: 1, Normal: 1, Low: 1}, Retention: admin.Retention{Dead: time.Hour}, MaxWait: time.Minute}
	ctx := context.Background()
	ids := func(items []*pawltype.Task) string {
		var out []string
		for _, i := range items {
			out = append(out, fmt.Sprint(i.ID, " ", i.State, " ", i.Status, " ", i.Reason, " ", i.AttemptLog[0].Outcome, " ", i.LastFailure().Message))
		}
		return strings.Join(out, ";")
	}
	for _, c := range []struct {
		method string
		call   func(admin.Client) (any, error)
		req    string // of protobuf, as %v prints it, without spaces
		resp   proto.Message
		want   string
	}{
		{"ListQueues", func(a admin.Client) (any, error) { return collect(a.Queues().List(ctx, admin.QueueFilter{})) }, ``,
			&pawlv1.ListQueuesResponse{Items: []*pawlv1.Queue{queue}}, `[` + wantQueue + `]`},
		{"GetQueue", func(a admin.Client) (any, error) { return a.Queues().Get(ctx, "mail") }, `queue:"mail"`, &pawlv1.GetQueueResponse{Queue: queue}, wantQueue},
		{"ListQueues", func(a admin.Client) (any, error) {
			page, err := a.Queues().ListPage(ctx, admin.QueueFilter{Series: time.Hour, Pattern: "m*", Having: admin.QueueNoWorker, Most: true}, pawltype.PageRequest{Limit: 7, Cursor: "c"})
			return page.Items[0].Name, err
		}, `limit:7cursor:"c"series:{seconds:3600}pattern:"m*"having:QUEUE_TRAIT_NO_WORKERorder:QUEUE_ORDER_MOST`, &pawlv1.ListQueuesResponse{Items: []*pawlv1.Queue{queue}}, `mail`},
		{"PutQueue", func(a admin.Client) (any, error) { return a.Queues().Put(ctx, "mail", settings) },
			`queue:"mail"settings:{weights:{high:1normal:1low:1}retry:{}max_attempts:9retention:{dead:{seconds:3600}}max_wait:{seconds:60}}`, &pawlv1.PutQueueResponse{Queue: queue}, wantQueue},
		{"PutQueue", func(a admin.Client) (any, error) {
			return a.Queues().PutIfVersion(ctx, "mail", 0, admin.QueueSettings{})
		},
			`queue:"mail"settings:{retry:{}retention:{}}if_version:0`, &pawlv1.PutQueueResponse{Queue: queue}, wantQueue},
		{"DeleteQueue", func(a admin.Client) (any, error) { return nil, a.Queues().Delete(ctx, "mail") }, `queue:"mail"`, &pawlv1.DeleteQueueResponse{}, `null`},
		{"PauseQueue", func(a admin.Client) (any, error) { return a.Queues().Pause(ctx, "mail", "fire") }, `queue:"mail"reason:"fire"`, &pawlv1.PauseQueueResponse{Queue: queue}, wantQueue},
		{"PutQueue", func(a admin.Client) (any, error) {
			return a.Queues().Put(ctx, "mail", admin.QueueSettings{
				QueueLimits: admin.QueueLimits{MaxRunning: 50, Rate: admin.RateLimit{Limit: 9, Period: time.Second, Burst: 3}}, PerKey: admin.QueueLimits{MaxRunning: 2},
				Keys: map[string]admin.KeyLimits{"vip": {QueueLimits: admin.QueueLimits{MaxRunning: 4}, Weight: 3}}})
		}, `queue:"mail"settings:{retry:{}retention:{}max_running:50rate:{limit:9period:{seconds:1}burst:3}per_key:{max_running:2}keys:{key:"vip"value:{max_running:4weight:3}}}`,
			&pawlv1.PutQueueResponse{Queue: queue}, wantQueue},
		{"PutQueue", func(a admin.Client) (any, error) {
			return a.Queues().Put(ctx, "mail", admin.QueueSettings{Breaker: &admin.Breaker{Window: time.Minute, Probes: 2}, Breakers: map[string]admin.Breaker{"sms": {Off: true}}})
		}, `queue:"mail"settings:{retry:{}retention:{}breaker:{window:{seconds:60}probes:2}breakers:{key:"sms"value:{off:true}}}`,
			&pawlv1.PutQueueResponse{Queue: queue}, wantQueue},
		{"CloseBreaker", func(a admin.Client) (any, error) { return a.Queues().CloseBreaker(ctx, "mail", "sms", "back") }, `queue:"mail"type:"sms"reason:"back"`,
			&pawlv1.CloseBreakerResponse{Queue: queue}, wantQueue},
		{"PauseQueue", func(a admin.Client) (any, error) {
			return a.Queues().PauseSubset(ctx, "mail", admin.PausedSubset{Type: "report", Reason: "paper"})
		}, `queue:"mail"reason:"paper"type:"report"`, &pawlv1.PauseQueueResponse{Queue: queue}, wantQueue},
		{"ResumeQueue", func(a admin.Client) (any, error) {
			return a.Queues().ResumeSubset(ctx, "mail", admin.PausedSubset{Key: "acme"})
		}, `queue:"mail"key:"acme"`, &pawlv1.ResumeQueueResponse{Queue: queue}, wantQueue},
		{"ResumeQueue", func(a admin.Client) (any, error) { return a.Queues().Resume(ctx, "mail", "ok") }, `queue:"mail"reason:"ok"`, &pawlv1.ResumeQueueResponse{Queue: queue}, wantQueue},
		{"SpreadQueue", func(a admin.Client) (any, error) {
			q, err := a.Queues().Spread(ctx, "mail", admin.SpreadOptions{Parts: 2}, "hot")
			return q.Parts, err
		}, `queue:"mail"parts:2reason:"hot"`, &pawlv1.SpreadQueueResponse{Queue: &pawlv1.Queue{Parts: []*pawlv1.QueuePart{{Shard: 3, Slots: 32, Moving: true, Depth: &pawlv1.Depth{Ready: 9}}}}},
			`[{3 32 true false {0 9 0 0 0 0 0}}]`},
		{"SpreadQueue", func(a admin.Client) (any, error) {
			q, err := a.Queues().Spread(ctx, "mail", admin.SpreadOptions{Shards: []int{3, 4}, Exclusive: true}, "")
			return q.Name, err
		}, `queue:"mail"shards:3shards:4own:true`, &pawlv1.SpreadQueueResponse{Queue: &pawlv1.Queue{Queue: "mail"}}, `mail`},
		{"PurgeQueue", func(a admin.Client) (any, error) { return a.Queues().Purge(ctx, "mail", "old") }, `queue:"mail"reason:"old"`, &pawlv1.PurgeQueueResponse{Discarded: 7}, `7`},
		{"ListDead", func(a admin.Client) (any, error) {
			items, err := collect(a.DeadLetters().List(ctx, admin.Filter{Queue: "mail", Error: "boom"}))
			return ids(items), err
		}, `filter:{queue:"mail"error:"boom"}`, &pawlv1.ListDeadResponse{Items: []*pawlv1.Task{dead}}, `t1 dead failed attempts_exhausted failed boom`},
		{"ListPoisoned", func(a admin.Client) (any, error) {
			items, err := collect(a.DeadLetters().ListPoisoned(ctx, admin.Filter{Queue: "mail"}))
			return ids(items), err
		}, `filter:{queue:"mail"}`, &pawlv1.ListPoisonedResponse{Items: []*pawlv1.Task{dead}}, `t1 dead failed attempts_exhausted failed boom`},
		{"GroupDead", func(a admin.Client) (any, error) { return a.DeadLetters().Groups(ctx, "mail", true) }, `queue:"mail"poisoned:true`,
			&pawlv1.GroupDeadResponse{Groups: []*pawlv1.DeadGroup{{Fingerprint: "f", Type: "x", Message: "m", Count: 3, FirstAt: at, LastAt: at, SampleTaskId: "t1", Queues: 2, Queue: "mail", Trend: []int64{1, 2}}}, Partial: true},
			`{[{f x m 3 2026-01-02T03:04:05Z 2026-01-02T03:04:05Z t1 2 mail [1 2]}] true}`},
		{"ReplayDead", func(a admin.Client) (any, error) {
			return a.DeadLetters().Replay(ctx, admin.DeadSelection{Queue: "mail", Filter: &admin.Filter{Type: "x"}, Max: 10, Rate: 50, DryRun: true, Reason: "fixed"})
		}, `queue:"mail"filter:{type:"x"}max:10rate:50dry_run:truereason:"fixed"`, &pawlv1.ReplayDeadResponse{Matched: 5, Replayed: 4}, `{5 4}`},
		{"DiscardDead", func(a admin.Client) (any, error) {
			return a.DeadLetters().Discard(ctx, admin.DeadSelection{Queue: "mail", TaskIDs: []string{"t1"}, Poisoned: true})
		}, `queue:"mail"task_ids:"t1"poisoned:true`, &pawlv1.DiscardDeadResponse{Matched: 5, Discarded: 4}, `{5 4}`},
		{"ListArchive", func(a admin.Client) (any, error) {
			items, err := collect(a.DeadLetters().Archive(ctx, "mail"))
			return fmt.Sprint(items[0].Task.ID, items[0].Cause, items[0].Place, items[0].ArchivedAt), err
		}, `queue:"mail"`, &pawlv1.ListArchiveResponse{Items: []*pawlv1.ArchivedTask{{Task: dead, ArchivedAt: at, Cause: "purge", Place: "f:1"}}}, `t1purgef:12026-01-02 03:04:05 +0000 UTC`},
		{"RestoreArchive", func(a admin.Client) (any, error) {
			out, err := a.DeadLetters().Restore(ctx, "f:1", "f:2")
			return fmt.Sprint(out[0].TaskID, out[1].Place, errors.Is(out[1].Err, pawltype.ErrNotFound)), err
		}, `places:"f:1"places:"f:2"`, &pawlv1.RestoreArchiveResponse{Results: []*pawlv1.RestoredTask{{Place: "f:1", TaskId: "t9"}, {Place: "f:2", Error: &pawlv1.Error{Code: "not_found"}}}}, `t9f:2true`},
		{"RetryTask", func(a admin.Client) (any, error) { i, err := a.Tasks().Retry(ctx, "t1"); return i.State, err }, `task_id:"t1"`, &pawlv1.RetryTaskResponse{Task: task}, `ready`},
		{"RunTaskNow", func(a admin.Client) (any, error) { i, err := a.Tasks().RunNow(ctx, "t1"); return i.State, err }, `task_id:"t1"`, &pawlv1.RunTaskNowResponse{Task: task}, `ready`},
		{"DiscardTask", func(a admin.Client) (any, error) { i, err := a.Tasks().Discard(ctx, "t1", "no"); return i.State, err }, `task_id:"t1"reason:"no"`, &pawlv1.DiscardTaskResponse{Task: task}, `ready`},
		{"GetServer", func(a admin.Client) (any, error) { return a.Cluster().Server(ctx) }, ``, &pawlv1.GetServerResponse{Version: "v", ClusterId: "c", Node: "n", Now: at,
			Shards: []*pawlv1.ShardInfo{{Shard: 1, Leader: "n", Index: 2, Term: 3}}}, `{v c n 2026-01-02T03:04:05Z [{1 n 2 3}]}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			var method, req string
			f.operator = func(m string, r any) (any, bool) {
				method, req = m, strings.ReplaceAll(fmt.Sprint(r), " ", "")
				return c.resp, true
			}
			got, err := c.call(admin.New(client))
			if err != nil || method != c.method || req != c.req {
				t.Errorf("%s: sent %s %s, error %v, want %s", c.method, method, req, err, c.req)
			}
			if flat(got) != c.want {
				t.Errorf("%s: got\n%s, want\n%s", c.method, flat(got), c.want)
			}
		})
	}
}

// flat prints what v is made of, in the order of its fields.
func flat(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	out := string(data)
	// Leave out the names: {"A":1,"B":2} is {1 2}.
	var b strings.Builder
	for i := 0; i < len(out); i++ {
		if out[i] == '"' {
			end := i + 1 + strings.IndexByte(out[i+1:], '"')
			if end+1 < len(out) && out[end+1] == ':' {
				i = end + 1
				continue
			}
			b.WriteString(out[i+1 : end])
			i = end
			continue
		}
		if out[i] == ',' {
			b.WriteByte(' ')
			continue
		}
		b.WriteByte(out[i])
	}
	return b.String()
}

func collect[T any](seq func(yield func(T, error) bool)) (out []T, err error) {
	for item, err := range seq {
		if err != nil {
			return out, err
		}
		out = append(out, item)
	}
	return out, nil
}

func TestAdminRefusesWhatIsAmbiguous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := start(t)
		_, err := admin.New(client).DeadLetters().Discard(t.Context(), admin.DeadSelection{Queue: "mail"})
		wantErr(t, "discard without a selection", err, pawltype.ErrInvalidArgument)
		_, err = admin.New(client).DeadLetters().Discard(t.Context(), admin.DeadSelection{Queue: "mail", Filter: &admin.Filter{}, Rate: 1})
		wantErr(t, "discard with a rate", err, pawltype.ErrInvalidArgument)
	})
}
