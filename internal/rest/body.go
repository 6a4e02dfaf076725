package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/pawlq/pawl/internal/admission"
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

// body reads the request's body, up to the limit of a message. One that is not small has room first, until the answer is sent.
func (x *exchange) body() ([]byte, error) {
	if e := x.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, task.Invalid("Content-Encoding", "%q is not known here: send the body as it is", task.Cut(e, 64))
	}
	size := x.r.ContentLength
	if size > contract.MaxMessage {
		return nil, x.cutOff(tooLarge())
	}
	body, err := x.readBody(http.MaxBytesReader(x.w, x.r.Body, contract.MaxMessage), size)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, x.cutOff(tooLarge())
	case errors.Is(err, task.ErrUnavailable):
		return nil, x.cutOff(err)
	case err != nil:
		x.stalled = true
		return nil, x.cutOff(task.Invalid("body", "did not arrive whole"))
	}
	_ = x.conn.SetReadDeadline(time.Time{}) // or it would end the call's context later
	return body, nil
}

// cutOff ends the connection behind the answer: no other request can be told from the rest of the body.
func (x *exchange) cutOff(err error) error {
	x.w.Header().Set("Connection", "close")
	return err
}

// discardTime is how long a client may go on to send a body that was refused, so that it comes to read why.
const discardTime = 5 * time.Second

// discardRest sends the answer, and reads what the client goes on to send. A connection that is closed with bytes unread is reset, and then the
// client may see that in place of its answer.
func (x *exchange) discardRest() {
	x.giveRoom()
	if x.stalled {
		return
	}
	_ = x.conn.Flush()
	_ = x.conn.SetReadDeadline(time.Now().Add(discardTime)) // not on connections in memory
	_, _ = io.CopyN(io.Discard, x.r.Body, contract.MaxMessage)
}

func tooLarge() error {
	return &task.Error{Code: task.CodePayloadTooLarge, Field: "body", Message: task.Invalid("body", "more than %d bytes", contract.MaxMessage).Message}
}

// readBody reads a body of a size that was announced, or -1.
func (x *exchange) readBody(from io.Reader, size int64) ([]byte, error) {
	switch {
	case size > contract.SmallMessage:
		if err := x.makeRoom(roomFor(int(size))); err != nil {
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
	if err := x.makeRoom(roomFor(contract.MaxMessage+1) + growth); err != nil {
		return nil, err
	}
	if body, err = readRest(from, body); err == nil {
		x.held.Shrink(int64(roomFor(cap(body))))
	}
	return body, err
}

// growth bounds what a body of unknown size has in its old place while it moves to a larger one.
const growth = contract.MaxMessage / 4

// readRest reads what follows the beginning of a body. Its places grow so that the last but one is small beside the last.
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

// grown is the next place of a body: after that of the longest there is none, nor need for one.
func grown(n int) int {
	if n >= growth {
		return contract.MaxMessage + 1 // where the end shows
	}
	return 4 * n
}

// roomFor is what a large body takes with what is expected to be made of it: payloads are left where they stand, unless they are of base64.
func roomFor(size int) int { return size + contract.MemoryFor(size) }

// makeRoom waits for the room of a body, which then has all its time to arrive.
func (x *exchange) makeRoom(n int) error {
	if err := x.reserve(&x.held, x.Large, n); err != nil {
		return err
	}
	_ = x.conn.SetReadDeadline(time.Now().Add(BodyTimeout)) // not on connections in memory
	x.patience(BodyTimeout)
	return nil
}

// reserve waits for room, for as long as a body may take to arrive.
func (x *exchange) reserve(held **admission.Reservation, room *admission.MemoryPool, n int) (err error) {
	ctx, cancel := context.WithTimeout(x.ctx, BodyTimeout)
	defer cancel()
	if *held, err = room.Reserve(ctx, x.Namespace(x.ctx), int64(n)); err != nil {
		return contract.NoRoom()
	}
	return nil
}

// budget is how much memory may be made of a body.
func (x *exchange) budget(size int) *budget {
	return &budget{left: roomFor(max(size, contract.SmallMessage)) - size, more: func() error {
		return x.reserve(&x.extra, x.Extra, contract.MaxExtra)
	}}
}

// keep gives back the room of what was not made of a body.
func (x *exchange) keep(size int, made *budget) {
	x.held.Shrink(int64(size + made.spent))
	x.extra.Shrink(int64(size + made.spent - roomFor(size)))
}

// giveRoom gives back what the request took.
func (x *exchange) giveRoom() {
	x.held.Release()
	x.extra.Release()
}
