package gateway

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// route is one call of REST: a handler decodes its request, calls the method that gRPC calls, and encodes the answer.
type route struct {
	method, path string
	handle       func(*exchange) error
}

// exchange is one request and its answer.
type exchange struct {
	*Gateway
	jsonWriter // of the answer

	ctx    context.Context
	r      *http.Request
	w      http.ResponseWriter
	conn   *http.ResponseController
	status int
	sent   bool // the handler has answered by itself
}

func (g *Gateway) routes() []route {
	return slices.Concat(taskRoutes, workerRoutes, onceRoutes, queueRoutes, explainRoutes, deadRoutes, operationRoutes, scheduleRoutes, groupRoutes, accessRoutes, auditRoutes, rosterRoutes, eventRoutes, statsRoutes, clusterRoutes, serverRoutes)
}

func (g *Gateway) newREST() http.Handler {
	mux := http.NewServeMux()
	guard := http.NewCrossOriginProtection()
	for _, rt := range g.routes() {
		wants := needOf(rt.method, rt.path)
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			g.exchange(w, r, guard, wants, rt.method+" "+rt.path, rt.handle)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allowed := methodsOf(mux, r); len(allowed) > 0 {
			for _, m := range allowed {
				w.Header().Add("Allow", m)
			}
			g.exchange(w, r, guard, need{reach: public}, otherRoute, wrongMethod)
			return
		}
		if g.cfg.Pages != nil && !isAPI(r.URL.Path) {
			g.cfg.Pages.ServeHTTP(w, r)
			return
		}
		g.exchange(w, r, guard, need{reach: public}, otherRoute, func(x *exchange) error { return task.NotFound("path", r.URL.Path) })
	})
	return mux
}

// otherRoute stands for paths that there are not, wherever calls are counted.
const otherRoute = "other"

// underBase serves paths below a prefix as they are without it. Those without it are served too: there are proxies that strip it.
func underBase(base string, h http.Handler) http.Handler {
	if base == "" {
		return h
	}
	stripped := http.StripPrefix(base, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == base:
			http.Redirect(w, r, base+"/", http.StatusMovedPermanently)
		case strings.HasPrefix(r.URL.Path, base+"/"):
			stripped.ServeHTTP(w, r)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

func isAPI(path string) bool { return len(path) >= 5 && path[:5] == "/api/" }

// methodsOf are the methods that a path knows, if it knows any.
func methodsOf(mux *http.ServeMux, r *http.Request) (allowed []string) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		with := *r
		with.Method = method
		if _, pattern := mux.Handler(&with); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

func wrongMethod(x *exchange) error {
	x.status = http.StatusMethodNotAllowed
	return task.Invalid("method", "%s is not one that this path knows", x.r.Method)
}

// buffers hold answers until they are sent.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled keeps one large answer from holding its memory for ever.
const maxPooled = 64 << 10

// exchange runs a handler, if the caller may have what it wants, and sends its answer. A panic ends this request only.
func (g *Gateway) exchange(w http.ResponseWriter, r *http.Request, guard *http.CrossOriginProtection, wants need, name string, handle func(*exchange) error) {
	began := time.Now()
	buffer := buffers.Get().(*[]byte)
	x := &exchange{Gateway: g, jsonWriter: jsonWriter{(*buffer)[:0]}, r: r, w: w, conn: http.NewResponseController(w)}
	defer func() {
		if cap(x.b) <= maxPooled {
			*buffer = x.b
			buffers.Put(buffer)
		}
	}()
	if r.ContentLength != 0 { // also for those who never read it: the server reads on behind them
		_ = x.conn.SetReadDeadline(time.Now().Add(bodyTimeout)) // not on connections in memory
	}
	var c *call
	x.ctx, c = begin(r.Context())
	c.web = r
	err := x.guarded(guard, c, wants, handle)
	g.observed("rest", name, err, time.Since(began))
	if x.sent {
		if err != nil {
			x.refusal(err) // for the log
		}
		return
	}
	h := w.Header()
	if shard, index, at, ok := c.stamp(); ok {
		h[headerShard], h[headerIndex], h[headerTime] = []string{shard}, []string{index}, []string{at}
	}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if err != nil {
		x.problem(err)
	} else if len(h["Content-Type"]) == 0 {
		h["Content-Type"] = []string{"application/json"}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(x.b))}
	if x.status == 0 {
		x.status = http.StatusOK
	}
	w.WriteHeader(x.status)
	_, _ = w.Write(x.b) // if this fails, the caller is gone
}

func (x *exchange) guarded(guard *http.CrossOriginProtection, c *call, wants need, handle func(*exchange) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			x.status = 0
			err = x.panicked(x.r.Method+" "+x.r.URL.Path, p)
		}
	}()
	if err := guard.Check(x.r); err != nil {
		return &task.Error{Code: task.CodePermissionDenied, Message: "a page of another origin may not call this server"}
	}
	ctx, leave, err := x.admit(x.ctx, c, wants, shownByREST(x.r))
	defer leave()
	if err != nil {
		return err
	}
	x.ctx = ctx
	return shownOut(ctx, handle(x))
}

// problem is the answer to a refused request.
func (x *exchange) problem(err error) {
	e := x.refusal(err)
	f, ok := faces[e.Code]
	if !ok {
		f = faces[codeInternal]
	}
	if x.status == 0 {
		x.status = f.http
	}
	h := x.w.Header()
	h.Set("Content-Type", "application/problem+json")
	if e.Code == task.CodeUnauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	x.b = x.b[:0]
	x.open('{')
	x.str("type", "urn:pawl:error:"+string(e.Code))
	x.str("title", f.title)
	x.num("status", int64(x.status))
	x.str("detail", task.Cut(e.Message, maxMessageText))
	x.refusalFields(e)
	x.close('}')
}

// refusalFields writes what a program may want to know of a refusal.
func (x *exchange) refusalFields(e *task.Error) {
	x.str("code", string(e.Code))
	x.opt("reason", e.Reason)
	x.opt("field", e.Field)
	x.opt("holder", e.Holder)
	if e.State != 0 {
		x.str("state", e.State.String())
	}
	if e.RetryAfter > 0 {
		x.str("retry_after", spanString(e.RetryAfter))
	}
}

// body reads the request's body, up to the limit of a message.
func (x *exchange) body() ([]byte, error) {
	if e := x.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, task.Invalid("Content-Encoding", "%q is not known here: send the body as it is", task.Cut(e, 64))
	}
	if x.r.ContentLength > maxMessage {
		return nil, x.cutOff(tooLarge())
	}
	body, err := readAll(http.MaxBytesReader(x.w, x.r.Body, maxMessage), int(x.r.ContentLength))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, x.cutOff(tooLarge())
	case err != nil:
		return nil, x.cutOff(task.Invalid("body", "did not arrive whole"))
	}
	_ = x.conn.SetReadDeadline(time.Time{}) // or it would end the call's context later
	return body, nil
}

// cutOff ends the connection behind the answer: the rest of the body is not worth reading.
func (x *exchange) cutOff(err error) error {
	x.w.Header().Set("Connection", "close")
	return err
}

func tooLarge() error {
	return &task.Error{Code: task.CodePayloadTooLarge, Field: "body", Message: task.Invalid("body", "more than %d bytes", maxMessage).Message}
}

// readAll reads a body of a size that was announced, or -1.
func readAll(from io.Reader, size int) ([]byte, error) {
	if size < 0 {
		return io.ReadAll(from)
	}
	b := make([]byte, size)
	n, err := io.ReadFull(from, b)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// fields reads a body that is one object.
func (x *exchange) fields(field func(r *jsonReader, name string) error) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	return readBody(body, field)
}

// query reads the parameters of the path; those that are not named are refused.
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
			return nil, task.Invalid(task.Cut(name, 64), "there is no such parameter")
		}
		if len(values) > 1 && name != "state" {
			return nil, task.Invalid(name, "is given twice")
		}
	}
	return q, nil
}

// patience lets the answer take longer than others.
func (x *exchange) patience(d time.Duration) {
	_ = x.conn.SetWriteDeadline(time.Now().Add(d + answerTimeout)) // not on connections in memory
}

// bulkTime is how long a call on many tasks may take.
const bulkTime = 10 * time.Minute

// limitText reads the limit of a list.
func limitText(q url.Values) (int32, error) {
	s := q.Get("limit")
	if s == "" && !q.Has("limit") {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 || n > maxPage {
		return 0, task.Invalid("limit", "%q is not between 1 and %d", task.Cut(s, 64), maxPage)
	}
	return int32(n), nil
}

// page reads the limit and the cursor of a list.
func (x *exchange) page() (limit int32, cursor string, err error) {
	q, err := x.query("limit", "cursor")
	if err == nil {
		limit, err = limitText(q)
	}
	return limit, q.Get("cursor"), err
}
