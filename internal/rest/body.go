package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// BodyTimeout is how long a body may take to arrive.
const BodyTimeout = 30 * time.Second

// withBodyDeadline sets the read deadline of every body, whoever reads it: REST, the pages, or net/http if no handler does. A handler that
// has read the whole body clears the deadline, which would otherwise cancel the request's context later.
func withBodyDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTimeout)) // not supported by in-memory connections
		}
		next.ServeHTTP(w, r)
	})
}

// body reads the request's body, up to the limit of a message. A large one reserves memory first and holds it until the answer is
// sent.
func (x *exchange) body() ([]byte, error) {
	if e := x.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, task.Invalid("Content-Encoding", "%q is not supported: send the body without encoding", task.Cut(e, 64))
	}
	size := x.r.ContentLength
	if size > contract.MaxMessage {
		return nil, x.closeAfter(tooLarge())
	}
	body, err := x.readBody(http.MaxBytesReader(x.w, x.r.Body, contract.MaxMessage), size)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, x.closeAfter(tooLarge())
	case errors.Is(err, task.ErrUnavailable):
		return nil, x.closeAfter(err)
	case err != nil:
		x.stalled = true
		return nil, x.closeAfter(task.Invalid("body", "did not arrive in full"))
	}
	_ = x.conn.SetReadDeadline(time.Time{}) // or it would cancel the call's context later
	return body, nil
}

// closeAfter closes the connection after the answer: the rest of the body cannot be told from the next request.
func (x *exchange) closeAfter(err error) error {
	x.w.Header().Set("Connection", "close")
	return err
}

// discardTime is how long a client may keep sending a refused body, so that it gets to read the answer.
const discardTime = 5 * time.Second

// discardRest sends the answer, then reads and drops what the client still sends. Closing a connection with unread bytes resets it,
// and the client may then see the reset instead of the answer.
func (x *exchange) discardRest() {
	x.releaseMemory()
	if x.stalled {
		return
	}
	_ = x.conn.Flush()
	_ = x.conn.SetReadDeadline(time.Now().Add(discardTime)) // not supported by in-memory connections
	_, _ = io.CopyN(io.Discard, x.r.Body, contract.MaxMessage)
}

func tooLarge() error {
	return &task.Error{Code: task.CodePayloadTooLarge, Field: "body", Message: task.Invalid("body", "more than %d bytes",
		contract.MaxMessage).Message}
}

// readBody reads a body of the announced size, or of unknown size if it is -1.
func (x *exchange) readBody(from io.Reader, size int64) ([]byte, error) {
	switch {
	case size > contract.SmallMessage:
		if err := x.reserveBody(bodyMemory(int(size))); err != nil {
			return nil, err
		}
		fallthrough
	case size >= 0:
		body := make([]byte, size)
		_, err := io.ReadFull(from, body)
		return body, err
	}
	body := make([]byte, contract.SmallMessage)
	n, err := io.ReadFull(from, body)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return body[:n], nil
	case err != nil:
		return nil, err
	}
	if err := x.reserveBody(bodyMemory(contract.MaxMessage+1) + growth); err != nil {
		return nil, err
	}
	if body, err = readRest(from, body); err == nil {
		x.held.Shrink(int64(bodyMemory(cap(body))))
	}
	return body, err
}

// growth bounds the old buffer of a body of unknown size while it is copied to a larger one.
const growth = contract.MaxMessage / 4

// readRest reads the rest of a body. Its buffers grow so that the last but one is small compared with the last.
func readRest(from io.Reader, body []byte) ([]byte, error) {
	for {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, grown(len(body))), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

// grown returns the size of the next buffer. The last one holds a body of the maximum length and one byte more.
func grown(n int) int {
	if n >= growth {
		return contract.MaxMessage + 1 // one byte more than allowed, to notice a longer body
	}
	return 4 * n
}

// bodyMemory returns the memory for a large body and what is expected to be decoded from it. Payloads are not copied unless they are
// base64.
func bodyMemory(size int) int { return size + contract.MemoryFor(size) }

// reserveBody waits for a body's memory, and then restarts the time that the body may take to arrive.
func (x *exchange) reserveBody(n int) error {
	if err := x.reserve(&x.held, x.Large, n); err != nil {
		return err
	}
	_ = x.conn.SetReadDeadline(time.Now().Add(BodyTimeout)) // not supported by in-memory connections
	x.extendDeadline(BodyTimeout)
	return nil
}

// reserve waits for memory, for as long as a body may take to arrive.
func (x *exchange) reserve(held **admission.Reservation, room *admission.MemoryPool, n int) (err error) {
	ctx, cancel := context.WithTimeout(x.ctx, BodyTimeout)
	defer cancel()
	if *held, err = room.Reserve(ctx, x.Namespace(x.ctx), int64(n)); err != nil {
		return contract.NoRoom()
	}
	return nil
}

// budget returns how much memory may be used to decode a body.
func (x *exchange) budget(size int) *apijson.Budget {
	return &apijson.Budget{Left: bodyMemory(max(size, contract.SmallMessage)) - size, More: func() error {
		return x.reserve(&x.extra, x.Extra, contract.MaxExtra)
	}}
}

// keep gives back the memory that decoding a body did not use.
func (x *exchange) keep(size int, made *apijson.Budget) {
	x.held.Shrink(int64(size + made.Spent))
	x.extra.Shrink(int64(size + made.Spent - bodyMemory(size)))
}

// releaseMemory gives back the request's memory.
func (x *exchange) releaseMemory() {
	x.held.Release()
	x.extra.Release()
}
