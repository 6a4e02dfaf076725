package gateway

import (
	"context"
	"encoding/binary"
	"log/slog"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Schedules is what the gateway needs of schedules, wherever they live.
type Schedules interface {
	PutSchedule(ctx context.Context, by task.Author, ns string, put broker.SchedulePut) (broker.SchedulePutDone, broker.Stamp, error)
	DeleteSchedule(ctx context.Context, by task.Author, ns, name string) (broker.Stamp, error)
	TriggerSchedule(ctx context.Context, by task.Author, ns, name string, request task.ID) (broker.Accepted, broker.Stamp, error)
}

// atHome returns the arguments that address a schedule.
func atHome(ctx context.Context, name string) broker.AtHome {
	return broker.AtHome{OnSchedule: broker.OnSchedule{OnShard: callinfo.OnShard(ctx, 0), Name: name}}
}

// scheduleService implements ScheduleService.
type scheduleService struct {
	pawlv1.UnimplementedScheduleServiceServer
	schedules Schedules
	verbs     verb.Runner
	limits    task.Limits
	log       *slog.Logger
}

// ListSchedules returns a page of schedules by name.
func (g *scheduleService) ListSchedules(ctx context.Context, r *pawlv1.ListSchedulesRequest) (*pawlv1.ListSchedulesResponse, error) {
	n, after, err := apiproto.PageOf(r, apiproto.ScheduleCursor)
	if err != nil {
		return nil, err
	}
	list, err := broker.ListSchedules.Call(ctx, g.verbs, broker.ScheduleList{OnShard: callinfo.OnShard(ctx, 0), After: string(after),
		Limit: n})
	if err != nil {
		return nil, err
	}
	page := list.Page
	out := &pawlv1.ListSchedulesResponse{Missing: apiproto.MissingProto(list.Missing), Items: make([]*pawlv1.Schedule, len(page.Schedules))}
	for i, v := range page.Schedules {
		out.Items[i] = apiproto.ScheduleProto(v)
	}
	if page.More {
		out.NextCursor = apiproto.EncodeCursor(apiproto.ScheduleCursor, []byte(page.Schedules[len(page.Schedules)-1].Name))
	}
	return out, nil
}

// GetSchedule returns one schedule.
func (g *scheduleService) GetSchedule(ctx context.Context, r *pawlv1.GetScheduleRequest) (*pawlv1.GetScheduleResponse, error) {
	p, err := g.scheduled(ctx, r.GetName(), func(of broker.AtHome) (broker.Shown[*broker.ScheduleView], error) {
		return broker.ShowSchedule.Call(ctx, g.verbs, of)
	})
	return &pawlv1.GetScheduleResponse{Schedule: p}, err
}

// scheduled runs a call on a schedule that returns its state.
func (g *scheduleService) scheduled(ctx context.Context, name string, run func(of broker.AtHome) (broker.Shown[*broker.ScheduleView],
	error)) (*pawlv1.Schedule, error) {
	if err := task.CheckSchedule("name", name, g.limits); err != nil {
		return nil, err
	}
	out, err := run(atHome(ctx, name))
	if err != nil {
		return nil, err
	}
	return apiproto.ScheduleProto(out.View), nil
}

// PutSchedule creates or replaces a schedule.
func (g *scheduleService) PutSchedule(ctx context.Context, r *pawlv1.PutScheduleRequest) (*pawlv1.PutScheduleResponse, error) {
	s, err := apiproto.ScheduleOf(r.GetSpec(), g.limits)
	if err == nil {
		err = callinfo.MayEnqueue(ctx, &s.Task)
	}
	if err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return nil, err
	}
	done, at, err := g.schedules.PutSchedule(ctx, by, callinfo.Namespace(ctx), broker.SchedulePut{Schedule: s, Create: r.GetCreateOnly(),
		DryRun: r.GetDryRun(), IfETag: r.GetIfEtag()})
	callinfo.Note(ctx, at)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.PutScheduleResponse{Change: string(done.Change), Schedule: apiproto.ScheduleProto(done.After)}
	if done.Before != nil {
		out.Before = apiproto.ScheduleProto(done.Before)
	}
	if !r.GetDryRun() && done.Change != broker.ScheduleUnchanged {
		g.log.Info("schedule "+out.GetChange(), "schedule", s.Name, "queue", s.Task.Queue, "type", s.Task.Type, "by", by)
	}
	return out, nil
}

// DeleteSchedule deletes a schedule.
func (g *scheduleService) DeleteSchedule(ctx context.Context, r *pawlv1.DeleteScheduleRequest) (*pawlv1.DeleteScheduleResponse, error) {
	if err := task.CheckSchedule("name", r.GetName(), g.limits); err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return nil, err
	}
	at, err := g.schedules.DeleteSchedule(ctx, by, callinfo.Namespace(ctx), r.GetName())
	callinfo.Note(ctx, at)
	if err != nil {
		return nil, err
	}
	g.log.Info("schedule deleted", "schedule", r.GetName(), "by", by)
	return &pawlv1.DeleteScheduleResponse{}, nil
}

// PauseSchedule pauses a schedule.
func (g *scheduleService) PauseSchedule(ctx context.Context, r *pawlv1.PauseScheduleRequest) (*pawlv1.PauseScheduleResponse, error) {
	by, err := callinfo.Author(ctx, r.GetReason())
	if err != nil {
		return nil, err
	}
	p, err := g.scheduled(ctx, r.GetName(), func(of broker.AtHome) (broker.Shown[*broker.ScheduleView], error) {
		return broker.PauseSchedule.Call(ctx, g.verbs, broker.ScheduleCommand{AtHome: of, Authored: broker.Authored{By: by},
			Reason: by.Reason})
	})
	if err == nil {
		g.log.Info("schedule paused", "schedule", r.GetName(), "by", by)
	}
	return &pawlv1.PauseScheduleResponse{Schedule: p}, err
}

// ResumeSchedule resumes a schedule.
func (g *scheduleService) ResumeSchedule(ctx context.Context, r *pawlv1.ResumeScheduleRequest) (*pawlv1.ResumeScheduleResponse, error) {
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return nil, err
	}
	p, err := g.scheduled(ctx, r.GetName(), func(of broker.AtHome) (broker.Shown[*broker.ScheduleView], error) {
		return broker.ResumeSchedule.Call(ctx, g.verbs, broker.ScheduleCommand{AtHome: of, Authored: broker.Authored{By: by}})
	})
	if err == nil {
		g.log.Info("schedule resumed", "schedule", r.GetName(), "by", by)
	}
	return &pawlv1.ResumeScheduleResponse{Schedule: p}, err
}

// TriggerSchedule enqueues a schedule's task now.
func (g *scheduleService) TriggerSchedule(ctx context.Context, r *pawlv1.TriggerScheduleRequest) (*pawlv1.TriggerScheduleResponse, error) {
	if err := task.CheckSchedule("name", r.GetName(), g.limits); err != nil {
		return nil, err
	}
	request, err := apiproto.RequestIDOf(r.GetRequestId())
	if err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return nil, err
	}
	a, at, err := g.schedules.TriggerSchedule(ctx, by, callinfo.Namespace(ctx), r.GetName(), request)
	callinfo.Note(ctx, at)
	if err != nil {
		return nil, err
	}
	g.log.Info("schedule triggered", "schedule", r.GetName(), "task_id", a.ID.String(), "by", by)
	return &pawlv1.TriggerScheduleResponse{TaskId: a.ID.String(), State: apiproto.StateProto(a.State),
			Status: apiproto.StatusProto(a.State)},
		nil
}

// ListScheduleHistory returns a page of the history of a schedule.
func (g *scheduleService) ListScheduleHistory(ctx context.Context,
	r *pawlv1.ListScheduleHistoryRequest) (*pawlv1.ListScheduleHistoryResponse, error) {
	if err := task.CheckSchedule("name", r.GetName(), g.limits); err != nil {
		return nil, err
	}
	n, at, err := apiproto.PageOf(r, apiproto.TickCursor)
	if err != nil {
		return nil, err
	}
	var below uint64
	if at != nil {
		if len(at) != 8 {
			return nil, apiproto.BadCursor(r.GetCursor())
		}
		below = binary.BigEndian.Uint64(at)
	}
	page, err := broker.ScheduleHistory.Call(ctx, g.verbs, broker.ScheduleHistoryList{AtHome: atHome(ctx, r.GetName()),
		Below: below, Limit: n + 1})
	if err != nil {
		return nil, err
	}
	entries := page.Entries
	out := &pawlv1.ListScheduleHistoryResponse{}
	if len(entries) > n {
		entries = entries[:n]
		out.NextCursor = apiproto.EncodeCursor(apiproto.TickCursor, binary.BigEndian.AppendUint64(nil, entries[n-1].Seq))
	}
	for _, e := range entries {
		out.Items = append(out.Items, apiproto.TickProto(e))
	}
	return out, nil
}
