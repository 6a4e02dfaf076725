package rest

import (
	"net/http"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

// eventWriteTime is how long a client may take to receive a frame. A slower client is disconnected, and can resume from its cursor.
const eventWriteTime = 30 * time.Second

// headerLastEvent is sent by a browser that reconnects: it takes precedence over the cursor of the request.
const headerLastEvent = "Last-Event-Id"

// watchEvents answers with server-sent events. The id of each event is the cursor after it.
func watchEvents(x *exchange) error {
	if x.r.Method == http.MethodHead { // its answer would never end
		return wrongMethod(x)
	}
	req := &pawlv1.WatchEventsRequest{}
	if err := x.request(req); err != nil {
		return err
	}
	switch last := x.r.Header[headerLastEvent]; {
	case len(last) > 1:
		return task.Invalid("cursor", "%s is given %d times", headerLastEvent, len(last))
	case len(last) == 1 && last[0] != "" && req.Digest == nil:
		req.Cursor = last[0]
	}
	err := x.Events(x.ctx, req, x.openEvents, x.sendEvents)
	if _, refused := task.AsError(err); x.sent && !refused {
		return nil // the client is gone
	}
	return err
}

func (x *exchange) openEvents() {
	h := x.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or a proxy would buffer events
	h.Set("X-Content-Type-Options", "nosniff")
	x.sent = true
	x.w.WriteHeader(http.StatusOK)
}

// sendEvents writes a frame: each event as an object on one line, since strings in JSON contain no newlines. A frame without events
// consists of the cursor, which browsers store silently, and a comment.
func (x *exchange) sendEvents(frame *pawlv1.WatchEventsResponse) error {
	x.B = x.B[:0]
	for _, e := range frame.GetEvents() {
		if e.GetCursor() != "" {
			x.B = append(append(append(x.B, "id: "...), e.GetCursor()...), '\n')
		}
		x.B = append(x.B, "event: "...)
		x.B = append(append(x.B, e.GetKind()...), "\ndata:"...)
		x.Message(e)
		x.B = append(x.B, "\n\n"...)
	}
	if len(frame.GetEvents()) == 0 {
		if frame.GetCursor() != "" {
			x.B = append(append(append(x.B, "id: "...), frame.GetCursor()...), '\n')
		}
		x.B = append(x.B, ": nothing\n\n"...)
	}
	_ = x.conn.SetWriteDeadline(time.Now().Add(eventWriteTime)) // not supported by in-memory connections
	if _, err := x.w.Write(x.B); err != nil {
		return err
	}
	return x.conn.Flush()
}
