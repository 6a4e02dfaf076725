package rest

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// BodyTimeout is how long a body may take to arrive.
const BodyTimeout = 30 * time.Second

// punctual gives each body the time that it may take, whoever reads it: REST, the pages, or the server behind those who read none. Who has read
// one whole takes the limit back, or it would end the context of the request later.
func punctual(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTimeout)) // not on connections in memory
		}
		next.ServeHTTP(w, r)
	})
}

// body reads the request's body, up to the limit of a message.
func (x *exchange) body() ([]byte, error) {
	if e := x.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, task.Invalid("Content-Encoding", "%q is not known here: send the body as it is", task.Cut(e, 64))
	}
	if x.r.ContentLength > contract.MaxMessage {
		return nil, x.cutOff(tooLarge())
	}
	body, err := x.readAll(http.MaxBytesReader(x.w, x.r.Body, contract.MaxMessage), x.r.ContentLength)
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
	return &task.Error{Code: task.CodePayloadTooLarge, Field: "body", Message: task.Invalid("body", "more than %d bytes", contract.MaxMessage).Message}
}

const (
	// maxLent is how much room all bodies that are on their way have together before they have come: each all of its own, as long as that
	// is enough, so that nothing is copied.
	maxLent = 64 << 20
	// firstPart is the room that a body has at first beyond that. Then it grows with what comes: who announces much and sends little takes
	// little.
	firstPart = 64 << 10
	partsGrow = 4
)

// lender makes room for bodies.
type lender struct{ lent atomic.Int64 }

// readAll reads a body of a size that was announced, or -1.
func (l *lender) readAll(from io.Reader, size int64) ([]byte, error) {
	if size < 0 {
		return io.ReadAll(from)
	}
	room := size
	if l.lent.Add(size) > maxLent {
		room = min(size, firstPart)
	}
	defer l.lent.Add(-size)
	b := make([]byte, room)
	for n := int64(0); ; {
		more, err := io.ReadFull(from, b[n:])
		if n += int64(more); err != nil || n == size {
			return b[:n], err
		}
		grown := make([]byte, min(size, partsGrow*n))
		copy(grown, b)
		b = grown
	}
}
