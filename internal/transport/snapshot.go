package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
)

// A snapshot is a head, chunks and an end, each a frame:
//
//	head:  as given
//	chunk: CRC-32C of the data | data
//	end:   count of chunks | count of bytes | CRC-32C of all data
//
// So a flipped bit is located, and a truncated stream is distinguished from a complete one. The only answer comes when the
// receiver has installed the snapshot, or no longer wants it.

const (
	snapshotChunk = 256 << 10
	// snapshotBurst is how far the rate may be exceeded after a pause: little enough not to starve other traffic.
	snapshotBurst = 4 * snapshotChunk
	sumBytes      = crc32.Size
	endBytes      = 8 + 8 + sumBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errSnapshot is the error for a snapshot that arrived damaged.
var errSnapshot = errors.New("damaged snapshot")

// errReceiverDone ends body when the receiver wants no more of it; the receiver's answer has the reason.
var errReceiverDone = errors.New("the receiver ended the snapshot")

// SendSnapshot sends a head and what body writes to a member, and returns when its handler returns. body runs on the calling
// goroutine, and must return the errors of its writer. Errors are as for Call.
func (t *Transport) SendSnapshot(ctx context.Context, to uint32, head []byte, body func(io.Writer) error) error {
	p, err := t.peer(to)
	if err == nil {
		err = t.sendSnapshot(ctx, p, head, body)
	}
	var answered *RemoteError
	if err == nil || errors.As(err, &answered) {
		return err
	}
	return fmt.Errorf("snapshot to node %d: %w", to, err)
}

func (t *Transport) sendSnapshot(ctx context.Context, p *peer, head []byte, body func(io.Writer) error) error {
	if len(head) > MaxHead {
		return fmt.Errorf("%w: head has %d bytes, at most %d", ErrNotSent, len(head), MaxHead)
	}
	ctx, leave, err := t.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.ctx, stop)()
	l := t.newLink(p.at)
	defer l.close()
	s, err := t.begin(ctx, l, methodSnapshot, p.number, "")
	if err != nil {
		t.noteRefusal(err, p.number, p.at)
		return err
	}
	w := &snapshotWriter{ctx: ctx, stream: s, budget: t.budget}
	err = w.frame(&frame{kind: kindHead, body: head})
	if err == nil {
		err = body(w)
	}
	if err == nil {
		err = w.end()
	}
	if err != nil && !w.over {
		return err
	}
	answer := new(frame)
	if err := s.RecvMsg(answer); err != nil {
		return outcome(ctx, err, true)
	}
	_, err = answer.result()
	return err
}

// snapshotWriter splits what is written into chunks.
type snapshotWriter struct {
	ctx    context.Context
	stream grpc.ClientStream
	budget *rate.Limiter

	room   *[]byte // the current chunk, after room for its checksum; nil: none
	chunks uint64
	bytes  uint64
	sum    uint32
	over   bool // the receiver has ended the stream
}

// Write implements io.Writer.
func (w *snapshotWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if w.room == nil {
			w.room = pool.Get(sumBytes + snapshotChunk)
			*w.room = (*w.room)[:sumBytes]
		}
		k := min(len(p), sumBytes+snapshotChunk-len(*w.room))
		*w.room = append(*w.room, p[:k]...)
		p = p[k:]
		if len(*w.room) == sumBytes+snapshotChunk {
			if err := w.flush(); err != nil {
				return n - len(p), err
			}
		}
	}
	return n, nil
}

// flush sends the chunk as soon as the rate limit allows.
func (w *snapshotWriter) flush() error {
	if w.room == nil {
		return nil
	}
	room := w.room
	w.room = nil
	data := (*room)[sumBytes:]
	if err := w.budget.WaitN(w.ctx, len(data)); err != nil {
		return fmt.Errorf("waiting for the rate of snapshots: %w", err)
	}
	binary.BigEndian.PutUint32(*room, crc32.Checksum(data, castagnoli))
	w.chunks++
	w.bytes += uint64(len(data))
	w.sum = crc32.Update(w.sum, castagnoli, data)
	return w.frame(&frame{kind: kindChunk, body: *room, room: room})
}

func (w *snapshotWriter) end() error {
	if err := w.flush(); err != nil {
		return err
	}
	b := make([]byte, 0, endBytes)
	b = binary.BigEndian.AppendUint64(b, w.chunks)
	b = binary.BigEndian.AppendUint64(b, w.bytes)
	b = binary.BigEndian.AppendUint32(b, w.sum)
	if err := w.frame(&frame{kind: kindEnd, body: b}); err != nil {
		return err
	}
	return w.stream.CloseSend()
}

func (w *snapshotWriter) frame(f *frame) error {
	err := w.stream.SendMsg(f)
	if errors.Is(err, io.EOF) {
		w.over = true
		return errReceiverDone
	}
	return err
}

// serveSnapshot passes a snapshot to the handler, and the handler's result to the sender.
func (t *Transport) serveSnapshot(v incoming, s grpc.ServerStream) error {
	if err := s.SendHeader(nil); err != nil {
		return err
	}
	var head frame
	if err := s.RecvMsg(&head); err != nil {
		return err
	}
	if head.kind != kindHead || len(head.body) > MaxHead {
		return s.SendMsg(resultFrame(nil, fmt.Errorf("%w: its head is a frame of kind %d with %d bytes", errSnapshot,
			head.kind, len(head.body))))
	}
	r := &snapshotReader{stream: s}
	err := t.cfg.Handler.Snapshot(s.Context(), v.from, head.body, r)
	if err == nil && !errors.Is(r.err, io.EOF) {
		err = fmt.Errorf("snapshot was accepted after %d bytes, before its end", r.bytes)
	}
	return s.SendMsg(resultFrame(nil, err))
}

// snapshotReader reassembles the chunks.
type snapshotReader struct {
	stream grpc.ServerStream

	rest   []byte // of the last chunk
	err    error  // io.EOF: everything arrived undamaged
	chunks uint64
	bytes  uint64
	sum    uint32
}

// Read implements io.Reader.
func (r *snapshotReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.rest, r.err = r.next()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *snapshotReader) next() ([]byte, error) {
	var f frame
	if err := r.stream.RecvMsg(&f); err != nil {
		return nil, fmt.Errorf("snapshot was cut off after %d bytes: %w", r.bytes, io.ErrUnexpectedEOF)
	}
	switch {
	case f.kind == kindChunk && len(f.body) > sumBytes:
		return r.chunk(binary.BigEndian.Uint32(f.body), f.body[sumBytes:])
	case f.kind == kindEnd && len(f.body) == endBytes:
		return nil, r.finish(f.body)
	}
	return nil, fmt.Errorf("%w: after %d bytes came a frame of kind %d with %d bytes", errSnapshot, r.bytes, f.kind, len(f.body))
}

func (r *snapshotReader) chunk(want uint32, data []byte) ([]byte, error) {
	if got := crc32.Checksum(data, castagnoli); got != want {
		return nil, fmt.Errorf("%w: chunk %d at byte %d has checksum %08x, want %08x", errSnapshot, r.chunks, r.bytes, got, want)
	}
	r.chunks++
	r.bytes += uint64(len(data))
	r.sum = crc32.Update(r.sum, castagnoli, data)
	return data, nil
}

func (r *snapshotReader) finish(end []byte) error {
	chunks, bytes, sum := binary.BigEndian.Uint64(end), binary.BigEndian.Uint64(end[8:]), binary.BigEndian.Uint32(end[16:])
	if chunks != r.chunks || bytes != r.bytes || sum != r.sum {
		return fmt.Errorf("%w: %d chunks with %d bytes and checksum %08x arrived, %d with %d and %08x were sent",
			errSnapshot, r.chunks, r.bytes, r.sum, chunks, bytes, sum)
	}
	return io.EOF
}
