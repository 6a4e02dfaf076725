package sqs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// Config is what a door is made of.
type Config struct {
	Core Core
	// Call runs each action: it lets the caller in or not, calls handle with a context limited to what the caller may see, and tells
	// what came of it. A panic of handle ends this call only.
	Call  func(r *http.Request, action string, handle func(context.Context) error) *task.Error
	Batch int // tasks that one call may enqueue
}

// Core has the calls of the API, on the namespace of their context and as far as it may see.
type Core interface {
	Namespace(ctx context.Context) string
	// Reserve waits for memory for a large request.
	Reserve(ctx context.Context, n int64) (*admission.Reservation, error)

	Queue(ctx context.Context, name string) (cluster.Queue, bool, error)
	Queues(ctx context.Context, pattern, after string, limit int) ([]cluster.Queue, error)
	PutQueue(ctx context.Context, name string, change func(*task.QueueConfig) error) error
	// DropQueue deletes a queue with all that lies in it, Purge ends what waits or is claimed.
	DropQueue(ctx context.Context, q cluster.Queue) error
	Purge(ctx context.Context, q cluster.Queue) error
	Depth(ctx context.Context, q cluster.Queue) (broker.QueueInfo, error)

	// Enqueue makes tasks of filled specs, each answered by itself.
	Enqueue(ctx context.Context, q cluster.Queue, specs []task.Spec) []broker.Enqueued
	Claim(ctx context.Context, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, error)
	Settle(ctx context.Context, calls []broker.Settle) []broker.Settled
	// FirstClaimed is when the first claim of a task began that it remembers; zero: none.
	FirstClaimed(ctx context.Context, id task.ID) (time.Time, error)

	// StartOperation starts an operation, whose filter and target the caller may use.
	StartOperation(ctx context.Context, spec broker.OperationSpec) error
	// Operations are those below an id, the newest first; zero: from the newest.
	Operations(ctx context.Context, below task.ID, limit int) (broker.OperationPage, error)
	AbortOperation(ctx context.Context, id task.ID) error
}

// Door serves clients of Amazon SQS.
type Door struct{ Config }

// New makes a door.
func New(cfg Config) *Door { return &Door{cfg} }

const (
	jsonType  = "application/x-amz-json-1.0"
	xmlType   = "text/xml"
	formType  = "application/x-www-form-urlencoded"
	algorithm = "AWS4-HMAC-SHA256"
)

// Handles says whether a request is for the door.
func (d *Door) Handles(r *http.Request) bool {
	if t := r.Header["X-Amz-Target"]; len(t) > 0 && strings.HasPrefix(t[0], "AmazonSQS") {
		return true
	}
	if a := r.Header["Authorization"]; len(a) > 0 && strings.HasPrefix(a[0], algorithm) {
		return true
	}
	if t := r.Header["Content-Type"]; len(t) > 0 && t[0] == jsonType {
		return true
	}
	_, _, ok := splitPath(r.URL.Path)
	return ok || strings.Contains(r.URL.RawQuery, "X-Amz-Algorithm=")
}

// splitPath reads the path of a queue's URL.
func splitPath(path string) (account, queue string, ok bool) {
	account, queue, ok = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return account, queue, ok && isAccount(account) && queue != "" && !strings.Contains(queue, "/")
}

func isAccount(s string) bool {
	return len(s) == 12 && strings.Trim(s, "0123456789") == ""
}

// exchange is one request and its answer.
type exchange struct {
	*Door
	ctx    context.Context
	r      *http.Request
	in     *wire.Input
	out    wire.Output
	action string
	json   bool
	id     string // of the request
	room   *admission.Reservation
}

// action serves one action.
type action func(x *exchange) error

var actions = map[string]action{
	"CreateQueue": createQueue, "GetQueueUrl": getQueueURL, "ListQueues": listQueues, "ListDeadLetterSourceQueues": listSources,
	"DeleteQueue": deleteQueue, "PurgeQueue": purgeQueue, "SetQueueAttributes": setAttributes, "GetQueueAttributes": getAttributes,
	"TagQueue": tagQueue, "UntagQueue": untagQueue, "ListQueueTags": listTags,
	"SendMessage": send, "SendMessageBatch": sendBatch, "ReceiveMessage": receive,
	"DeleteMessage": deleteMessage, "DeleteMessageBatch": deleteBatch,
	"ChangeMessageVisibility": changeVisibility, "ChangeMessageVisibilityBatch": changeVisibilityBatch,
	"AddPermission": addPermission, "RemovePermission": removePermission,
	"StartMessageMoveTask": startMove, "CancelMessageMoveTask": cancelMove, "ListMessageMoveTasks": listMoves,
}

// Serve answers a request. One that is not for this server is refused with why.
func (d *Door) Serve(w http.ResponseWriter, r *http.Request, why error) {
	x := &exchange{Door: d, r: r, json: isJSON(r), id: requestID()}
	form, err := x.name()
	refusal := (*task.Error)(nil)
	var own error
	if err == nil {
		refusal = d.Call(r, x.action, func(ctx context.Context) error {
			x.ctx = ctx
			if why != nil {
				return why
			}
			own = x.run(w, form)
			return reported(own)
		})
	} else {
		own = err
	}
	if x.room != nil {
		defer x.room.Release()
	}
	x.answer(w, own, refusal)
}

// isJSON tells the forms apart by the content type alone: there are clients of Query that send X-Amz-Target.
func isJSON(r *http.Request) bool {
	t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return t == jsonType
}

// name finds out which action is wanted. In Query it may stand in the body, which is read then: a form is small, or is a message.
func (x *exchange) name() (form url.Values, err error) {
	if x.json {
		x.action = strings.TrimPrefix(x.r.Header.Get("X-Amz-Target"), wire.TargetPrefix)
	} else {
		if form, err = url.ParseQuery(x.r.URL.RawQuery); err != nil {
			return nil, wire.ErrSerialization.With("The query string can not be read.")
		}
		if form.Get("Action") == "" {
			body, err := x.body(smallBody)
			if err != nil {
				return nil, err
			}
			if form, err = url.ParseQuery(string(body)); err != nil {
				return nil, wire.ErrSerialization.With("The form can not be read.")
			}
		}
		x.action = form.Get("Action")
	}
	if actions[x.action] == nil {
		return nil, wire.ErrInvalidAction.With("The action %s is not valid for this endpoint.", task.Cut(x.action, 100))
	}
	return form, nil
}

// smallBody is what a request may bring before its caller is known: a message of 1 MiB whose every byte is escaped.
const smallBody = 4 << 20

// run reads the request and serves its action.
func (x *exchange) run(w http.ResponseWriter, form url.Values) (err error) {
	if x.json {
		if n := x.r.ContentLength; n > contract.SmallMessage || n < 0 {
			if x.room, err = x.Core.Reserve(x.ctx, 2*contract.MaxMessage); err != nil {
				return err
			}
		}
		body, err := x.body(contract.MaxMessage)
		if err != nil {
			return err
		}
		x.in, err = wire.ReadJSON(body)
		if err != nil {
			return err
		}
	} else if x.in, err = wire.ReadQuery(form); err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // or it would end a long poll
	return actions[x.action](x)
}

func (x *exchange) body(most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, x.r.Body, most))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, wire.ErrInvalidParameterValue.With("One or more parameters are invalid. Reason: The request must be shorter than %d bytes.", most)
	}
	if err != nil {
		return nil, wire.ErrSerialization.With("The request body did not arrive whole.")
	}
	return body, nil
}

// answer sends what came of the request.
func (x *exchange) answer(w http.ResponseWriter, own error, refusal *task.Error) {
	h := w.Header()
	h["X-Amzn-Requestid"] = []string{x.id}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h["Content-Type"] = []string{xmlType}
	if x.json {
		h["Content-Type"] = []string{jsonType}
	}
	status, body := http.StatusOK, []byte(nil)
	e := errorOf(own, refusal)
	switch {
	case e == nil && x.json:
		if body = wire.AppendJSON(nil, x.action, &x.out); len(body) == 2 && !answersObject[x.action] {
			body = nil
		}
	case e == nil:
		body = wire.AppendXML(nil, x.action, x.id, &x.out)
	case x.json:
		status, body = e.Status, wire.AppendJSONError(nil, e)
		h.Set("X-Amzn-Query-Error", e.QueryError())
	default:
		status, body = e.Status, wire.AppendXMLError(nil, x.id, e)
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // if this fails, the caller is gone
}

// answersObject has the actions that answer {} when there is nothing to tell. Others answer nothing at all.
var answersObject = map[string]bool{
	"ReceiveMessage": true, "ListQueues": true, "ListQueueTags": true, "GetQueueAttributes": true, "DeleteMessageBatch": true,
	"ChangeMessageVisibilityBatch": true, "SendMessageBatch": true, "ListMessageMoveTasks": true,
}

// errorOf is what the caller is told; nil: the request was served.
func errorOf(own error, refusal *task.Error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](own); ok {
		return e
	}
	if refusal != nil {
		return worded(refusal)
	}
	return nil
}

// reported is an error of the door as calls are counted by.
func reported(err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	switch {
	case !ok:
		return err
	case e.Receiver:
		return task.Unavailable(0, "%s", e.Message)
	case e.Shape == wire.ErrQueueDoesNotExist.Shape:
		return &task.Error{Code: task.CodeNotFound, Message: e.Message}
	}
	return &task.Error{Code: task.CodeInvalidArgument, Message: e.Message}
}

// worded is a refusal in the service's words.
func worded(e *task.Error) *wire.Error {
	switch e.Code {
	case task.CodeUnauthenticated:
		return wire.ErrInvalidClientTokenID.With("The security token included in the request is invalid: %s", e.Message)
	case task.CodePermissionDenied:
		return wire.ErrAccessDenied.With("%s", e.Message)
	case task.CodeNotFound:
		return wire.ErrQueueDoesNotExist
	case task.CodeRateLimited:
		return wire.ErrRequestThrottled.With("%s", e.Message)
	case task.CodeQueueFull:
		return wire.ErrOverLimit.With("%s", e.Message)
	case task.CodeUnavailable:
		return wire.ErrServiceUnavailable.With("%s", e.Message)
	case contract.CodeInternal:
		return wire.ErrInternal.With("%s", e.Message)
	}
	return wire.ErrInvalidParameterValue.With("%s", e.Message)
}

func requestID() string {
	a, b := rand.Uint64(), rand.Uint64() // #nosec G404 -- a name for logs, no secret
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
}
