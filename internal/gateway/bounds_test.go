package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
)

// copies returns a JSON list of n equal items.
func copies(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// spanText formats a duration as protobuf's JSON does.
func spanText(d time.Duration) string { return fmt.Sprintf(`"%d.%09ds"`, d/time.Second, d%time.Second) }

func text(n int) string { return `"` + strings.Repeat("x", n) + `"` }

// A value at a limit is accepted, and one beyond it is refused.
func TestExactBounds(t *testing.T) {
	l := task.DefaultLimits()
	for _, c := range []struct {
		rpc, request string // contains %s
		good, bad    []string
	}{
		{"ProducerService/ListTasks", `{"limit":%s}`, []string{"0", "1", fmt.Sprint(contract.MaxPage)},
			[]string{"-1", fmt.Sprint(contract.MaxPage + 1)}},
		{"ProducerService/ListTasks", `{"filter":{"error":%s}}`, []string{text(apiproto.MaxNeedle)},
			[]string{text(apiproto.MaxNeedle + 1)}},
		{"ProducerService/ListTasks", `{"filter":{"q":%s}}`, []string{text(apiproto.MaxNeedle)}, []string{text(apiproto.MaxNeedle + 1)}},
		{"ProducerService/ListTasks", `{"filter":{"fingerprint":%s}}`, []string{`"0123456789abcdef"`}, []string{`"0123456789abcde"`,
			`"0123456789abcdeg"`, `"0123456789abcdef0"`}},
		{"ProducerService/ListTasks", `{"filter":{"states":%s}}`, []string{copies(len(task.States), "1"), "[9]"},
			[]string{copies(len(task.States)+1, "1"), "[0]", "[10]"}},
		{"ProducerService/ListTasks", `{"filter":{"created_after":%s}}`, []string{`"1970-01-01T00:00:00.000001Z"`,
			`"9999-12-31T23:59:59Z"`},
			[]string{`"1970-01-01T00:00:00Z"`, `"1969-12-31T23:59:59Z"`, `"0001-01-01T00:00:00Z"`}},
		{"ProducerService/GetTask", `{"task_id":"$failed","wait":%s}`, []string{`"0s"`, spanText(contract.MaxWait)},
			[]string{`"-1s"`, spanText(contract.MaxWait + 1)}},
		{"ProducerService/GetTask", `{"task_id":"$failed","consistency":2,"wait":%s}`, []string{`"0s"`}, []string{`"1s"`}},
		{"ProducerService/GetTask", `{"task_id":"$failed","consistency":%s}`, []string{"0", "1", "2"}, []string{"3"}},
		{"ProducerService/UpdateTask", `{"task_id":"$ready","max_attempts":%s}`, []string{"1", fmt.Sprint(contract.MaxAttempts)},
			[]string{"0", "-1", fmt.Sprint(contract.MaxAttempts + 1)}},
		{"ProducerService/UpdateTask", `{"task_id":"$ready","run_at":%s}`, []string{`"1970-01-01T00:00:00.000001Z"`,
			`"9999-12-31T23:59:59Z"`},
			[]string{`"1970-01-01T00:00:00Z"`, `"1969-12-31T23:59:59Z"`, `"0001-01-01T00:00:00Z"`}},
		{"ProducerService/UpdateTask", `{"task_id":"$ready","priority":%s}`, []string{"1", "3"}, []string{"0", "4"}},
		{"ProducerService/UpdateTask", `{"task_id":"$ready","payload":%s}`, []string{`"MQ=="`, `""`}, []string{`"ew=="`}},
		{"ProducerService/CancelTask", `{"task_id":"$ready","reason":%s}`, []string{text(task.MaxReason)},
			[]string{text(task.MaxReason + 1)}},
		{"ProducerService/EnqueueBatch", `{"tasks":%s}`, []string{copies(1, `{"type":"a"}`), copies(l.Batch, `{"type":"a"}`)},
			[]string{"[]", copies(l.Batch+1, `{"type":"a"}`)}},
		{"GroupService/CreateGroup", `{"open":true,"tasks":%s}`, []string{"[]", copies(l.Batch, `{"type":"a"}`)},
			[]string{copies(l.Batch+1, `{"type":"a"}`)}},
		{"GroupService/AddGroupTasks", `{"group_id":"$group","tasks":%s}`, []string{copies(l.Batch, `{"type":"a"}`)},
			[]string{"[]", copies(l.Batch+1, `{"type":"a"}`)}},
		{"WorkerService/Claim", `{"queues":%s}`, []string{`[{"queue":"q"}]`, copies(1, `{"queue":"q","weight":1000}`)},
			[]string{"[]", copies(task.MaxClaimQueues+1, `{"queue":"q"}`), `[{"queue":"q"},{"queue":"q"}]`,
				`[{"queue":"q"},{"queue":"r"},{"queue":"q"}]`,
				`[{"queue":"q","weight":1},{"queue":"r","weight":2},{"queue":"q","weight":3}]`, `[{"queue":"q","weight":1},{"queue":"r"}]`,
				`[{"queue":"q","weight":1001}]`}},
		{"WorkerService/Claim", `{"queues":[{"queue":"q"}],"types":%s}`, []string{copies(task.MaxClaimTypes, `"a"`)},
			[]string{copies(task.MaxClaimTypes+1, `"a"`), `[""]`}},
		{"WorkerService/Claim", `{"queues":[{"queue":"q","weight":1}],"order":%s}`, []string{"0", "1", "2"}, []string{"3", "-1"}},
		{"WorkerService/Settle", `{"acks":%s}`, []string{copies(contract.MaxSettle, `{}`)}, []string{copies(contract.MaxSettle+1, `{}`)}},
		{"WorkerService/FinishOnce", `{$claim,"key":"k","ttl":%s}`, []string{`"1s"`, spanText(task.MaxHold)}, []string{`"0.999999999s"`,
			spanText(task.MaxHold + 1)}},
		{"WorkerService/FinishOnce", `{$claim,"key":%s}`, []string{text(l.Name)}, []string{`""`, text(l.Name + 1)}},
		{"WorkerService/FinishOnce", `{$claim,"key":"k","result":%s}`, []string{`"e30="`}, []string{`"ew=="`}},
		{"WorkerRegistryService/QuietWorker", `{"worker_id":"$worker","for":%s}`, []string{spanText(workers.MinQuiet),
			spanText(workers.MaxQuiet)}, []string{spanText(workers.MinQuiet - 1), spanText(workers.MaxQuiet + 1)}},
		{"WorkerRegistryService/GetWorker", `{"worker_id":%s}`, []string{`"$worker"`}, []string{`""`, text(maxInstance + 1)}},
		{"ClusterService/AddShards", `{"total":%s}`, []string{"1", fmt.Sprint(cluster.MaxDataShards)},
			[]string{"0", fmt.Sprint(cluster.MaxDataShards + 1)}},
		{"ClusterService/SetReplication", `{"replication":%s}`, []string{"1", "3", "5", "7"}, []string{"0", "2", "9"}},
		{"ClusterService/DrainNode", `{"node":%s}`, []string{`"n1"`}, []string{`""`, `"a b"`}},
		{"ClusterService/TransferLeader", `{"shard":1,"to":%s}`, []string{`"n1"`}, []string{`"a b"`}},
		{"OperatorService/SpreadQueue", `{"queue":"mail","parts":%s}`, []string{"1"}, []string{"0", "-1", fmt.Sprint(contract.MaxParts + 1),
			`1,"shards":[1]`}},
		{"OperatorService/SpreadQueue", `{"queue":"mail","shards":%s}`, []string{"[1]", copies(task.SlotCount, "1")},
			[]string{"[]", copies(task.SlotCount+1, "1")}},
		{"OperatorService/ListDead", `{"filter":{"queue":"mail"%s}}`, []string{"", `,"states":["STATE_DEAD"]`},
			[]string{`,"states":["STATE_POISONED"]`, `,"states":["STATE_DEAD","STATE_DEAD"]`}},
		{"OperatorService/PutQueue", `{"queue":"mail","settings":{"keys":{%s}}}`, []string{numbered(task.MaxKeyRules, `"k%d":{}`)},
			[]string{numbered(task.MaxKeyRules+1, `"k%d":{}`)}},
		{"GroupService/GetGroup", `{"group_id":%s}`, []string{`"$group"`}, []string{`""`, `"x"`}},
		{"WorkerService/Release", `{$claim,"delay":%s}`, []string{`"0s"`, spanText(task.MaxDelay)}, []string{`"-0.000000001s"`,
			spanText(task.MaxDelay + 1)}},
		{"WorkerService/Claim", `{"queues":[%s]}`, []string{numbered(task.MaxClaimQueues, `{"queue":"k%d"}`)},
			[]string{"", numbered(task.MaxClaimQueues+1, `{"queue":"k%d"}`)}},
		{"ScheduleService/PutSchedule", `{%s}`, []string{`"spec":{"name":"s","cron":"@daily","task":{"type":"a"}}`}, []string{""}},
		{"OperatorService/PutQueue", `{"queue":"mail","settings":{"breakers":{%s}}}`, []string{numbered(task.MaxBreakers, `"k%d":{}`)},
			[]string{numbered(task.MaxBreakers+1, `"k%d":{}`)}},
		{"OperatorService/PutQueue", `{"queue":"mail","settings":{"key_order":%s}}`, []string{"0", "1", "2"}, []string{"3"}},
		{"OperatorService/PutQueue", `{"queue":"mail","settings":{},"if_version":%s}`, []string{"1"}, []string{"0", "2"}},
		{"OperationService/StartOperation", `{"dry_run":true,"spec":{"action":1,"filter":{},%s}}`,
			[]string{`"max":2,"canary":1`, `"canary":5`,
				`"max":5`, `"rate":0.000011575`, fmt.Sprintf(`"rate":%v`, apiproto.MinRate), fmt.Sprintf(`"rate":%v`,
					float64(contract.MaxRate))},
			[]string{`"max":2,"canary":2`, `"max":2,"canary":3`, `"max":1,"canary":1`, `"max":-1`, `"canary":-1`, `"rate":0.000011573`,
				fmt.Sprintf(`"rate":%v`, float64(contract.MaxRate)*1.01), `"rate":-1`, `"rate":"NaN"`, `"to_queue":"x"`, `"priority":1`}},
		{"OperationService/StartOperation", `{"dry_run":true,"spec":{"action":"ACTION_MOVE","filter":{"queue":"mail"},"to_queue":%s}}`,
			[]string{`"sms"`}, []string{`""`, `"mail"`, `"a b"`, `"sms","priority":1`}},
		{"OperationService/StartOperation", `{"dry_run":true,"spec":{"action":"ACTION_SET_PRIORITY","filter":{},"priority":%s}}`,
			[]string{"1", "3"}, []string{"0", "4"}},
		{"OperationService/StartOperation", `{"dry_run":true,"spec":%s}`, nil, []string{`{"filter":{}}`, `{"action":1}`}},
		{"StatsService/GetQueueScale", `{"queue":"mail","target":%s}`, []string{`"1s"`, `"86400s"`, `"60s"`}, []string{`"0.999999999s"`,
			`"86400.000000001s"`}},
		{"StatsService/GetQueueScale", `{"queue":"mail","slots":%s}`, []string{"0", "1", fmt.Sprint(contract.MaxScaleSlots)},
			[]string{"-1", fmt.Sprint(contract.MaxScaleSlots + 1)}},
		{"StatsService/ListTypes", `{"pattern":%s}`, []string{`"` + strings.Repeat("*", task.MaxStars) + `"`},
			[]string{`"` + strings.Repeat("*", task.MaxStars+1) + `"`}},
		{"AccessService/AddToken", `{"name":"n","queues":["*"],"roles":["produce"],"expires_in":%s}`,
			[]string{`"1s"`, spanText(auth.MaxLife)}, []string{`"0.999999999s"`, spanText(auth.MaxLife + 1), `"1s","never_expires":true`}},
		{"AccessService/AddToken", `{"name":"n","queues":["*"],"roles":["produce"],"request_id":%s}`, []string{`"$ready"`},
			[]string{`"x"`, `"00000000-0000-0000-0000-000000000000"`}},
		{"AccessService/AddToken", `{"name":"n","queues":["*"],"roles":["produce"],"certificate":%s}`, []string{`"dns:worker.example"`},
			[]string{`"dns:worker.example","sqs":true`, text(1000)}},
		{"AccessService/RotateToken", `{"name":"t","overlap":%s}`, []string{`"0s"`, spanText(auth.MaxOverlap)},
			[]string{`"-1s"`, spanText(auth.MaxOverlap + 1)}},
		{"AccessService/SetQuotas", `{"name":"default","quotas":{%s}}`, []string{`"max_backlog":0`}, []string{"", `"max_backlog":-1`}},
		{"WebhookService/AddWebhook", `{"name":"w","url":"https://example.com/x","events":["task.dead"],"queues":%s}`,
			[]string{copies(task.MaxPatterns, `"a"`)}, []string{copies(task.MaxPatterns+1, `"a"`)}},
		{"WebhookService/SetWebhook", `{"name":"w","queues":%s}`, []string{copies(task.MaxPatterns, `"a"`)},
			[]string{copies(task.MaxPatterns+1, `"a"`)}},
		{"WebhookService/SetWebhook", `{"name":"w","url":%s}`, []string{`"https://example.com"`}, []string{`"http://example.com"`}},
	} {
		for i, value := range slices.Concat(c.good, c.bad) {
			s := newStage(t)
			_, err := s.call(c.rpc, s.fill(strings.Replace(c.request, "%s", value, 1)))
			if e, ok := task.AsError(err); (err == nil) != (i < len(c.good)) || ok && e.Code != task.CodeInvalidArgument &&
				e.Code != task.CodeConflict {
				t.Errorf("%s with %.80s: %v", c.rpc, value, err)
			}
		}
	}
}

// Every list accepts only its own cursors and limits its page size.
func TestListsAcceptTheirOwnCursors(t *testing.T) {
	for _, c := range []struct {
		rpc, of string
		kind    apiproto.CursorKind
		size    int // of a cursor's contents; 0: a name
	}{
		{"AccessService/ListTokens", ``, apiproto.TokenCursor, 0},
		{"AccessService/ListNamespaces", ``, apiproto.NamespaceCursor, 0},
		{"AuditService/ListAudit", ``, apiproto.AuditCursor, 20},
		{"ProducerService/ListTasks", ``, apiproto.TaskCursor, 16},
		{"OperatorService/ListDead", `"filter":{"queue":"mail"},`, apiproto.TaskCursor, 24},
		{"GroupService/ListGroups", ``, apiproto.GroupCursor, 16},
		{"GroupService/ListGroupMembers", `"group_id":"$group",`, apiproto.MemberCursor, 16},
		{"MarkerService/ListMarkers", ``, apiproto.MarkerCursor, 24},
		{"OperationService/ListOperations", ``, apiproto.OperationCursor, 16},
		{"StatsService/ListTypes", ``, apiproto.TypeCursor, 0},
		{"OperatorService/ListQueues", ``, apiproto.QueueCursor, 0},
		{"ScheduleService/ListSchedules", ``, apiproto.ScheduleCursor, 0},
		{"ScheduleService/ListScheduleHistory", `"name":"daily",`, apiproto.TickCursor, 8},
		{"WebhookService/ListWebhooks", ``, apiproto.WebhookCursor, 0},
		{"WorkerRegistryService/ListWorkers", ``, apiproto.WorkerCursor, -1},
	} {
		own := apiproto.EncodeCursor(c.kind, make([]byte, max(c.size, 1)))
		bad := []string{apiproto.EncodeCursor(c.kind^1, make([]byte, max(c.size, 1))), "x"}
		switch {
		case c.size > 0:
			bad = append(bad, apiproto.EncodeCursor(c.kind, make([]byte, c.size-1)), apiproto.EncodeCursor(c.kind, make([]byte, c.size+1)))
		case c.size < 0: // a name and an id
			own, bad = apiproto.EncodeCursor(c.kind, []byte("a\x00b")), append(bad, apiproto.EncodeCursor(c.kind, []byte("ab")))
		}
		s := newStage(t)
		for i, cursor := range append([]string{own}, bad...) {
			if _, err := s.call(c.rpc, s.fill(fmt.Sprintf(`{%s"cursor":%q}`, c.of, cursor))); (err == nil) != (i == 0) {
				t.Errorf("%s with the cursor %s: %v", c.rpc, cursor, err)
			}
		}
		for limit, good := range map[int]bool{1: true, contract.MaxPage: true, -1: false, contract.MaxPage + 1: false} {
			if _, err := s.call(c.rpc, s.fill(fmt.Sprintf(`{%s"limit":%d}`, c.of, limit))); (err == nil) != good {
				t.Errorf("%s with the limit %d: %v", c.rpc, limit, err)
			}
		}
	}
}

// Pages of one item each add up to the list, in its order.
func TestPagesOfOne(t *testing.T) {
	for _, c := range []struct {
		rpc, of string
		more    [][2]string // calls that make the list longer
	}{
		{"GroupService/ListGroups", "", [][2]string{{"GroupService/CreateGroup", `{"name":"h","open":true}`}, {"GroupService/CreateGroup",
			`{"name":"i","open":true}`}}},
		{"GroupService/ListGroupMembers", `"group_id":"$group",`,
			[][2]string{{"GroupService/AddGroupTasks", `{"group_id":"$group","tasks":[{"type":"a"},{"type":"b"}]}`}}},
		{"OperationService/ListOperations", "", [][2]string{{"OperationService/StartOperation",
			goodCalls["OperationService/StartOperation"]},
			{"OperationService/StartOperation", goodCalls["OperationService/StartOperation"]}}},
		{"ScheduleService/ListSchedules", "", [][2]string{{"ScheduleService/PutSchedule", goodCalls["ScheduleService/PutSchedule"]}}},
		{"ScheduleService/ListScheduleHistory", `"name":"daily",`, [][2]string{{"ScheduleService/TriggerSchedule", `{"name":"daily"}`},
			{"ScheduleService/TriggerSchedule", `{"name":"daily"}`}, {"ScheduleService/TriggerSchedule", `{"name":"daily"}`}}},
		{"AccessService/ListTokens", "", [][2]string{{"AccessService/AddToken", goodCalls["AccessService/AddToken"]}}},
		{"WebhookService/ListWebhooks", "", nil}, {"ProducerService/ListTasks", "", nil},
		{"OperatorService/ListQueues", "", [][2]string{{"OperatorService/PutQueue", `{"queue":"sms","settings":{}}`}}},
		{"WorkerRegistryService/ListWorkers", "", [][2]string{{"WorkerService/Claim", `{"queues":[{"queue":"q"}],"worker":"v"}`},
			{"WorkerService/Claim", `{"queues":[{"queue":"q"}],"worker":"x"}`}}},
	} {
		s := newStage(t)
		for _, m := range c.more {
			if _, err := s.call(m[0], s.fill(m[1])); err != nil {
				t.Fatalf("%s: %v", m[0], err)
			}
		}
		read := func(limit int, cursor string) (items []string, next string) {
			answer, err := s.call(c.rpc, s.fill(fmt.Sprintf(`{%s"limit":%d,"cursor":%q}`, c.of, limit, cursor)))
			if err != nil {
				t.Fatalf("%s: %v", c.rpc, err)
			}
			m := answer.ProtoReflect()
			list := m.Get(m.Descriptor().Fields().ByName("items")).List()
			for i := range list.Len() {
				items = append(items, prototext.Format(list.Get(i).Message().Interface()))
			}
			return items, m.Get(m.Descriptor().Fields().ByName("next_cursor")).String()
		}
		whole, behind := read(contract.MaxPage, "")
		var pages []string
		for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
			page, next := read(1, cursor)
			if pages, cursor = append(pages, page...), next; len(page) > 1 || n > len(whole) {
				t.Fatalf("%s: page with %d items, page number %d", c.rpc, len(page), n)
			}
		}
		if page, next := read(len(whole), ""); len(page) != len(whole) || next != "" {
			t.Errorf("%s: a page with limit %d has %d of %d items and next cursor %q", c.rpc, len(whole), len(page), len(whole), next)
		}
		if len(whole) < 2 || behind != "" || !slices.Equal(pages, whole) {
			t.Errorf("%s: pages of one have\n%v\nand the whole list, with next cursor %q, has\n%v", c.rpc, pages, behind, whole)
		}
	}
}

// numbered returns a list of n numbered items.
func numbered(n int, form string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(form, i)
	}
	return strings.Join(items, ",")
}
