package conformance

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// actor is the actor's name through every API.
const actor = "lena@ops"

// directly is the actor of the direct API.
var directly = task.Author{Name: actor, Interface: "direct"}

// read marks calls that change nothing, and work those of producers and workers: neither is audited.
const (
	read task.Action = "(reads)"
	work task.Action = "(works)"
)

// actionOf maps every call of the API to its action in the audit.
var actionOf = map[string]task.Action{
	"ProducerService.Enqueue": work, "ProducerService.EnqueueBatch": work, "ProducerService.Produce": work, "ProducerService.GetTask": read,
	"ProducerService.ListTasks": read, "ProducerService.ExplainTask": read, "ProducerService.CancelTask": task.TaskCancelled,
	"ProducerService.UpdateTask": task.TaskEdited,

	"OperatorService.ListQueues": read, "OperatorService.GetQueue": read, "OperatorService.ExplainQueue": read,
	"OperatorService.ListDead": read, "OperatorService.ListPoisoned": read, "OperatorService.GroupDead": read,
	"OperatorService.GetServer": read, "OperatorService.PutQueue": task.QueuePut, "OperatorService.DeleteQueue": task.QueueDeleted,
	"OperatorService.PauseQueue": task.QueuePaused, "OperatorService.ResumeQueue": task.QueueResumed,
	"OperatorService.SpreadQueue": task.QueueSpread, "OperatorService.PurgeQueue": task.QueuePurged,
	"OperatorService.CloseBreaker": task.BreakerClosed, "OperatorService.RetryTask": task.TaskRetried,
	"OperatorService.RunTaskNow": task.TaskRunNow, "OperatorService.DiscardTask": task.TaskDiscarded,

	"ScheduleService.ListSchedules": read, "ScheduleService.GetSchedule": read, "ScheduleService.ListScheduleHistory": read,
	"ScheduleService.PutSchedule": task.SchedulePut, "ScheduleService.DeleteSchedule": task.ScheduleDeleted,
	"ScheduleService.PauseSchedule": task.SchedulePaused, "ScheduleService.ResumeSchedule": task.ScheduleResumed,
	"ScheduleService.TriggerSchedule": task.ScheduleTriggered,

	// Package node tests these, on several nodes.
	"ClusterService.GetCluster": read, "ClusterService.GetMap": read, "ClusterService.VerifyShard": read,
	"ClusterService.DrainNode": task.NodeDrained, "ClusterService.RemoveNode": task.NodeRemoved,
	"ClusterService.MoveReplica": task.ReplicaMoved, "ClusterService.TransferLeader": task.LeaderTransferred,
	"ClusterService.AddShards": task.ShardsAdded, "ClusterService.SetReplication": task.ReplicationSet,
	"ClusterService.SetAuditRetention": task.AuditRetentionSet, "ClusterService.RaiseLevel": task.LevelRaised,
	"ClusterService.Backup": task.BackupTaken,

	"AuditService.ListAudit": read,

	// Package node tests these, with tokens.
	"AccessService.WhoAmI": read, "AccessService.ListTokens": read, "AccessService.GetToken": read, "AccessService.ListNamespaces": read,
	"AccessService.GetNamespace": read, "AccessService.GetLimits": read, "AccessService.AddToken": task.TokenAdded,
	"AccessService.RotateToken": task.TokenRotated, "AccessService.RevokeToken": task.TokenRevoked,
	"AccessService.AddNamespace": task.NamespaceAdded, "AccessService.SetQuotas": task.QuotasSet,
	"AccessService.RemoveNamespace": task.NamespaceRemoved,

	"WebhookService.ListWebhooks": read, "WebhookService.GetWebhook": read, "WebhookService.ListWebhookDeliveries": read,
	"WebhookService.AddWebhook": task.WebhookAdded, "WebhookService.SetWebhook": task.WebhookSet,
	"WebhookService.RemoveWebhook": task.WebhookRemoved, "WebhookService.PauseWebhook": task.WebhookPaused,
	"WebhookService.ResumeWebhook": task.WebhookResumed, "WebhookService.TestWebhook": task.WebhookTested,
	"WebhookService.RotateWebhookSecret": task.WebhookRotated,

	"WorkerRegistryService.ListWorkers": read, "WorkerRegistryService.GetWorker": read,
	"WorkerRegistryService.QuietWorker": task.WorkerQuieted, "WorkerRegistryService.ResumeWorker": task.WorkerResumed,
	"EventService.WatchEvents": read, "StatsService.GetStats": read, "StatsService.GetQueueStats": read, "StatsService.GetQueueScale": read,
	"StatsService.ListTypes": read, "StatsService.GetTypeStats": read,

	"OperationService.StartOperation": task.OperationStarted, "OperationService.PauseOperation": task.OperationPaused,
	"OperationService.ResumeOperation": task.OperationResumed, "OperationService.AbortOperation": task.OperationAborted,
	"OperationService.GetOperation": read, "OperationService.ListOperations": read,

	"GroupService.CreateGroup": work, "GroupService.AddGroupTasks": work, "GroupService.CloseGroup": work, "GroupService.GetGroup": read,
	"GroupService.ListGroups": read, "GroupService.ListGroupMembers": read, "GroupService.CancelGroup": task.GroupCancelled,
}

// A new call of the API must have an action in the audit, or be known to need none.
func TestEachCallHasAnAction(t *testing.T) {
	known := map[string]bool{}
	for _, file := range []protoreflect.FileDescriptor{pawlv1.File_pawl_v1_producer_proto, pawlv1.File_pawl_v1_worker_proto,
		pawlv1.File_pawl_v1_operator_proto, pawlv1.File_pawl_v1_schedule_proto, pawlv1.File_pawl_v1_cluster_proto,
		pawlv1.File_pawl_v1_audit_proto, pawlv1.File_pawl_v1_group_proto, pawlv1.File_pawl_v1_operation_proto,
		pawlv1.File_pawl_v1_worker_registry_proto, pawlv1.File_pawl_v1_access_proto, pawlv1.File_pawl_v1_webhook_proto,
		pawlv1.File_pawl_v1_event_proto, pawlv1.File_pawl_v1_stats_proto} {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				name := fmt.Sprintf("%s.%s", s.Name(), s.Methods().Get(j).Name())
				known[name] = true
				action, ok := actionOf[name]
				if s.Name() != "WorkerService" && !ok || ok && action != read && action != work && !slices.Contains(task.Actions, action) {
					t.Errorf("%s has the action %q, which is none", name, action)
				}
			}
		}
	}
	for name := range actionOf {
		if !known[name] {
			t.Errorf("%s is no call", name)
		}
	}
}

// audited returns the audit entries since the last call, oldest first.
func (w *world) audited() (all []string) {
	w.Helper()
	list, _, err := w.testNode.router.Audit(w.ctx(), broker.AuditQuery{Namespace: namespace}, nil, 1000)
	is(w, "missing shards", len(list.Missing), 0)
	must(w.T, err)
	for _, r := range slices.Backward(list.Value.Records) {
		if place := fmt.Sprint(r.Place()); !slices.Contains(w.testNode.audits, place) {
			w.testNode.audits = append(w.testNode.audits, place)
			is(w, "who", r.By.Name, actor)
			all = append(all, string(r.Action))
		}
	}
	return all
}

func TestAudit(t *testing.T) {
	tellAll(t, []story{
		{name: "every operator call on queues is audited, except those that change nothing", tell: func(w *world) {
			noted := func(what string, want ...string) { w.Helper(); is(w, what, w.audited(), want) }
			w.put("mail", settings{})
			noted("a new queue", "queue.create")
			w.put("mail", settings{MaxLength: 9})
			noted("other settings", "queue.put")
			w.put("mail", settings{MaxLength: 9})
			noted("the same settings")
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "mail", pause{Reason: "deploy"}))
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "mail", pause{Reason: "deploy"}))
			noted("a pause, twice", "queue.pause")
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "mail", pause{Type: "job"}))
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "mail", pause{Key: "acme"}))
			noted("of a type and a key", "queue.pause", "queue.pause")
			ok[queueInfo](w)(w.api.Resume(w.ctx(), "mail", pause{}))
			ok[queueInfo](w)(w.api.Resume(w.ctx(), "mail", pause{}))
			ok[queueInfo](w)(w.api.Resume(w.ctx(), "mail", pause{Type: "job"}))
			noted("the ends of pauses", "queue.resume", "queue.resume")
			w.fill(3, spec{Queue: "mail"})
			is(w, "the purge", ok[int64](w)(w.api.Purge(w.ctx(), "mail")), 3)
			is(w, "the purge", ok[int64](w)(w.api.Purge(w.ctx(), "mail")), 0)
			noted("a purge, twice", "queue.purge")
			must(w.T, w.api.DeleteQueue(w.ctx(), "mail"))
			noted("the end of the queue", "queue.delete")
			_, err := w.api.Pause(w.ctx(), "mail", pause{})
			is(w, "a refusal", err != nil, true)
			noted("what is refused")
		}},
		{name: "operator calls on tasks are audited, calls of producers and workers are not", tell: func(w *world) {
			noted := func(what string, want ...string) { w.Helper(); is(w, what, w.audited(), want) }
			id, late := w.id(spec{}), w.id(spec{Delay: hour})
			noted("tasks")
			ok[view](w)(w.api.Update(w.ctx(), id, edit{Priority: "high"}))
			ok[view](w)(w.api.Update(w.ctx(), id, edit{Priority: "high"}))
			noted("an edit, twice", "task.edit")
			ok[view](w)(w.api.RunNow(w.ctx(), late))
			ok[view](w)(w.api.RunNow(w.ctx(), late))
			noted("a run, twice", "task.run_now")
			ok[view](w)(w.api.Cancel(w.ctx(), id))
			ok[view](w)(w.api.Cancel(w.ctx(), id))
			noted("a cancel, twice", "task.cancel")
			ok[view](w)(w.api.Retry(w.ctx(), id))
			noted("a retry", "task.retry")
			ok[view](w)(w.api.Discard(w.ctx(), late))
			noted("a discard", "task.discard")
			w.ack(w.claim())
			noted("a worker")
			_, err := w.api.Cancel(w.ctx(), id)
			is(w, "a refusal", err != nil, true)
			noted("what is refused")
		}},
		{name: "every operator call on schedules is audited", tell: func(w *world) {
			noted := func(what string, want ...string) { w.Helper(); is(w, what, w.audited(), want) }
			s := schedule{Name: "nightly", Cron: "0 3 * * *", Task: spec{Type: "report"}}
			w.schedule(s)
			w.schedule(s)
			noted("a schedule, twice", "schedule.put")
			ok[putAnswer](w)(w.api.TrySchedule(w.ctx(), schedule{Name: "nightly", Cron: "0 4 * * *", Task: spec{Type: "report"}}))
			noted("a try")
			ok[scheduleInfo](w)(w.api.PauseSchedule(w.ctx(), "nightly", "holidays"))
			ok[scheduleInfo](w)(w.api.PauseSchedule(w.ctx(), "nightly", "holidays"))
			noted("a pause, twice", "schedule.pause")
			_, _, err := w.api.Trigger(w.ctx(), "nightly")
			must(w.T, err)
			noted("a trigger", "schedule.trigger")
			ok[scheduleInfo](w)(w.api.ResumeSchedule(w.ctx(), "nightly"))
			ok[scheduleInfo](w)(w.api.ResumeSchedule(w.ctx(), "nightly"))
			noted("a resume, twice", "schedule.resume")
			must(w.T, w.api.DeleteSchedule(w.ctx(), "nightly"))
			noted("the end", "schedule.delete")
		}},
		ofTheGateway(story{name: "quieting a worker is audited", tell: func(w *world) {
			noted := func(what string, want ...string) { w.Helper(); is(w, what, w.audited(), want) }
			w.fill(1, spec{})
			w.audited()
			w.claims(claimCall{Queues: []string{"default"}, Max: 1, Worker: "w1"})
			id := ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))[0].ID
			ok[workerInfo](w)(w.workers().Quiet(w.ctx(), id, "deploy"))
			ok[workerInfo](w)(w.workers().Quiet(w.ctx(), id, "deploy"))
			noted("to be quiet, twice", "worker.quiet")
			ok[workerInfo](w)(w.workers().ResumeWorker(w.ctx(), id))
			ok[workerInfo](w)(w.workers().ResumeWorker(w.ctx(), id))
			noted("to resume, twice", "worker.resume")
		}}),
		{name: "cancelling a group leaves one audit entry and none for its members", tell: func(w *world) {
			noted := func(what string, want ...string) { w.Helper(); is(w, what, w.audited(), want) }
			g, _ := w.group(groupSpec{Tasks: []spec{{Type: "a"}, {Type: "b"}}})
			ok[groupInfo](w)(w.api.CancelGroup(w.ctx(), g.ID))
			ok[groupInfo](w)(w.api.CancelGroup(w.ctx(), g.ID))
			w.pass(second)
			noted("a cancel, twice", "group.cancel")
		}},
		ofTheGateway(story{name: "an operation is audited, its effects on tasks are not", tell: func(w *world) {
			noted := func(what string, want ...string) { w.Helper(); is(w, what, w.audited(), want) }
			w.fill(5, spec{})
			o := w.start(operation{Action: "cancel", Filter: filter{Queue: "default"}, Rate: 1})
			w.steer("pause", o.ID)
			w.steer("pause", o.ID)
			noted("a start and a pause", "operation.start", "operation.pause")
			w.steer("resume", o.ID)
			w.steer("resume", o.ID)
			w.steer("abort", o.ID)
			w.steer("abort", o.ID)
			noted("the end", "operation.resume", "operation.abort")
		}}),
		ofTheGateway(story{name: "the audit log can be filtered by every field", tell: func(w *world) {
			w.put("mail", settings{})
			w.pass(minute)
			since := w.now()
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "mail", pause{Reason: "deploy"}))
			id := w.id(spec{Queue: "mail"})
			w.pass(second)
			ok[view](w)(w.api.Cancel(w.ctx(), id))
			r := newREST(w.T, w.testNode)
			for _, c := range []struct{ query, want string }{
				{"", "task.cancel queue.pause queue.create"},
				{"action=queue.*", "queue.pause queue.create"},
				{"action=queue.create", "queue.create"},
				{"target_kind=task", "task.cancel"},
				{"target=" + id, "task.cancel"},
				{"queue=mail", "task.cancel queue.pause queue.create"},
				{"queue=other", ""},
				{"actor=lena%40ops", "task.cancel queue.pause queue.create"},
				{"actor=nobody", ""},
				{"since=" + since.Format("2006-01-02T15:04:05.999999999Z07:00"), "task.cancel queue.pause"},
				{"until=" + since.Format("2006-01-02T15:04:05.999999999Z07:00"), "queue.create"},
				{"limit=1", "task.cancel"},
			} {
				is(w, "what "+c.query+" finds", strings.Join(r.audit(w, c.query), " "), c.want)
			}
			is(w, "the pages", strings.Join(r.auditPages(w, 1), " "), "task.cancel queue.pause queue.create")
			for _, bad := range []string{"action=queue", "action=queue.x", "action=*", "target_kind=x", "since=now", "cursor=x",
				"limit=0", "actor=%00"} {
				_, err := r.auditPage(w, bad)
				is(w, "a refusal of "+bad, err != nil, true)
			}
		}}),
	})
}

// How long entries are kept is a setting, which also applies to existing entries.
func TestAuditRetention(t *testing.T) {
	tellAll(t, []story{{name: "the audit retention also applies to existing entries", tell: func(w *world) {
		keep := func(d span) {
			must(w.T, w.testNode.control.Placement.SetAuditRetention(w.ctx(), task.Author{}, d.std()))
			w.pass(second)
		}
		noted := func() int {
			list, _, err := w.testNode.router.Audit(w.ctx(), broker.AuditQuery{Namespace: namespace, Action: "task.*"}, nil, 1000)
			must(w.T, err)
			return len(list.Value.Records)
		}
		keep(3 * day)
		ok[view](w)(w.api.Cancel(w.ctx(), w.id(spec{})))
		for range 2 {
			w.pass(day + hour)
		}
		is(w, "after two days", noted(), 1)
		keep(30 * day)
		w.pass(3 * day)
		is(w, "after five, and a longer time", noted(), 1)
		keep(2 * day)
		w.pass(day)
		is(w, "a day after a shorter one", noted(), 0)
	}}})
}

// auditPage is the actions on a page of the audit.
type auditPage struct {
	Actions []string
	Next    string
}

// Queues and the cluster are in the system shard, tasks in theirs: a spread queue leaves entries in both.
func TestAuditOfShards(t *testing.T) {
	tellAll(t, []story{ofTheGateway(story{name: "spreading a queue and discarding one of its tasks are audited", shards: 2,
		tell: func(w *world) {
			rpc := newRPC(w.T, w.testNode)
			w.put("default", settings{})
			_, err := ask(w.ctx(), rpc.operator.SpreadQueue, &pawlv1.SpreadQueueRequest{Queue: "default", Parts: 2})
			must(w.T, err)
			w.fill(1, spec{})
			c := w.claim()
			w.fail(c, failing{Outcome: "dead"})
			ok[view](w)(w.api.Discard(w.ctx(), c.ID))
			got := w.audited()
			slices.Sort(got) // the shards' clocks differ
			is(w, "the entries", got, []string{"queue.create", "queue.spread", "task.discard"})
		}})})
}

func (d *rest) auditPage(w *world, query string) (p auditPage, err error) {
	q, err := url.ParseQuery(query)
	must(w.T, err)
	var raw struct {
		Items []map[string]any `json:"items"`
		Next  string           `json:"next_cursor"`
	}
	err = d.query(w.ctx(), "GET", "/audit", q, &raw)
	p.Next = raw.Next
	for _, item := range raw.Items {
		p.Actions = append(p.Actions, fmt.Sprint(item["action"]))
	}
	return p, err
}

// audit returns the actions on a page.
func (d *rest) audit(w *world, query string) []string {
	p, err := d.auditPage(w, query)
	must(w.T, err)
	return p.Actions
}

// auditPages returns the actions on all pages.
func (d *rest) auditPages(w *world, limit int) (actions []string) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	for {
		p, err := d.auditPage(w, query.Encode())
		must(w.T, err)
		actions = append(actions, p.Actions...)
		if p.Next == "" {
			return actions
		}
		query.Set("cursor", p.Next)
	}
}
