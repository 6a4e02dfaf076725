package rest

import (
	"errors"
	"io"
	"net/http"
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
	body, err := readAll(http.MaxBytesReader(x.w, x.r.Body, contract.MaxMessage), int(x.r.ContentLength))
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
