package transport

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
)

// OpenStream opens a stream to a member's handler, which has started when OpenStream returns. The caller must cancel its context
// to end it, unless Recv has returned an error.
func (t *Transport) OpenStream(ctx context.Context, to uint32, method string) (Stream, error) {
	p, err := t.peer(to)
	if err != nil {
		return nil, fmt.Errorf("stream %q to node %d: %w", method, to, err)
	}
	s, err := t.begin(ctx, p.calls, methodStream, to, method)
	if err != nil {
		t.noteRefusal(err, to, p.at)
		return nil, fmt.Errorf("stream %q to node %d (%s at %q): %w", method, to, p.at.Name, p.at.Address, err)
	}
	return &stream{rpc: s}, nil
}

// stream is either end of a stream.
type stream struct {
	rpc interface {
		Context() context.Context
		SendMsg(m any) error
		RecvMsg(m any) error
	}
}

var errStreamOver = errors.New("the stream has ended; Recv returns the reason")

// Context implements Stream.
func (s *stream) Context() context.Context { return s.rpc.Context() }

// Send implements Stream.
func (s *stream) Send(b []byte) error {
	if len(b) > MaxFrame {
		return fmt.Errorf("frame of a stream has %d bytes, at most %d", len(b), MaxFrame)
	}
	err := s.rpc.SendMsg(&frame{kind: kindBody, body: b})
	if errors.Is(err, io.EOF) {
		return errStreamOver
	}
	if err != nil {
		return outcome(s.Context(), err, true)
	}
	return nil
}

// Recv implements Stream.
func (s *stream) Recv() ([]byte, error) {
	var f frame
	err := s.rpc.RecvMsg(&f)
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, outcome(s.Context(), err, true)
	}
	if f.kind == kindError { // only the end follows, and gRPC releases a stream only when that was read
		_ = s.rpc.RecvMsg(new(frame))
	}
	return f.result()
}

func (t *Transport) serveStream(v incoming, s grpc.ServerStream) error {
	if err := s.SendHeader(nil); err != nil {
		return err
	}
	if err := t.cfg.Handler.Stream(v.from, v.method, &stream{rpc: s}); err != nil {
		return s.SendMsg(resultFrame(nil, err))
	}
	return nil
}
