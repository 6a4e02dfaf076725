package rest

import (
	"net/http"
	"strings"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

var eventRoutes = []Route{{"GET", "/api/v1/events", "EventService/WatchEvents", watchEvents}}

// eventWriteTime is how long a reader may take for a frame. One that is slower is cut off, and comes back with its cursor.
const eventWriteTime = 30 * time.Second

// headerLastEvent is what a browser sends that comes back: it goes before the cursor of the request.
const headerLastEvent = "Last-Event-Id"

// watchEvents answers with server-sent events. The id of each is the cursor behind it.
func watchEvents(x *exchange) error {
	q, err := x.query("queue", "type", "task", "kind", "cursor", "digest")
	if err != nil {
		return err
	}
	req := &pawlv1.WatchEventsRequest{Queue: q.Get("queue"), Type: q.Get("type"), TaskId: q.Get("task"), Cursor: q.Get("cursor")}
	if q.Has("kind") {
		req.Kinds = strings.Split(q.Get("kind"), ",")
	}
	if req.Digest, err = spanQuery(q, "digest"); err != nil {
		return err
	}
	switch last := x.r.Header[headerLastEvent]; {
	case len(last) > 1:
		return task.Invalid("cursor", "%s is given %d times", headerLastEvent, len(last))
	case len(last) == 1 && last[0] != "" && req.Digest == nil:
		req.Cursor = last[0]
	}
	err = x.API.Events(x.ctx, req, x.openEvents, x.sendEvents)
	if _, refused := task.AsError(err); x.sent && !refused {
		return nil // the reader is gone
	}
	return err
}

func (x *exchange) openEvents() {
	h := x.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or a proxy would keep events back
	h.Set("X-Content-Type-Options", "nosniff")
	x.sent = true
	x.w.WriteHeader(http.StatusOK)
}

// sendEvents writes a frame. One without events has only the cursor, which a browser takes over without a word, and a comment.
func (x *exchange) sendEvents(frame *pawlv1.WatchEventsResponse) error {
	x.b = x.b[:0]
	for _, e := range frame.GetEvents() {
		if e.GetCursor() != "" {
			x.b = append(append(append(x.b, "id: "...), e.GetCursor()...), '\n')
		}
		x.b = append(x.b, "event: "...)
		x.b = append(append(x.b, e.GetKind()...), "\ndata:"...)
		x.event(e)
		x.b = append(x.b, "\n\n"...)
	}
	if len(frame.GetEvents()) == 0 {
		if frame.GetCursor() != "" {
			x.b = append(append(append(x.b, "id: "...), frame.GetCursor()...), '\n')
		}
		x.b = append(x.b, ": nothing\n\n"...)
	}
	_ = x.conn.SetWriteDeadline(time.Now().Add(eventWriteTime)) // not on connections in memory
	if _, err := x.w.Write(x.b); err != nil {
		return err
	}
	return x.conn.Flush()
}

// event is written as an object in one line: text in JSON has no line ends.
func (x *exchange) event(e *pawlv1.Event) {
	x.open('{')
	x.str("kind", e.GetKind())
	x.time("time", e.GetTime())
	x.opt("queue", e.GetQueue())
	x.opt("type", e.GetType())
	x.opt("task_id", e.GetTaskId())
	if e.GetState() != 0 {
		x.str("state", task.State(e.GetState()).String())
	}
	if e.GetAttempt() != 0 {
		x.num("attempt", int64(e.GetAttempt()))
	}
	x.opt("worker", e.GetWorker())
	x.opt("reason", e.GetReason())
	x.opt("error", e.GetError())
	x.opt("name", e.GetName())
	x.opt("operation_id", e.GetOperationId())
	if e.GetCount() != 0 {
		x.num("count", e.GetCount())
	}
	x.num("shard", int64(e.GetShard()))
	x.num("index", int64(e.GetIndex())) // #nosec G115 -- counted one by one
	x.close('}')
}
