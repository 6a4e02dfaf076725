package rest

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/task"
)

// AnswerTimeout is how long an answer may take beyond the wait that the request asks for: the server's limit for all requests that
// do not call extendDeadline.
const AnswerTimeout = 60 * time.Second

// Response headers. If the answer comes from several shards, the values are separated by commas.
const (
	headerShard = "Pawl-Shard"
	headerIndex = "Pawl-Index"
	headerTime  = "Pawl-Time"
)

// exchange is one request and its answer.
type exchange struct {
	apijson.Writer // of the answer

	*server
	on     *Route
	ctx    context.Context
	r      *http.Request
	w      http.ResponseWriter
	conn   *http.ResponseController
	status int
	sent   bool // the handler has sent the answer itself
	// stalled is set when the body stopped arriving: the rest is not waited for.
	stalled bool

	held, extra *admission.Reservation // memory for a large body and for what is decoded from it; nil: none
}

// buffers hold answers until they are sent.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled keeps the pool from holding on to large buffers.
const maxPooled = 64 << 10

// exchange runs a route's handler as a call, and sends its answer.
func (f *server) exchange(w http.ResponseWriter, r *http.Request, on *Route) {
	buffer := buffers.Get().(*[]byte)
	x := &exchange{server: f, on: on, Writer: apijson.Writer{B: (*buffer)[:0]}, r: r, w: w, conn: http.NewResponseController(w)}
	defer x.releaseMemory()
	defer func() {
		if cap(x.B) <= maxPooled {
			*buffer = x.B
			buffers.Put(buffer)
		}
	}()
	came := f.Call(r, on, func(ctx context.Context) error {
		if err := f.guard.Check(r); err != nil {
			return &task.Error{Code: task.CodePermissionDenied, Message: "pages of other origins can't call this server"}
		}
		x.ctx = ctx
		if err := x.ignored(); err != nil {
			return err
		}
		return on.handle(x)
	})
	if !x.sent {
		x.send(came)
	}
	if came.Refusal != nil && r.ContentLength != 0 {
		x.discardRest()
	}
}

func (x *exchange) send(came Outcome) {
	h := x.w.Header()
	if came.Shard != "" {
		h[headerShard], h[headerIndex], h[headerTime] = []string{came.Shard}, []string{came.Index}, []string{came.Time}
	}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if came.Refusal != nil {
		x.problem(came.Refusal)
	} else if len(h["Content-Type"]) == 0 {
		h["Content-Type"] = []string{"application/json"}
	}
	if x.Sends != nil && x.ctx != nil {
		x.Sends(x.ctx, len(x.B))
	}
	h["Content-Length"] = []string{strconv.Itoa(len(x.B))}
	if x.status == 0 {
		x.status = http.StatusOK
	}
	x.w.WriteHeader(x.status)
	_, _ = x.w.Write(x.B) // if this fails, the caller is gone
}

// problem writes the answer to a refused request.
func (x *exchange) problem(e *task.Error) {
	looks := contract.StatusOf(e.Code)
	if x.status == 0 || e.Code == contract.CodeInternal {
		x.status = looks.HTTP
	}
	h := x.w.Header()
	h.Set("Content-Type", "application/problem+json")
	if e.Code == task.CodeUnauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	x.B = x.B[:0]
	x.Open('{')
	x.Str("type", "urn:pawl:error:"+string(e.Code))
	x.Str("title", looks.Title)
	x.Num("status", int64(x.status))
	x.Str("detail", task.Cut(e.Message, contract.MaxErrorText))
	x.refusalFields(e)
	x.Close('}')
}

// refusalFields writes the machine-readable fields of a refusal.
func (x *exchange) refusalFields(e *task.Error) {
	x.Str("code", string(e.Code))
	x.Opt("reason", e.Reason)
	x.Opt("field", e.Field)
	x.Opt("holder", e.Holder)
	if e.State != 0 {
		x.Str("state", e.State.String())
	}
	if e.RetryAfter > 0 {
		x.Str("retry_after", humanize.DurationText(e.RetryAfter))
	}
}

// fields reads a body that is one object.
func (x *exchange) fields(field func(r *apijson.Reader, name string) error) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	made := x.budget(len(body))
	if err := apijson.Read(body, made, max(x.Batch, apijson.MaxListed), field); err != nil {
		return err
	}
	x.keep(len(body), made)
	return nil
}

// query parses the query. Parameters that are not named are refused.
func (x *exchange) query(names ...string) (url.Values, error) {
	if x.r.URL.RawQuery == "" {
		return nil, nil
	}
	q, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil {
		return nil, task.Invalid("query", "%v", err)
	}
	for name, values := range q {
		if !slices.Contains(names, name) {
			return nil, task.Invalid(task.Cut(name, 64), "unknown parameter")
		}
		if len(values) > 1 && !x.on.repeats(name) {
			return nil, task.Invalid(name, "is given twice")
		}
	}
	return q, nil
}

// extendDeadline gives the answer more time than usual.
func (x *exchange) extendDeadline(d time.Duration) {
	_ = x.conn.SetWriteDeadline(time.Now().Add(d + AnswerTimeout)) // not on connections in memory
}
