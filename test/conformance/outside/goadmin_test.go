package outside

import (
	"context"
	"fmt"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// operate makes operators' calls.
func (f *goDriver) operate(ctx context.Context, do string, with map[string]any) (any, error) {
	name, queue, task, reason := text(with, "name"), text(with, "queue"), text(with, "task"), text(with, "reason")
	switch do {
	case "put_schedule":
		return f.putSchedule(ctx, with)
	case "get_schedule":
		return goSchedule(f.admin.Schedules().Get(ctx, name))
	case "delete_schedule":
		return nil, f.admin.Schedules().Delete(ctx, name)
	case "pause_schedule":
		return goSchedule(f.admin.WithReason(reason).Schedules().Pause(ctx, name))
	case "resume_schedule":
		return goSchedule(f.admin.Schedules().Resume(ctx, name))
	case "trigger_schedule":
		return goRef(f.admin.Schedules().Trigger(ctx, name))
	case "set_queue":
		return f.setQueue(ctx, with)
	case "get_queue":
		return goQueue(f.admin.Queues().Get(ctx, queue))
	case "pause_queue":
		return goQueue(f.admin.WithActor(text(with, "actor")).WithReason(reason).Queues().Pause(ctx, queue))
	case "resume_queue":
		return goQueue(f.admin.WithReason(reason).Queues().Resume(ctx, queue))
	case "purge_queue":
		n, err := f.admin.WithReason(reason).Queues().Purge(ctx, queue)
		return map[string]any{"discarded": n}, err
	case "explain":
		return goExplanation(f.admin.Tasks().Explain(ctx, task))
	case "run_now":
		return goTask(f.admin.Tasks().RunNow(ctx, task))
	case "retry_task":
		return goTask(f.admin.Tasks().Retry(ctx, task))
	}
	return f.operateMany(ctx, do, with)
}

// operateMany makes the calls about many tasks, or about workers.
func (f *goDriver) operateMany(ctx context.Context, do string, with map[string]any) (any, error) {
	queue := text(with, "queue")
	switch do {
	case "dead_groups":
		return goDeadGroups(f.admin.DeadLetters().Groups(ctx, queue, false))
	case "start_operation":
		filter, _ := with["filter"].(map[string]any)
		return goOperation(f.admin.WithReason(text(with, "reason")).Operations().Start(ctx, admin.OperationSpec{
			Action: admin.Action(text(with, "action")), Filter: &admin.Filter{Queue: text(filter, "queue"), Tag: text(filter, "tag")}}))
	case "get_operation":
		return goOperation(f.admin.Operations().Get(ctx, text(with, "operation")))
	case "find_worker":
		return f.findWorker(ctx, text(with, "worker"))
	case "queue_stats":
		s, err := f.admin.Queues().Stats(ctx, queue, 0)
		if err != nil {
			return nil, err
		}
		return map[string]any{"queue": queue, "totals": map[string]any{"enqueued": s.Totals.Enqueued, "claimed": s.Totals.Claimed,
			"succeeded": s.Totals.Succeeded}}, nil
	}
	return nil, fmt.Errorf("no such call: %s", do)
}

func (f *goDriver) putSchedule(ctx context.Context, with map[string]any) (any, error) {
	item, err := goItem(with["task"])
	if err != nil {
		return nil, err
	}
	spec := admin.ScheduleSpec{Name: text(with, "name"), Cron: text(with, "cron"), TimeZone: text(with, "time_zone"),
		Every: length(with["every"]), Missed: admin.Missed(text(with, "missed")), Overlap: admin.Overlap(text(with, "overlap")),
		Owner: text(with, "owner"), Task: item.Args, Options: item.Options}
	put := f.admin.Schedules().Put
	if with["dry_run"] == true {
		put = f.admin.Schedules().Preview
	}
	change, err := put(ctx, spec)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"change": change.Change}
	if out["schedule"], err = goSchedule(change.Schedule, nil); err == nil && change.Before != nil {
		out["before"], err = goSchedule(change.Before, nil)
	}
	return out, err
}

func goSchedule(s *admin.Schedule, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	out := map[string]any{"name": s.Name, "cron": s.Cron, "time_zone": s.TimeZone, "every": s.Every.String(), "missed": s.Missed,
		"overlap": s.Overlap, "owner": s.Owner, "paused": s.Pause != nil, "task": map[string]any{"type": s.Task.Type, "queue": s.Task.Queue,
			"payload": data(s.Task.Payload, s.Task.ContentType)}}
	if s.Pause != nil {
		out["paused_reason"] = s.Pause.Reason
	}
	return out, nil
}

func (f *goDriver) setQueue(ctx context.Context, with map[string]any) (any, error) {
	s, err := read[struct {
		MaxAttempts int      `json:"max_attempts"`
		MaxLength   int64    `json:"max_length"`
		Retry       *goRetry `json:"retry"`
	}](with["settings"])
	if err != nil {
		return nil, err
	}
	settings := admin.QueueSettings{MaxAttempts: s.MaxAttempts, MaxLength: s.MaxLength}
	if s.Retry != nil {
		settings.Retry = s.Retry.policy()
	}
	return goQueue(f.admin.Queues().Put(ctx, text(with, "queue"), settings))
}

func goQueue(q *admin.Queue, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"queue": q.Name, "paused": q.Paused, "paused_reason": q.PausedReason, "paused_by": q.PausedBy,
		"depth": map[string]any{"ready": q.Depth.Ready}, "settings": map[string]any{"max_attempts": q.Settings.MaxAttempts,
			"max_length": q.Settings.MaxLength}}, nil
}

func goExplanation(e *admin.Explanation, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	var reasons []any
	for _, r := range e.Reasons {
		reasons = append(reasons, map[string]any{"code": r.Code})
	}
	return map[string]any{"task_id": e.TaskID, "state": e.State, "reasons": reasons}, nil
}

func goDeadGroups(g *admin.DeadGroups, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	var groups []any
	for _, each := range g.Groups {
		groups = append(groups, map[string]any{"type": each.Type, "message": each.Message, "count": each.Count})
	}
	return map[string]any{"groups": groups}, nil
}

func goOperation(o *admin.Operation, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"operation_id": o.ID, "action": o.Action, "state": o.State, "done": o.Counts.Done}, nil
}

func (f *goDriver) findWorker(ctx context.Context, name string) (any, error) {
	for w, err := range f.admin.Workers().List(ctx, admin.WorkerFilter{}) {
		if err != nil {
			return nil, err
		}
		if w.Name != name {
			continue
		}
		var tasks []any
		for _, t := range w.Tasks {
			tasks = append(tasks, map[string]any{"task_id": t.ID, "type": t.Type, "queue": t.Queue})
		}
		return map[string]any{"worker": w.Name, "running": w.Running, "tasks": tasks}, nil
	}
	return nil, &pawltype.Error{Code: "not_found"}
}
