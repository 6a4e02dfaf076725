package transport

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
)

// Call sends a request to a member, and returns its handler's answer. The request must not be modified afterwards, not even
// when Call has returned. ErrNotSent means that the handler certainly didn't see the request, RemoteError that the handler
// returned an error; after any other error the outcome is unknown.
func (t *Transport) Call(ctx context.Context, to uint32, method string, request []byte) ([]byte, error) {
	p, err := t.peer(to)
	if err != nil {
		return nil, fmt.Errorf("call %q to node %d: %w", method, to, err)
	}
	answer, err := t.invoke(ctx, p.calls, to, method, request)
	if err != nil {
		t.noteRefusal(err, to, p.at)
		return nil, fmt.Errorf("call %q to node %d (%s at %q): %w", method, to, p.at.Name, p.at.Address, err)
	}
	return answer.result()
}

// CallAddress is like Call, to whichever node is at an address, over a separate connection. It also returns who answered, even
// along with a RemoteError.
func (t *Transport) CallAddress(ctx context.Context, address, method string, request []byte) (Peer, []byte, error) {
	ctx, leave, err := t.enter(ctx)
	if err != nil {
		return Peer{}, nil, fmt.Errorf("call %q to %q: %w", method, address, err)
	}
	defer leave()
	at := Address{Address: address}
	l := t.newLink(at)
	defer l.close()
	var header metadata.MD
	var other grpcpeer.Peer
	answer, err := t.invoke(ctx, l, 0, method, request, grpc.Header(&header), grpc.Peer(&other))
	if err != nil {
		t.noteRefusal(err, 0, at)
		return Peer{}, nil, fmt.Errorf("call %q to %q: %w", method, address, err)
	}
	who, err := readPeer(header)
	if err != nil {
		return Peer{}, nil, fmt.Errorf("call %q to %q: identify the peer: %w", method, address, err)
	}
	if name, ok := nameOf(&other); ok && name != who.Name {
		return Peer{}, nil, fmt.Errorf("call %q to %q: %v answered with the certificate of node %q", method, address, who, name)
	}
	result, err := answer.result()
	return who, result, err
}

func (t *Transport) invoke(ctx context.Context, l *link, to uint32, method string, request []byte, opts ...grpc.CallOption) (*frame,
	error) {
	if len(request) > MaxCall {
		return nil, fmt.Errorf("%w: request has %d bytes, at most %d", ErrNotSent, len(request), MaxCall)
	}
	out, in := frame{kind: kindBody, body: request}, new(frame)
	if err := l.cc.Invoke(t.withIdentity(ctx, to, method), methodCall, &out, in, opts...); err != nil {
		return nil, outcome(ctx, err, out.left)
	}
	return in, nil
}

// serveCall answers one request. If the request is for no particular node, the answer says who we are.
func (t *Transport) serveCall(v incoming, s grpc.ServerStream) error {
	if v.toNumber == 0 {
		if err := s.SetHeader(identify(t.cfg.Self())); err != nil {
			return err
		}
	}
	var request frame
	if err := s.RecvMsg(&request); err != nil {
		return err
	}
	answer, err := t.cfg.Handler.Call(s.Context(), v.from, v.method, request.body)
	if err == nil && len(answer) > MaxCall {
		err = fmt.Errorf("answer to call %q has %d bytes, at most %d", v.method, len(answer), MaxCall)
	}
	return s.SendMsg(resultFrame(answer, err))
}

// resultFrame encodes the result of a handler.
func resultFrame(answer []byte, err error) *frame {
	if err != nil {
		return &frame{kind: kindError, body: []byte(cut(err.Error(), maxErrorText))}
	}
	return &frame{kind: kindBody, body: answer}
}

func (f *frame) result() ([]byte, error) {
	if f.kind == kindError {
		return nil, &RemoteError{Message: string(f.body)}
	}
	return f.body, nil
}
