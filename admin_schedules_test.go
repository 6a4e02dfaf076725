package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// PutSchedule knows no schedules: each is new.
func (f *fake) PutSchedule(_ context.Context, r *pawlv1.PutScheduleRequest) (*pawlv1.PutScheduleResponse, error) {
	return &pawlv1.PutScheduleResponse{Change: "created", Schedule: &pawlv1.Schedule{Spec: r.GetSpec()}}, nil
}

// TriggerSchedule makes a task for each request.
func (f *fake) TriggerSchedule(_ context.Context, r *pawlv1.TriggerScheduleRequest) (*pawlv1.TriggerScheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	task, e := f.enqueue(&pawlv1.TaskSpec{Type: r.GetName(), RequestId: r.GetRequestId()})
	if e != nil {
		return nil, refusal(codes.InvalidArgument, e)
	}
	return &pawlv1.TriggerScheduleResponse{TaskId: task.GetTaskId(), State: task.GetState(), Status: task.GetStatus()}, nil
}

var beat = admin.ScheduleSpec{Name: "beat", Every: time.Minute, Task: pawl.RawTask{Type: "ping"}}

// Each call on schedules sends what it was given and gives what the broker answers.
func TestScheduleCalls(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	const when = "2026-01-02T03:04:05Z"
	tick := &pawlv1.Tick{Seq: 7, PlannedAt: at, Until: at, Count: 3, DecidedAt: at, Outcome: pawlv1.TickOutcome_TICK_OUTCOME_SKIPPED, Reason: "paused"}
	wantTick := `{7 ` + when + ` ` + when + ` 3 ` + when + ` skipped paused  0}`
	info := &pawlv1.Schedule{ScheduleId: "i1", CreatedAt: at, UpdatedAt: at, Paused: true, PausedReason: "fire", PausedBy: "lena", PausedAt: at, Last: tick, Etag: "e1", InWords: "At 02:30", Spec: &pawlv1.ScheduleSpec{
		Name: "nightly", Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Jitter: durationpb.New(time.Second), Missed: pawlv1.Missed_MISSED_ALL,
		Overlap: pawlv1.Overlap_OVERLAP_SKIP, Owner: "billing", Task: &pawlv1.TaskSpec{Type: "report", Payload: []byte("{}"), Queue: "reports",
			Priority: pawlv1.Priority_PRIORITY_HIGH, MaxAttempts: 3, Retry: &pawlv1.RetryPolicy{Initial: durationpb.New(time.Second), Jitter: proto.Float64(0)},
			Timeout: durationpb.New(time.Second), ExpiresIn: durationpb.New(time.Second), Retention: durationpb.New(0), Key: "k", Cost: 2,
			Tags: []string{"t"}, Headers: map[string]string{"a": "b"}}}}
	wantInfo := `{i1 nightly 30 2 * * * Europe/Berlin 0 1000000000 all skip billing {report e30=  reports high 3 {1000000000 0 0 -1} 1000000000 1000000000 0 k null 2 [t] {b} null 0 0001-01-01T00:00:00Z  0} ` +
		when + ` ` + when + ` 0001-01-01T00:00:00Z 0001-01-01T00:00:00Z null {` + when + ` fire lena} ` + wantTick + ` At 02:30 e1}`
	all := admin.ScheduleSpec{Name: "nightly", Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Jitter: time.Second, Missed: admin.MissedAll, Overlap: admin.OverlapSkip,
		Owner: "billing", Task: pawl.RawTask{Type: "report", Payload: []byte("1")}, Options: []pawl.Option{pawl.Queue("reports"), pawl.Priority(pawltype.High)}}
	wantAll := `spec:{name:"nightly"cron:"302***"time_zone:"Europe/Berlin"jitter:{seconds:1}missed:MISSED_ALLoverlap:OVERLAP_SKIPowner:"billing"` +
		`task:{type:"report"payload:"1"queue:"reports"priority:PRIORITY_HIGH}}`
	put := &pawlv1.PutScheduleResponse{Change: "updated", Schedule: info, Before: info}
	wantPut := `{updated ` + wantInfo + ` ` + wantInfo + `}`
	ctx := context.Background()
	for _, c := range []struct {
		method string
		call   func(admin.Client) (any, error)
		req    string // of protobuf, as %v prints it, without spaces
		resp   proto.Message
		want   string
	}{
		{"PutSchedule", func(a admin.Client) (any, error) { return a.Schedules().Put(ctx, all) }, wantAll, put, wantPut},
		{"PutSchedule", func(a admin.Client) (any, error) { return a.Schedules().PutIfMatch(ctx, "e1", beat) },
			`spec:{name:"beat"every:{seconds:60}task:{type:"ping"}}if_etag:"e1"`, put, wantPut},
		{"PutSchedule", func(a admin.Client) (any, error) { return a.Schedules().Create(ctx, beat) },
			`spec:{name:"beat"every:{seconds:60}task:{type:"ping"}}create_only:true`, put, wantPut},
		{"PutSchedule", func(a admin.Client) (any, error) { return a.Schedules().Preview(ctx, beat) },
			`spec:{name:"beat"every:{seconds:60}task:{type:"ping"}}dry_run:true`, put, wantPut},
		{"GetSchedule", func(a admin.Client) (any, error) { return a.Schedules().Get(ctx, "nightly") }, `name:"nightly"`, &pawlv1.GetScheduleResponse{Schedule: info}, wantInfo},
		{"ListSchedules", func(a admin.Client) (any, error) { return collect(a.Schedules().List(ctx)) }, ``, &pawlv1.ListSchedulesResponse{Items: []*pawlv1.Schedule{info}}, `[` + wantInfo + `]`},
		{"DeleteSchedule", func(a admin.Client) (any, error) { return nil, a.Schedules().Delete(ctx, "nightly") }, `name:"nightly"`, &pawlv1.DeleteScheduleResponse{}, `null`},
		{"PauseSchedule", func(a admin.Client) (any, error) { return a.Schedules().Pause(ctx, "nightly", "fire") }, `name:"nightly"reason:"fire"`,
			&pawlv1.PauseScheduleResponse{Schedule: info}, wantInfo},
		{"ResumeSchedule", func(a admin.Client) (any, error) { return a.Schedules().Resume(ctx, "nightly") }, `name:"nightly"`, &pawlv1.ResumeScheduleResponse{Schedule: info}, wantInfo},
		{"ListScheduleHistory", func(a admin.Client) (any, error) { return collect(a.Schedules().History(ctx, "nightly")) }, `name:"nightly"`,
			&pawlv1.ListScheduleHistoryResponse{Items: []*pawlv1.Tick{tick}}, `[` + wantTick + `]`},
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

// A word that the protocol has no number for would be lost on its way.
func TestScheduleWordsAreCheckedBeforeACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		f.before = func(method string) error { t.Errorf("%s was called", method); return nil }
		for field, change := range map[string]func(*admin.ScheduleSpec){
			"missed":        func(s *admin.ScheduleSpec) { s.Missed = "later" },
			"overlap":       func(s *admin.ScheduleSpec) { s.Overlap = "queue" },
			"task":          func(s *admin.ScheduleSpec) { s.Task = nil },
			"task.type":     func(s *admin.ScheduleSpec) { s.Task = pawl.RawTask{} },
			"task.priority": func(s *admin.ScheduleSpec) { s.Options = []pawl.Option{pawl.Priority("urgent")} },
			"task.queue":    func(s *admin.ScheduleSpec) { s.Options = []pawl.Option{pawl.Queue("\xff")} },
		} {
			s := beat
			change(&s)
			for what, put := range map[string]func(context.Context, admin.ScheduleSpec) (*admin.ScheduleChange, error){
				"put": admin.New(client).Schedules().Put, "create": admin.New(client).Schedules().Create, "try": admin.New(client).Schedules().Preview} {
				_, err := put(t.Context(), s)
				wantErr(t, what, err, pawltype.ErrInvalidArgument)
				if e, ok := errors.AsType[*pawltype.Error](err); !ok || e.Field != field || !strings.Contains(e.Message, field+":") || !strings.Contains(err.Error(), `"beat"`) {
					t.Errorf("%s with a bad %s: %v", what, field, err)
				}
			}
		}
	})
}

// Options that a schedule can't have are for the broker to refuse: they must reach it.
func TestScheduleSendsWhatIsNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		var sent string
		f.operator = func(_ string, r any) (any, bool) {
			sent = strings.ReplaceAll(fmt.Sprint(r.(*pawlv1.PutScheduleRequest).GetSpec().GetTask()), " ", "")
			return &pawlv1.PutScheduleResponse{}, true
		}
		for want, opts := range map[string][]pawl.Option{
			`type:"ping"`:                                                  nil, // without a request id: each tick is a request of its own
			`type:"ping"delay:{seconds:1}`:                                 {pawl.In(time.Second)},
			`type:"ping"run_at:{seconds:60}`:                               {pawl.At(time.Unix(60, 0))},
			`type:"ping"idempotency_key:"k"`:                               {pawl.IdempotencyKey("k")},
			`type:"ping"request_id:"4f2f9e8e-8b1e-4d7c-9a55-6d5b0c1d2e3f"`: {pawl.RequestID("4f2f9e8e-8b1e-4d7c-9a55-6d5b0c1d2e3f")},
		} {
			s := beat
			s.Options = opts
			if _, err := admin.New(client).Schedules().Put(t.Context(), s); err != nil || sent != want {
				t.Errorf("sent %s, error %v, want %s", sent, err, want)
			}
		}
	})
}

// A trigger whose answer is lost is repeated as the same request.
func TestTriggerIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		lost := 0
		f.after = func(string) error {
			if lost++; lost <= 2 {
				return errUnavailable
			}
			return nil
		}
		first, err := admin.New(client).Schedules().Trigger(t.Context(), "nightly")
		if err != nil {
			t.Fatal(err)
		}
		second, err := admin.New(client).Schedules().Trigger(t.Context(), "nightly")
		if err != nil || first.ID == "" || second.ID == first.ID || first.State != pawltype.StateReady || lost != 4 || len(f.tasks) != 2 {
			t.Errorf("two triggers made the tasks %+v and %+v, error %v, in %d calls; %d tasks are there", first, second, err, lost, len(f.tasks))
		}
	})
}
