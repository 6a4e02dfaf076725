package admin_test

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

// The actor and the reason are sent unchanged. Values that no header can carry are refused before anything is sent.
func TestActorAndReason(t *testing.T) {
	for what, x := range map[string]struct {
		actor, reason string
		refused       string
	}{
		"nobody":       {"", "", ""},
		"all of ASCII": {" lena@example.com~", "", ""},
		"a long name":  {strings.Repeat("a", 256), "", ""},
		"a longer one": {strings.Repeat("a", 257), "", `actor: "` + strings.Repeat("a", 256) +
			`" has 257 characters, at most 256 are allowed`},
		"a line":          {"a\nb", "", `actor: "a\nb" has characters other than printable ASCII`},
		"below them":      {"\x1f", "", "has characters other than"},
		"above them":      {"\x7f", "", "has characters other than"},
		"other letters":   {"Łena", "", "has characters other than"},
		"any reason":      {"", "größer\n", ""},
		"a long reason":   {"", strings.Repeat("a", 1024), ""},
		"a longer reason": {"", strings.Repeat("a", 1025), "reason: 1025 bytes, at most 1024 are allowed"},
	} {
		s, operator := start(t)
		_, err := operator.WithActor(x.actor).WithReason(x.reason).Cluster().Server(t.Context())
		calls := s.taken()
		if x.refused != "" {
			if !errors.Is(err, pawltype.ErrInvalidArgument) || !strings.Contains(err.Error(), x.refused) || len(calls) > 0 {
				t.Errorf("%s: %v after %d calls, want %s and no call", what, err, len(calls), x.refused)
			}
			continue
		}
		said := func(text string, sent []string) bool {
			return text == "" && sent == nil || text != "" && slices.Equal(sent, []string{text})
		}
		if err != nil || !said(x.actor, calls[0].actor) || !said(x.reason, calls[0].reason) {
			t.Errorf("%s: %v, sent the actor %q and the reason %q", what, err, calls[0].actor, calls[0].reason)
		}
	}
}

// A call that needs a random id fails if none can be generated, unless the id is given.
func TestNoRandomIDs(t *testing.T) {
	uuid.SetRand(iotest.ErrReader(errors.New("no entropy")))
	defer uuid.SetRand(nil)
	s, operator := start(t)
	for what, call := range map[string]func(id string) error{
		"create token": func(id string) error {
			_, err := operator.Access().CreateToken(t.Context(), admin.TokenSpec{RequestID: id})
			return err
		},
		"rotate token": func(id string) error {
			_, err := operator.Access().RotateToken(t.Context(), admin.TokenName{}, admin.Rotation{RequestID: id})
			return err
		},
		"add marker": func(id string) error {
			_, err := operator.Markers().Add(t.Context(), admin.MarkerSpec{RequestID: id})
			return err
		},
		"start operation": func(string) error {
			_, err := operator.Operations().Start(t.Context(), admin.OperationSpec{Filter: admin.AllTasks()})
			return err
		},
		"trigger": func(string) error { _, err := operator.Schedules().Trigger(t.Context(), "s"); return err },
	} {
		if err := call(""); err == nil || !strings.Contains(err.Error(), "request id: no entropy") || len(s.taken()) > 0 {
			t.Errorf("%s without random numbers: %v, want an error and no call", what, err)
		}
		if err := call("r"); (err == nil) != (len(s.taken()) == 1) {
			t.Errorf("%s with an id: %v", what, err)
		}
	}
}

// Wait continues while the operation runs, pauses if the server answers early, and reports progress each time.
func TestOperationWait(t *testing.T) {
	const ms, long, look = time.Millisecond, 30 * time.Second, time.Second
	type round struct {
		took, least, most time.Duration // the duration of the call, and bounds of the pause after it
	}
	for what, x := range map[string]struct {
		looks  bool // progress is given
		waits  time.Duration
		rounds []round // all but the last
	}{
		"long":              {false, long, []round{{long, 0, 0}, {long + 1, 0, 0}}},
		"looked at":         {true, look, []round{{look, 0, 0}, {look + 1, 0, 0}, {look - 1, 20 * ms, 40 * ms}}},
		"cut short":         {false, long, []round{{0, 10 * ms, 20 * ms}, {long - 1, 20 * ms, 40 * ms}, {look, 40 * ms, 80 * ms}}},
		"cut short, and on": {false, long, []round{{0, 10 * ms, 20 * ms}, {0, 20 * ms, 40 * ms}, {long, 0, 0}, {0, 20 * ms, 40 * ms}}},
		"over":              {true, look, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, operator := start(t)
			told, answered := 0, []time.Time{}
			s.answer = func(reply any) {
				o := &pawlv1.Operation{State: pawlv1.OperationState_OPERATION_STATE_DONE}
				if n := len(answered); n < len(x.rounds) {
					time.Sleep(x.rounds[n].took)
					o.State = pawlv1.OperationState_OPERATION_STATE_RUNNING
				}
				answered = append(answered, time.Now())
				reply.(*pawlv1.GetOperationResponse).Operation = o
			}
			var progress func(*admin.Operation)
			if x.looks {
				progress = func(*admin.Operation) { told++ }
			}
			o, err := operator.Operations().Wait(t.Context(), "o", progress)
			calls := s.taken()
			if err != nil || o.State != admin.OperationDone || len(calls) != len(x.rounds)+1 || x.looks && told != len(calls) {
				t.Fatalf("%s: %+v, %v after %d calls, progress reported %d times, want %d calls", what, o, err, len(calls),
					told, len(x.rounds)+1)
			}
			for i, c := range calls {
				if wait := c.req.(*pawlv1.GetOperationRequest).GetWait().AsDuration(); wait != x.waits {
					t.Errorf("%s: call %d has a wait of %s, want %s", what, i, wait, x.waits)
				}
				if i == 0 {
					continue
				}
				r := x.rounds[i-1]
				if pause := c.at.Sub(answered[i-1]); pause < r.least || pause > r.most {
					t.Errorf("%s: pause %d is %s, want %s to %s", what, i, pause, r.least, r.most)
				}
			}
		})
	}
	s, operator := start(t)
	s.answer = func(reply any) {
		reply.(*pawlv1.GetOperationResponse).Operation = &pawlv1.Operation{State: pawlv1.OperationState_OPERATION_STATE_RUNNING}
		s.client.Close()
	}
	if _, err := operator.Operations().Wait(t.Context(), "o", nil); !errors.Is(err, pawltype.ErrClosed) || !strings.HasPrefix(err.Error(),
		`operation "o": `) {
		t.Errorf("Wait with a closed client: %v, want ErrClosed with the operation's id", err)
	}
}

// Series of different lengths become as long as that of enqueued tasks. Missing values are 0.
func TestStatsOfUnevenSeries(t *testing.T) {
	s, operator := start(t)
	s.answer = func(reply any) {
		reply.(*pawlv1.GetQueueStatsResponse).Stats = &pawlv1.Stats{Series: &pawlv1.Series{Enqueued: []int64{1, 2, 3},
			Claimed: []int64{4, 5}, Dead: []int64{6, 7, 8, 9}}}
	}
	got, err := operator.Queues().Stats(t.Context(), "mail", 0)
	if want := "[{1 4 0 0 0 6 0 0 0 0} {2 5 0 0 0 7 0 0 0 0} {3 0 0 0 0 8 0 0 0 0}]"; err != nil || fmt.Sprint(got.Series) != want {
		t.Errorf("Stats returned %v, %v, want %s", got.Series, err, want)
	}
}

// The methods of responses that derive a value from their fields.
func TestResponseMethods(t *testing.T) {
	at := time.Unix(1, 0)
	for what, x := range map[string]struct{ got, want any }{
		"a worker that is there":  {(&admin.Worker{}).Lost(), false},
		"one that is not":         {(&admin.Worker{LostAt: at}).Lost(), true},
		"an open incident":        {(&admin.Marker{Kind: admin.MarkerIncident}).Open(), true},
		"one that is over":        {(&admin.Marker{Kind: admin.MarkerIncident, EndedAt: at}).Open(), false},
		"a deploy":                {(&admin.Marker{Kind: admin.MarkerDeploy}).Open(), false},
		"an operation that rests": {admin.OperationPaused.Ended() || admin.OperationRunning.Ended(), false},
		"one that is done":        {admin.OperationDone.Ended(), true},
		"one that was aborted":    {admin.OperationAborted.Ended(), true},
		"one that failed":         {admin.OperationFailed.Ended(), true},
		"what it skipped": {(&admin.OperationCounts{Skipped: map[string]int64{"moved": 2, "in_workflow": 3}}).SkippedTasks(),
			int64(5)},
	} {
		if x.got != x.want {
			t.Errorf("%s: got %v, want %v", what, x.got, x.want)
		}
	}
}

// A list ends with an error if a shard or node whose items may be missing did not answer. Queues are missing only if numbers decide which
// are listed.
func TestIncompleteLists(t *testing.T) {
	s, operator := start(t)
	s.answer = func(reply any) {
		missing := []*pawlv1.Missing{{Shard: 3, Reason: "has no leader"}}
		switch r := reply.(type) {
		case *pawlv1.ListQueuesResponse:
			r.Items, r.Missing = []*pawlv1.Queue{{Queue: "mail"}}, missing
		case *pawlv1.ListWorkersResponse:
			r.Items, r.Missing = []*pawlv1.Worker{{Worker: "mail"}}, missing
		}
	}
	for f, want := range map[admin.QueueFilter]bool{
		{}: false, {Pattern: "m*"}: false, {Series: time.Minute}: false, {Having: admin.QueuePaused}: false,
		{Having: admin.QueueDead}: true, {Having: admin.QueuePoisoned}: true, {Having: admin.QueueNoWorker}: true, {Most: true}: true,
	} {
		wantIncomplete(t, fmt.Sprintf("queues %+v", f), operator.Queues().List(t.Context(), f), func(q *admin.Queue) string {
			return q.Name
		},
			want)
	}
	wantIncomplete(t, "workers", operator.Workers().List(t.Context(), admin.WorkerFilter{}), func(w *admin.Worker) string { return w.Name },
		true)
}

// wantIncomplete checks that a list has the item "mail", and then an error that says what is missing, or none.
func wantIncomplete[T any](t *testing.T, what string, list iter.Seq2[T, error], name func(T) string, want bool) {
	t.Helper()
	var got []string
	var missing []pawltype.Missing
	for item, err := range list {
		if e, ok := errors.AsType[*pawltype.IncompleteError](err); ok {
			missing = e.Missing
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
		} else {
			got = append(got, name(item))
		}
	}
	if !slices.Equal(got, []string{"mail"}) || want != slices.Equal(missing, []pawltype.Missing{{Shard: 3, Reason: "has no leader"}}) ||
		!want && missing != nil {
		t.Errorf("%s: %q, and then missing %v; want an error: %t", what, got, missing, want)
	}
}

// A retry and a discard name the states in which the caller wants the task to be.
func TestTasksWithStates(t *testing.T) {
	s, operator := start(t)
	tasks := operator.Tasks()
	for _, of := range []admin.Tasks{tasks.WithStates(pawltype.StateDead, pawltype.StatePoisoned), tasks} {
		of.Retry(t.Context(), "a")
		of.Discard(t.Context(), "a")
	}
	var got [][]pawlv1.State
	for _, c := range s.taken() {
		got = append(got, c.req.(interface{ GetStates() []pawlv1.State }).GetStates())
	}
	both := []pawlv1.State{pawlv1.State_STATE_DEAD, pawlv1.State_STATE_POISONED}
	if want := [][]pawlv1.State{both, both, nil, nil}; !reflect.DeepEqual(got, want) {
		t.Errorf("the states asked for are %v, want %v", got, want)
	}
	if _, err := tasks.WithStates("lost").Discard(t.Context(), "a"); !errors.Is(err, pawltype.ErrInvalidArgument) ||
		len(s.taken()) > 0 {
		t.Errorf("Discard of a task in a state that does not exist: %v, want it refused before it is sent", err)
	}
}
