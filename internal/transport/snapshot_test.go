package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
)

// state is a body of pseudorandom bytes, written in odd pieces.
func state(n int) ([]byte, func(io.Writer) error) {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(b)
	return b, func(w io.Writer) error {
		for rest := b; len(rest) > 0; {
			k := min(len(rest), 100_003)
			if _, err := w.Write(rest[:k]); err != nil {
				return err
			}
			rest = rest[k:]
		}
		return nil
	}
}

func TestSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		var head, got []byte
		b.snapshot = func(_ context.Context, h []byte, body io.Reader) (err error) {
			head = h
			got, err = io.ReadAll(body)
			return err
		}
		for _, n := range []int{0, 1, snapshotChunk, snapshotChunk + 1, 10 << 20} {
			want, body := state(n)
			if err := a.SendSnapshot(t.Context(), 2, []byte("head"), body); err != nil {
				t.Fatal(err)
			}
			if string(head) != "head" || !bytes.Equal(got, want) {
				t.Errorf("of %d bytes %d arrived, with head %q", n, len(got), head)
			}
		}
		dials := net.cable("n2").dialled()
		pass(time.Second)
		if net.cable("n2").dialled() != dials {
			t.Error("the connection of a snapshot was dialled again")
		}
	})
}

// TestSnapshotRefused: the receiver's error arrives, whenever it is returned.
func TestSnapshotRefused(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		_, body := state(5 << 20)
		for name, take := range map[string]func(io.Reader){
			"at once":       func(io.Reader) {},
			"in the middle": func(r io.Reader) { _, _ = io.CopyN(io.Discard, r, 1<<20) },
			"at the end":    func(r io.Reader) { _, _ = io.Copy(io.Discard, r) },
		} {
			b.snapshot = func(_ context.Context, _ []byte, r io.Reader) error {
				take(r)
				return errors.New("no room: 3 MiB free")
			}
			var remote *RemoteError
			if err := a.SendSnapshot(t.Context(), 2, nil, body); !errors.As(err, &remote) || remote.Message != "no room: 3 MiB free" {
				t.Errorf("refused %s: %v, want the receiver's error", name, err)
			}
		}
		b.snapshot = func(_ context.Context, _ []byte, r io.Reader) error {
			_, err := io.CopyN(io.Discard, r, 1<<20)
			return err
		}
		if err := a.SendSnapshot(t.Context(), 2, nil, body); err == nil || !strings.Contains(err.Error(), "before its end") {
			t.Errorf("a snapshot that was read in part = %v, want an error", err)
		}
		b.snapshot = func(context.Context, []byte, io.Reader) error {
			t.Error("a snapshot with too large a head reached the handler")
			return nil
		}
		if err := a.SendSnapshot(t.Context(), 2, make([]byte, MaxHead+1), body); !errors.Is(err, ErrNotSent) {
			t.Errorf("a snapshot with too large a head = %v, want ErrNotSent", err)
		}
		if err := a.SendSnapshot(t.Context(), 9, nil, body); !errors.Is(err, ErrNotSent) {
			t.Errorf("a snapshot to an unknown node = %v, want ErrNotSent", err)
		}
		b.remove(1, errors.New("node 1 was removed"))
		if err := a.SendSnapshot(t.Context(), 2, nil, body); !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("a snapshot from a removed node = %v, want ErrNotSent", err)
		}
	})
}

// TestSnapshotDamaged: a bit that flips anywhere on the way, unnoticed by any lower layer, is detected.
func TestSnapshotDamaged(t *testing.T) {
	for _, at := range []int{1000, snapshotChunk / 2, 3*snapshotChunk + 17} {
		bubble(t, func(t *testing.T, net *network) {
			a, b := pair(t, net)
			settle()
			want, body := state(4 * snapshotChunk)
			net.cable("n2").damage(func(wire []byte) {
				// Surrounding bytes are used to find the position, whatever the frames.
				if i := bytes.Index(wire, want[at:at+16]); i >= 0 {
					wire[i] ^= 0x10
				}
			})
			var read error
			b.snapshot = func(_ context.Context, _ []byte, r io.Reader) error {
				got, err := io.ReadAll(r)
				if len(got) > at {
					t.Errorf("%d bytes were read, beyond the damage at %d", len(got), at)
				}
				read = err
				return err
			}
			err := a.SendSnapshot(t.Context(), 2, nil, body)
			var remote *RemoteError
			if !errors.Is(read, errSnapshot) || !errors.As(err, &remote) || !strings.Contains(err.Error(), "has checksum") {
				t.Errorf("damage at %d: read = %v, SendSnapshot = %v, want a wrong checksum", at, read, err)
			}
		})
	}
}

// frames is a stream that delivers frames and then fails.
type frames struct {
	grpc.ServerStream
	left []frame
}

func (f *frames) RecvMsg(m any) error {
	if len(f.left) == 0 {
		return errors.New("cut")
	}
	*m.(*frame) = f.left[0]
	f.left = f.left[1:]
	return nil
}

func (f *frames) SendMsg(m any) error {
	f.left = append(f.left, *m.(*frame))
	return nil
}

// sender is the same for the sending side.
type sender struct {
	grpc.ClientStream
	to *frames
}

func (s sender) SendMsg(m any) error { return s.to.SendMsg(m) }
func (s sender) CloseSend() error    { return nil }

// TestSnapshotFrames: a missing, repeated, reordered or invalid frame is detected, at the latest by the end frame.
func TestSnapshotFrames(t *testing.T) {
	want, body := state(3*snapshotChunk + 5)
	var sent frames
	w := &snapshotWriter{ctx: t.Context(), stream: sender{to: &sent}, budget: rate.NewLimiter(rate.Inf, snapshotBurst)}
	if err := errors.Join(body(w), w.end()); err != nil {
		t.Fatal(err)
	}
	s := sent.left
	strange := frame{kind: kindBody, body: s[0].body}
	for name, c := range map[string]struct {
		frames []frame
		want   error
	}{
		"whole":           {s, nil},
		"one missing":     {[]frame{s[0], s[2], s[3], s[4]}, errSnapshot},
		"one repeated":    {[]frame{s[0], s[1], s[1], s[2], s[3], s[4]}, errSnapshot},
		"two exchanged":   {[]frame{s[1], s[0], s[2], s[3], s[4]}, errSnapshot},
		"the end early":   {[]frame{s[0], s[4]}, errSnapshot},
		"no end":          {s[:4], io.ErrUnexpectedEOF},
		"a strange frame": {[]frame{s[0], strange, s[4]}, errSnapshot},
		"a short chunk":   {[]frame{{kind: kindChunk, body: s[0].body[:sumBytes]}, s[4]}, errSnapshot},
		"a short end":     {[]frame{s[0], s[1], s[2], s[3], {kind: kindEnd, body: s[4].body[1:]}}, errSnapshot},
		"nothing":         {nil, io.ErrUnexpectedEOF},
	} {
		r := &snapshotReader{stream: &frames{left: c.frames}}
		got, err := io.ReadAll(r)
		if !errors.Is(err, c.want) || c.want == nil && !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v, want %v", name, len(got), err, c.want)
		}
		if _, again := r.Read(make([]byte, 1)); again == nil || errors.Is(again, io.EOF) != (c.want == nil) {
			t.Errorf("%s: Read after the end = %v", name, again)
		}
	}
}

// TestSnapshotCut: an incomplete snapshot is not taken for a complete one, whichever side ended it.
func TestSnapshotCut(t *testing.T) {
	for name, end := range map[string]func(a *node, net *network) error{
		"cut":            func(_ *node, net *network) error { net.cable("n2").cut(); return nil },
		"silence":        func(_ *node, net *network) error { net.cable("n2").silence(true); return nil },
		"body fails":     func(*node, *network) error { return errors.New("read: input/output error") },
		"the peer moves": func(a *node, _ *network) error { a.SetPeers(nil); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *network) {
				a, b := pair(t, net)
				read := make(chan error, 1)
				b.snapshot = func(_ context.Context, _ []byte, r io.Reader) error {
					_, err := io.ReadAll(r)
					read <- err
					return err
				}
				_, half := state(3 * snapshotChunk)
				began := time.Now()
				err := a.SendSnapshot(t.Context(), 2, nil, func(w io.Writer) error {
					if err := half(w); err != nil {
						return err
					}
					settle()
					if err := end(a, net); err != nil {
						return err
					}
					return half(w)
				})
				var remote *RemoteError
				if err == nil || errors.As(err, &remote) || errors.Is(err, ErrNotSent) {
					t.Errorf("SendSnapshot = %v, want an error that leaves the outcome open", err)
				}
				if err := <-read; !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("read = %v, want ErrUnexpectedEOF", err)
				}
				// gRPC lets a client wait for 10 s before it checks the other side.
				if took := time.Since(began); took > keepaliveClient+keepaliveWait+time.Second {
					t.Errorf("the failure was detected after %v", took)
				}
			})
		})
	}
}

// TestSnapshotRate: all snapshots together stay within the rate.
func TestSnapshotRate(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net, func(c *Config) { c.SnapshotRate = 2 << 20 })
		b.snapshot = func(_ context.Context, _ []byte, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
		began := time.Now()
		done := make(chan error, 3)
		for range cap(done) {
			_, body := state(4 << 20)
			go func() { done <- a.SendSnapshot(t.Context(), 2, nil, body) }()
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took < 5400*time.Millisecond || took > 6100*time.Millisecond {
			t.Errorf("12 MiB at 2 MiB/s took %v, want 6s minus a burst", took)
		}
		_, body := state(4 << 20)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.SendSnapshot(ctx, 2, nil, body); err == nil {
			t.Error("a snapshot that takes 2s was sent in 1s")
		}
	})
}
