package admin_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

// frameOf returns a frame with an event of each kind. The cursor of an event is its kind, and that of the frame is given.
func frameOf(cursor string, kinds ...string) *pawlv1.WatchEventsResponse {
	frame := &pawlv1.WatchEventsResponse{Cursor: cursor}
	for _, k := range kinds {
		frame.Events = append(frame.Events, &pawlv1.Event{Kind: k, Cursor: k})
	}
	return frame
}

// All fields of filters and events are passed on.
func TestEvent(t *testing.T) {
	s, operator := start(t)
	var filter admin.EventFilter
	fill(&filter, full)
	frame := &pawlv1.WatchEventsResponse{Events: []*pawlv1.Event{{}}}
	fill(frame.Events[0], full)
	s.frames = [][]any{{frame}}
	for e, err := range operator.WithActor("lena").WithReason("why").Events(t.Context(), filter) {
		got, want := printer(nil).text(reflect.ValueOf(e), ""), `{
  Kind: "Kind"
  Time: 2026-01-01 02:00:00
  Queue: "Queue"
  Type: "Type"
  TaskID: "TaskId"
  State: "cancelled"
  Attempt: 7
  Worker: "Worker"
  Reason: "Reason"
  Error: "Error"
  Name: "Name"
  OperationID: "OperationId"
  Count: 13
  Shard: 14
  Index: 15
  Cursor: "Cursor"
  Key: "Key"
}`
		if err != nil || got != want {
			t.Errorf("the event is %s, %v, want %s", got, err, want)
		}
		break
	}
	asked := s.taken()[0]
	got := fmt.Sprint(asked.method, printer(nil).text(reflect.ValueOf(asked.req), ""), asked.actor, asked.reason)
	if want := `EventService/WatchEvents{Queue: "Queue", Type: "Type", TaskId: "TaskID", Kinds: ["Kinds", "Kinds 2"], Cursor: "After", ` +
		`Digest: 6s}[lena] [why]`; got != want {
		t.Errorf("the request is %s, want %s", got, want)
	}
}

// A stream that breaks is reopened after the last frame, until a permanent error or until the caller's context ends.
func TestEventsReconnect(t *testing.T) {
	away, no := status.Error(codes.Unavailable, "away"), status.Error(codes.PermissionDenied, "no")
	for name, x := range map[string]struct {
		frames [][]any
		digest time.Duration
		most   int
		came   string
		asked  string // cursors of the requests
		end    error  // nil: the caller breaks off
		says   string
	}{
		"left": {[][]any{{frameOf("c", "1", "2")}}, 0, 1, "1", "-", nil, ""},
		"broken": {[][]any{{frameOf("c", "1"), away}, {frameOf("d", "2"), frameOf("e"), io.EOF}, {away}, {frameOf("f", "3", "4")}},
			0, 3, "1 2 3", "- c e", nil, ""},
		"a digest": {[][]any{{frameOf("c", "1"), frameOf("c", "1"), away}, {frameOf("d", "2"), frameOf("e", "3")}}, time.Second, 5,
			"1 1 reset 2 3", "- c", nil, ""},
		"left at a reset":  {[][]any{{frameOf("c", "1"), away}, {frameOf("d", "2")}}, time.Second, 2, "1 reset", "- c", nil, ""},
		"no digest":        {[][]any{{frameOf("c", "1"), away}, {frameOf("d", "2")}}, -time.Second, 2, "1 2", "- c", nil, ""},
		"late in a digest": {[][]any{{away}, {frameOf("d", "2")}}, time.Second, 2, "reset 2", "-", nil, ""},
		"not let in":       {[][]any{{no}}, 0, 9, "", "", pawltype.ErrPermissionDenied, "events: pawl: permission_denied: no"},
		"not let in any more": {[][]any{{frameOf("c", "1"), no}}, 0, 9, "1", "-", pawltype.ErrPermissionDenied,
			"events: pawl: permission_denied: no"},
		"an old server": {[][]any{{away}, {status.Error(codes.FailedPrecondition, "old")}}, 0, 9, "", "", pawltype.ErrWrongState,
			"events: pawl: wrong_state: old"},
		"the caller gives up": {[][]any{{frameOf("c", "1", "2", "3", "4"), time.Hour}, {time.Hour}}, 0, 9, "1 2 3 4", "- c",
			context.DeadlineExceeded, "context deadline exceeded"},
		"silence": {[][]any{{44 * time.Second, frameOf("c", "1"), 44 * time.Second, frameOf("d", "2"), 46 * time.Second, frameOf("e", "3")},
			{frameOf("f", "4")}}, 0, 3,
			"1 2 4", "- d", nil, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, operator := start(t)
			s.frames = x.frames
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			var came, asked []string
			var end error
			for e, err := range operator.Events(ctx, admin.EventFilter{Digest: x.digest}) {
				if end = err; err != nil {
					continue
				}
				if came = append(came, string(e.Kind)); len(came) == x.most {
					break
				}
				time.Sleep(time.Minute) // the caller may take its time
			}
			for _, c := range s.taken() {
				asked = append(asked, cmp.Or(c.req.(*pawlv1.WatchEventsRequest).GetCursor(), "-"))
			}
			if strings.Join(came, " ") != x.came || strings.Join(asked, " ") != x.asked || !errors.Is(end, x.end) || end != nil &&
				end.Error() != x.says {
				t.Errorf("%s: events %s with the request cursors %s, error %v, want %s, %s, %v", name, came, asked, end,
					x.came, x.asked, x.says)
			}
		})
	}
}

// An invalid actor and a closed client are reported.
func TestEventsRefused(t *testing.T) {
	s, operator := start(t)
	refusals := 0
	for _, err := range operator.WithActor("Łena").Events(t.Context(), admin.EventFilter{}) {
		if refusals++; !errors.Is(err, pawltype.ErrInvalidArgument) {
			t.Errorf("events for an invalid actor: %v, want ErrInvalidArgument", err)
		}
	}
	if refusals != 1 {
		t.Errorf("events for an invalid actor were refused %d times, want once", refusals)
	}
	s.frames = [][]any{{frameOf("c", "1"), status.Error(codes.Unavailable, "away")}}
	var last error
	for _, last = range operator.Events(t.Context(), admin.EventFilter{}) {
		s.client.Close()
	}
	if !errors.Is(last, pawltype.ErrClosed) {
		t.Errorf("events of a closed client: %v, want ErrClosed", last)
	}
}

// Pauses between streams grow while streams break, are short again after a stream that lasted, and follow the server's
// request up to a limit.
func TestEventsPause(t *testing.T) {
	asks := func(d time.Duration) error {
		st, err := status.New(codes.Unavailable, "").WithDetails(&pawlv1.Error{Code: "unavailable", RetryAfter: durationpb.New(d)})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	const lasts, ms = 5 * time.Second, time.Millisecond
	breaks := []struct {
		after       time.Duration
		err         error
		least, most time.Duration
	}{
		{0, asks(0), 25 * ms, 50 * ms},
		{0, asks(0), 50 * ms, 100 * ms},
		{lasts, asks(0), 100 * ms, 200 * ms},
		{lasts + 1, asks(0), 25 * ms, 50*ms - 1},
		{0, asks(time.Second), time.Second, time.Second},
		{0, asks(time.Minute), 5 * time.Second, 5 * time.Second},
	}
	synctest.Test(t, func(t *testing.T) {
		s, operator := start(t)
		for _, b := range breaks {
			s.frames = append(s.frames, []any{b.after, b.err})
		}
		s.frames = append(s.frames, []any{frameOf("c", "1")})
		for range operator.Events(t.Context(), admin.EventFilter{}) {
			break
		}
		opened := s.taken()
		for i, b := range breaks {
			if pause := opened[i+1].at.Sub(opened[i].at) - b.after; pause < b.least || pause > b.most {
				t.Errorf("pause %d is %s, want %s to %s", i+1, pause, b.least, b.most)
			}
		}
	})
}
