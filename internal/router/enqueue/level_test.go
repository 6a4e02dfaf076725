package enqueue_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

// Below their feature level, tasks with fields that an older leader would lose are refused. The other tasks of a batch are enqueued.
func TestNewFieldsNeedTheirLevel(t *testing.T) {
	routertest.InFleet(t, 1, func(f *routertest.Fleet) {
		m := f.Nodes[1]
		for _, b := range []task.Spec{{Unique: &task.Unique{Key: "k"}}, {Then: []task.Spec{{Type: "d"}}}} {
			b.Type, b.Queue = "b", "q"
			needsLevel(t, m, []task.Spec{{Type: "a", Queue: "q"}, b, {Type: "c", Queue: "q"}})
		}
	})
}

// needsLevel enqueues three tasks. The second one needs the newest feature level.
func needsLevel(t *testing.T, m *routertest.Member, specs []task.Spec) {
	for level, want := range map[int]error{0: task.ErrUnavailable, cluster.PoliciesLevel - 1: task.ErrWrongState, cluster.PoliciesLevel: nil} {
		m.FeatureLevel = level
		got, _, err := m.Enqueue(context.Background(), 1, "default", specs)
		if err != nil || got[0].Err != nil || !errors.Is(got[1].Err, want) || got[2].Err != nil || got[0].ID == got[2].ID {
			t.Errorf("feature level %d: Enqueue = %+v, %v; want %v for the second task", level, got, err, want)
		}
		if errors.Is(want, task.ErrWrongState) && !strings.Contains(got[1].Err.Error(), "feature level 3") {
			t.Errorf("the error does not name the feature level: %v", got[1].Err)
		}
		got, _, err = m.Enqueue(context.Background(), 1, "default", specs[1:2])
		if err != nil || !errors.Is(got[0].Err, want) {
			t.Errorf("feature level %d, second task alone: Enqueue = %+v, %v; want %v", level, got, err, want)
		}
	}
}

// No group is created while a leader may not support groups.
func TestGroupsNeedTheirLevel(t *testing.T) {
	routertest.InFleet(t, 1, func(f *routertest.Fleet) {
		m := f.Nodes[1]
		m.FeatureLevel = cluster.PoliciesLevel - 1
		if _, _, err := m.Groups.MakeGroup(context.Background(), "default", task.Group{Open: true}); !errors.Is(err, task.ErrWrongState) || !strings.Contains(err.Error(), "feature level 3") {
			t.Errorf("MakeGroup below its feature level: %v, want wrong state", err)
		}
	})
}

// A change with an etag is not sent to a leader that would ignore the etag.
func TestTagsNeedTheirLevel(t *testing.T) {
	routertest.InFleet(t, 1, func(f *routertest.Fleet) {
		m := f.Nodes[1]
		m.FeatureLevel = cluster.PoliciesLevel - 1
		_, err := broker.OperateTask.Call(context.Background(), m, broker.TaskCommand{Verb: broker.Update, Edit: broker.Edit{IfETag: "x"}})
		_, _, bad := m.Schedules.PutSchedule(context.Background(), task.Author{}, "default", broker.SchedulePut{IfETag: "x"})
		for _, err := range []error{err, bad} {
			if e, ok := task.AsError(err); !ok || e.Code != task.CodeWrongState || e.Field != "if_etag" || !strings.Contains(e.Message, "feature level 3") {
				t.Errorf("change with an etag below its feature level: %v, want wrong state", err)
			}
		}
	})
}
