package sqs

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// moving is a Core with queues and operations.
type moving struct {
	named
	operations []*broker.Operation
	aborted    []task.ID
}

func (c *moving) Operations(context.Context, task.ID, int) (broker.OperationPage, error) {
	return broker.OperationPage{Operations: c.operations}, nil
}

func (c *moving) AbortOperation(_ context.Context, id task.ID) error {
	c.aborted = append(c.aborted, id)
	return nil
}

// A move task is canceled by the handle that a list shows. The refusals of others are those of Amazon SQS.
func TestCancelMove(t *testing.T) {
	id := newMoveID()
	running := &broker.Operation{ID: task.NewID(1, 1, 1), State: broker.OperationRunning, Spec: broker.OperationSpec{Action: task.Move,
		Request: id.request(true, 0, 1), ToQueue: "to", Filter: broker.Filter{Queue: "dead"}}}
	const arn = "arn:aws:sqs:us-east-1:000000000000:"
	if h, ok := parseMoveHandle(id.handle(arn + "dead")); !ok || h.Source != arn+"dead" ||
		!regexp.MustCompile("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$").MatchString(h.Task) {
		t.Errorf("the handle says %+v, %v, want the source, and a UUID, which clients parse", h, ok)
	}
	base := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct{ what, handle, want string }{
		{"its handle", id.handle(arn + "dead"), "<nil>"},
		{"its handle of an earlier build", hex.EncodeToString(id[len(moveMark):]), "<nil>"},
		{"one digit less", hex.EncodeToString(id[len(moveMark):])[1:], "InvalidParameterValue: Value for parameter TaskHandle is invalid."},
		{"one byte more", hex.EncodeToString(id[len(moveMark)-1:]), "InvalidParameterValue: Value for parameter TaskHandle is invalid."},
		{"another one of an earlier build", strings.Repeat("0", 22), "ResourceNotFoundException: Task does not exist."},
		{"that of another task", newMoveID().handle(arn + "dead"), "ResourceNotFoundException: Task does not exist."},
		{"that of a task of another queue", id.handle(arn + "to"), "ResourceNotFoundException: Task does not exist."},
		{"that of a task of an unknown queue", id.handle(arn + "gone"),
			"ResourceNotFoundException: The resource that you specified for the SourceArn parameter doesn't exist."},
		{"no base64", "zap!", "InvalidParameterValue: Value for parameter TaskHandle is invalid."},
		{"no JSON", base("zap"), "InvalidParameterValue: Value for parameter TaskHandle is invalid."},
		{"no task", base(`{"sourceArn":"` + arn + `dead"}`), "InvalidParameterValue: Value for parameter TaskHandle is invalid."},
		{"none", "", "MissingParameter: The request must contain the parameter TaskHandle."},
	} {
		core := &moving{operations: []*broker.Operation{running}}
		core.queues = map[string]task.QueueConfig{"dead": {Version: 1}, "to": {Version: 1}}
		x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil)}
		x.in = &wire.Input{SourceARN: arn + "dead"}
		if err := listMoves(x); err != nil || len(x.out.Moves) != 1 || x.out.Moves[0].Handle != id.handle(arn+"dead") {
			t.Fatalf("listed are %+v, %v", x.out.Moves, err)
		}
		x.in = &wire.Input{TaskHandle: c.handle}
		if got := errorShown(cancelMove(x)); got != c.want || (len(core.aborted) == 1) != (got == "<nil>") {
			t.Errorf("%s: %s, want %s; aborted are %v", c.what, got, c.want, core.aborted)
		}
	}
}

// A task that failed says why: in the words of Amazon SQS, if its destination was deleted.
func TestFailedMoves(t *testing.T) {
	for to, want := range map[string]string{"to": "no room", "gone": "AWS.SimpleQueueService.NonExistentQueue"} {
		core := &moving{operations: []*broker.Operation{{State: broker.OperationFailed, Why: "no room", Spec: broker.OperationSpec{
			Action: task.Move, Request: newMoveID().request(true, 0, 1), ToQueue: to, Filter: broker.Filter{Queue: "dead"}}}}}
		core.queues = map[string]task.QueueConfig{"dead": {Version: 1}, "to": {Version: 1}}
		x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil),
			in: &wire.Input{SourceARN: "arn:aws:sqs:us-east-1:000000000000:dead"}}
		if err := listMoves(x); err != nil || len(x.out.Moves) != 1 || x.out.Moves[0].Failure != want ||
			x.out.Moves[0].Status != "FAILED" || x.out.Moves[0].Handle != "" {
			t.Errorf("to %s: %+v, %v, want %s", to, x.out.Moves, err, want)
		}
	}
}

// A queue has one move task at a time.
func TestSecondMove(t *testing.T) {
	core := &moving{operations: []*broker.Operation{{State: broker.OperationRunning, Spec: broker.OperationSpec{Action: task.Move,
		Request: newMoveID().request(true, 0, 1), ToQueue: "to", Filter: broker.Filter{Queue: "dead"}}}}}
	const arn = "arn:aws:sqs:us-east-1:000000000000:"
	core.queues = map[string]task.QueueConfig{"dead": {Version: 1}, "to": {Version: 1, Annotations: map[string]string{noteAttribute +
		"RedrivePolicy": `{"deadLetterTargetArn":"` + arn + `dead","maxReceiveCount":3}`}}}
	x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil),
		in: &wire.Input{SourceARN: arn + "dead", DestinationARN: arn + "to"}}
	if got := errorShown(startMove(x)); !strings.HasPrefix(got, "InvalidParameterValue: There is already a task running.") {
		t.Errorf("a second task: %s", got)
	}
}
