package sqs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// Config holds what a Handler needs.
type Config struct {
	Core Core
	// Call runs each action: it authenticates the caller, calls handle with a context limited to what the caller may see, and
	// records the outcome. A panic in handle ends this call only.
	Call func(r *http.Request, handle func(context.Context, Caller) error) *task.Error
}

// Caller is the caller of an action. Its signature covers the body, and a form names its action in the body, so both are checked
// once the body has been read.
type Caller interface {
	// Verify checks the signature of the request with this body, if one is required.
	Verify(body []byte) error
	// Authorize returns the context in which to run an action, or an error if the caller lacks the right.
	Authorize(action string) (context.Context, error)
}

// Core has the calls of the API, in the namespace of their context and within its scope.
type Core interface {
	Namespace(ctx context.Context) string
	// Reserve waits for memory for a large request, which may not be the alleged caller's: its signature covers the body.
	Reserve(ctx context.Context, n int64) (*admission.Reservation, error)

	// Queue returns a queue as this node knows it, which may lack a change of a moment ago; FreshQueue asks.
	Queue(ctx context.Context, name string) (queues.Queue, bool, error)
	FreshQueue(ctx context.Context, name string) (queues.Queue, bool, error)
	Queues(ctx context.Context, pattern, after string, limit int) ([]queues.Queue, error)
	// PutQueue returns the error of change, and then writes nothing.
	PutQueue(ctx context.Context, name string, change func(*task.QueueConfig) error) error
	// DropQueue deletes a queue with everything in it, Purge ends the tasks that wait or are claimed.
	DropQueue(ctx context.Context, q queues.Queue) error
	Purge(ctx context.Context, q queues.Queue) error
	Depth(ctx context.Context, q queues.Queue) (broker.QueueInfo, error)

	// Enqueue enqueues tasks whose defaults are filled in. Each has its own result.
	Enqueue(ctx context.Context, q queues.Queue, specs []task.Spec) []broker.Enqueued
	Claim(ctx context.Context, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, error)
	Settle(ctx context.Context, calls []broker.Settle) []broker.Settled
	// FirstClaimed returns when the earliest recorded claim of a task began; zero: none.
	FirstClaimed(ctx context.Context, id task.ID) (time.Time, error)

	// StartOperation starts an operation. Its filter and target must be within the caller's rights.
	StartOperation(ctx context.Context, spec broker.OperationSpec) error
	// Operations returns the operations below an id, newest first; zero: from the newest.
	Operations(ctx context.Context, below task.ID, limit int) (broker.OperationPage, error)
	AbortOperation(ctx context.Context, id task.ID) error
}

// Handler serves clients of Amazon SQS.
type Handler struct{ Config }

// New returns a Handler.
func New(cfg Config) *Handler { return &Handler{cfg} }

const (
	jsonType  = "application/x-amz-json-1.0"
	xmlType   = "text/xml"
	algorithm = "AWS4-HMAC-SHA256"
)

// Handles reports whether a request is one of the SQS protocol.
func Handles(r *http.Request) bool {
	if t := r.Header["X-Amz-Target"]; len(t) > 0 && strings.HasPrefix(t[0], "AmazonSQS") {
		return true
	}
	if a := r.Header["Authorization"]; len(a) > 0 && strings.HasPrefix(a[0], algorithm) {
		return true
	}
	if isJSON(r) || isForm(r) {
		return true
	}
	_, _, ok := splitPath(r.URL.Path)
	return ok || strings.Contains(r.URL.RawQuery, "X-Amz-Algorithm=")
}

// splitPath splits the path of a queue's URL.
func splitPath(path string) (account, queue string, ok bool) {
	account, queue, ok = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return account, queue, ok && isAccount(account) && queue != "" && !strings.Contains(queue, "/")
}

func isAccount(s string) bool {
	return len(s) == 12 && strings.Trim(s, "0123456789") == ""
}

// exchange is one request and its answer.
type exchange struct {
	*Handler
	ctx    context.Context
	r      *http.Request
	in     *wire.Input
	out    wire.Output
	action string
	json   bool
	id     string // of the request
	room   *admission.Reservation
	ended  bool // the body was read, or it stalled
}

// action implements one action.
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

// Actions returns the names of all implemented actions.
func Actions() []string { return slices.Sorted(maps.Keys(actions)) }

// Serve answers a request. If why is not nil, the request is not for this server and is refused with that error.
func (d *Handler) Serve(w http.ResponseWriter, r *http.Request, why error) {
	x := &exchange{Handler: d, r: r, json: isJSON(r), id: requestID()}
	var own error
	known := false // the caller: the body of a stranger is not read
	refusal := d.Call(r, func(ctx context.Context, caller Caller) error {
		known = true
		if why != nil {
			return why
		}
		x.ctx = ctx
		own = x.run(w, caller)
		return reported(own)
	})
	if x.room != nil {
		defer x.room.Release()
	}
	if x.answer(w, own, refusal); known && !x.ended {
		discardRest(w, r)
	}
}

// discardTime is how long a client may keep sending a body that was refused, so that it gets to read the answer.
const discardTime = 5 * time.Second

// discardRest sends the answer, then reads and drops what the client still sends. Closing a connection with unread
// bytes resets it, and the client may then see the reset instead of the answer.
func discardRest(w http.ResponseWriter, r *http.Request) {
	conn := http.NewResponseController(w)
	_ = conn.Flush()
	_ = conn.SetReadDeadline(time.Now().Add(discardTime)) // not supported by in-memory connections
	_, _ = io.CopyN(io.Discard, r.Body, contract.MaxMessage)
}

// Refuse refuses a request of the SQS protocol, on behalf of a server that can't handle any yet. It reports whether the request is one.
func Refuse(w http.ResponseWriter, r *http.Request, refusal *task.Error) bool {
	if !Handles(r) {
		return false
	}
	x := &exchange{r: r, json: isJSON(r), id: requestID()}
	x.answer(w, nil, refusal)
	return true
}

// isJSON distinguishes the two protocols by the content type alone: some clients of the Query protocol send X-Amz-Target.
func isJSON(r *http.Request) bool {
	t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return t == jsonType
}

// isForm reports whether a request is an action of the Query protocol that is sent to the root, where the web UI takes no forms.
func isForm(r *http.Request) bool {
	t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return t == "application/x-www-form-urlencoded" && r.Method == http.MethodPost && r.URL.Path == "/"
}

// run reads the request and runs its action. What the body says is decoded only once the caller is known to have the right.
func (x *exchange) run(w http.ResponseWriter, caller Caller) error {
	body, err := x.body()
	if err == nil {
		err = caller.Verify(body)
	}
	var form url.Values
	if err == nil {
		form, err = x.begin(body)
	}
	if err != nil {
		return err
	}
	switch {
	case x.action == "" && !x.json:
		return wire.ErrUnknownOperation
	case actions[x.action] == nil:
		return x.misplaced()
	}
	if x.ctx, err = caller.Authorize(x.action); err != nil {
		return err
	}
	if _, _, ofQueue := splitPath(x.r.URL.Path); ofQueue && !x.json && (x.action == "CreateQueue" || x.action == "ListQueues") {
		return x.misplaced()
	}
	if x.json {
		x.in, err = wire.ReadJSON(body)
	} else {
		x.in, err = wire.ReadQuery(form)
	}
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // or it would end a long poll
	return actions[x.action](x)
}

func (x *exchange) misplaced() error {
	return wire.ErrInvalidAction.With("The action %s is not valid for this endpoint.", task.Cut(x.action, 100))
}

// begin determines the action, and returns the fields of a form, which is in the body or in the query.
func (x *exchange) begin(body []byte) (form url.Values, err error) {
	if x.json {
		x.action = strings.TrimPrefix(x.r.Header.Get("X-Amz-Target"), wire.TargetPrefix)
		return nil, nil
	}
	form, err = wire.ParseForm(x.r.URL.RawQuery)
	if err == nil && form.Get("Action") == "" {
		form, err = wire.ParseForm(string(body))
	}
	x.action = form.Get("Action")
	return form, err
}

// maxBody bounds a request: messages of 1 MiB in all, with every byte escaped.
const maxBody = 6<<20 + 64<<10

// body reads the body. A large one waits for memory, of which the decoded request takes as much again.
func (x *exchange) body() ([]byte, error) {
	from, n := http.MaxBytesReader(nil, x.r.Body, maxBody), x.r.ContentLength
	if n > maxBody {
		return nil, errTooLarge()
	}
	var body bytes.Buffer
	var err error
	if n < 0 { // unknown; if it is small, it needs no memory for a large one
		if _, err = io.CopyN(&body, from, contract.SmallMessage); errors.Is(err, io.EOF) {
			n, err = int64(body.Len()), nil
		} else {
			n = maxBody
		}
	}
	if err == nil && n > contract.SmallMessage {
		if x.room, err = x.Core.Reserve(x.ctx, 2*n); err != nil {
			return nil, err
		}
	}
	if err == nil {
		body.Grow(int(n) - body.Len() + bytes.MinRead)
		_, err = body.ReadFrom(from)
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, errTooLarge()
	}
	x.ended = true
	if err != nil {
		return nil, wire.ErrSerialization.With("The request body did not arrive in full.")
	}
	return body.Bytes(), nil
}

func errTooLarge() error {
	return wire.ErrInvalidParameterValue.With(
		"One or more parameters are invalid. Reason: The request must not be longer than %d bytes.", maxBody)
}

// answer sends the response.
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
		if body = wire.JSON(&x.out); len(body) == 2 && !answersObject[x.action] {
			body = nil
		}
	case e == nil && x.acceptsJSON():
		h["Content-Type"] = []string{"application/json"}
		body = wire.QueryJSON(x.action, x.id, &x.out)
	case e == nil:
		body = wire.AppendXML(nil, x.action, x.id, &x.out)
	case x.json:
		status, body = e.Status, wire.JSONError(e)
		h.Set("X-Amzn-Query-Error", e.QueryError())
	case x.acceptsJSON() && e != wire.ErrUnknownOperation:
		h["Content-Type"] = []string{"application/json"}
		status, body = e.Status, wire.QueryJSONError(x.id, e)
	default:
		status, body = e.Status, wire.AppendXMLError(nil, x.id, e)
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // if this fails, the caller is gone
}

// acceptsJSON reports whether a client of the Query protocol asks for JSON. Answers without a word on that are XML.
func (x *exchange) acceptsJSON() bool {
	first, _, _ := strings.Cut(x.r.Header.Get("Accept"), ",")
	t, _, _ := mime.ParseMediaType(first)
	return t == "application/json"
}

// answersObject lists the actions that answer {} when there is nothing to return. The others return no body.
var answersObject = map[string]bool{
	"ReceiveMessage": true, "ListQueues": true, "ListQueueTags": true, "GetQueueAttributes": true, "DeleteMessageBatch": true,
	"ChangeMessageVisibilityBatch": true, "SendMessageBatch": true, "ListMessageMoveTasks": true,
}

// errorOf returns the error to send; nil: the request succeeded.
func errorOf(own error, refusal *task.Error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](own); ok {
		return e
	}
	if refusal != nil {
		return awsError(refusal)
	}
	return nil
}

// reported converts an error of this package to the one that is counted for the call.
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

// awsError converts an error to Amazon SQS's.
func awsError(e *task.Error) *wire.Error {
	switch e.Code {
	case task.CodeUnauthenticated:
		return unknownCaller(e)
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

// unknownCaller returns the error for a caller that was not admitted.
func unknownCaller(e *task.Error) *wire.Error {
	switch e.Reason {
	case ReasonUnsigned:
		return wire.ErrMissingAuthentication.With("Request is missing Authentication Token: %s", e.Message)
	case wire.ErrSignatureDoesNotMatch.Shape:
		return wire.ErrSignatureDoesNotMatch.With("%s", e.Message)
	case wire.ErrIncompleteSignature.Shape:
		return wire.ErrIncompleteSignature.With("%s", e.Message)
	}
	return wire.ErrInvalidClientTokenID.With("The security token included in the request is invalid: %s", e.Message)
}

// ReasonUnsigned is the reason for refusing a call with neither a signature nor a token. The reasons for wrong signatures are the
// codes of wire.SignatureError.
const ReasonUnsigned = "unsigned"

func requestID() string {
	a, b := rand.Uint64(), rand.Uint64() // #nosec G404 -- a name for logs, no secret
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
}
