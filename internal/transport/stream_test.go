package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestStream(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		b.stream = func(from Peer, method string, s Stream) error {
			if from != member(1) || method != "work" {
				t.Errorf("the handler got stream %q from %v, want work from %v", method, from, member(1))
			}
			for {
				frame, err := s.Recv()
				switch {
				case err != nil:
					return err
				case string(frame) == "end":
					return nil
				case string(frame) == "fail":
					return errors.New("shard 3: not leader")
				}
				if err := s.Send([]byte(strings.ToUpper(string(frame)))); err != nil {
					return err
				}
			}
		}
		for last, check := range map[string]func(error) bool{
			"end": func(err error) bool { return err == io.EOF },
			"fail": func(err error) bool {
				var r *RemoteError
				return errors.As(err, &r) && r.Message == "shard 3: not leader"
			},
		} {
			s, err := a.OpenStream(t.Context(), 2, "work")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				if err := s.Send(fmt.Append(nil, "frame ", i)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 100 {
				if got, err := s.Recv(); err != nil || string(got) != fmt.Sprint("FRAME ", i) {
					t.Fatalf("frame %d = %q, %v", i, got, err)
				}
			}
			_ = s.Send([]byte(last))
			if got, err := s.Recv(); got != nil || !check(err) {
				t.Errorf("after %q Recv = %q, %v", last, got, err)
			}
			if err := s.Send(nil); !errors.Is(err, errStreamOver) {
				t.Errorf("Send after the end = %v, want errStreamOver", err)
			}
			if err := s.Send(make([]byte, MaxFrame+1)); err == nil || !strings.Contains(err.Error(), "at most") {
				t.Errorf("Send above the limit = %v", err)
			}
		}
	})
}

// TestStreamEnds: the handler is notified when the caller is gone, and the caller when the peer is.
func TestStreamEnds(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		ended := make(chan error, 1)
		b.stream = func(_ Peer, _ string, s Stream) error {
			_, err := s.Recv()
			ended <- err
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := a.OpenStream(ctx, 2, "work"); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err == nil || err == io.EOF {
			t.Errorf("the handler of a cancelled stream received %v, want an error", err)
		}
		s, err := a.OpenStream(t.Context(), 2, "work")
		if err != nil {
			t.Fatal(err)
		}
		net.cable("n2").silence(true)
		began := time.Now()
		if _, err := s.Recv(); err == nil || errors.Is(err, io.EOF) || errors.Is(err, ErrNotSent) {
			t.Errorf("a stream to a silent peer ended with %v, want an error", err)
		}
		<-ended
		if took := time.Since(began); took > pingEvery+pingWait+time.Second {
			t.Errorf("the failure was detected after %v", took)
		}
		a.SetPeers(map[uint32]Address{2: {"nowhere", "n2"}})
		if _, err := a.OpenStream(t.Context(), 2, "work"); !errors.Is(err, ErrNotSent) {
			t.Errorf("a stream to an unreachable address = %v, want ErrNotSent", err)
		}
		if _, err := a.OpenStream(t.Context(), 9, "work"); !errors.Is(err, ErrNotSent) {
			t.Errorf("a stream to an unknown node = %v, want ErrNotSent", err)
		}
	})
}

// TestClose: Close ends everything that runs, at both ends, and leaves no goroutine, without any time passing.
func TestClose(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("silent ", silent), func(t *testing.T) {
			bubble(t, func(t *testing.T, net *network) {
				a, b := pair(t, net)
				b.stream = func(_ Peer, _ string, s Stream) error { <-s.Context().Done(); return nil }
				b.call = func(ctx context.Context, _ Peer, _ string, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, nil }
				b.snapshot = func(_ context.Context, _ []byte, body io.Reader) error {
					_, err := io.Copy(io.Discard, body)
					return err
				}
				if _, err := a.OpenStream(t.Context(), 2, "work"); err != nil {
					t.Fatal(err)
				}
				go func() { _, _ = a.Call(t.Context(), 2, "wait", nil) }()
				go func() { _, _, _ = a.CallAddress(t.Context(), "n2", "wait", nil) }()
				go func() {
					_ = a.SendSnapshot(t.Context(), 2, nil, func(w io.Writer) error {
						for {
							if _, err := w.Write(make([]byte, 1<<20)); err != nil {
								return err
							}
						}
					})
				}()
				a.Send(2, []Envelope{heartbeat(1, 1), entries(1, 1, 1000)})
				b.Send(1, []Envelope{heartbeat(1, 1), entries(1, 1, 1000)})
				pass(100 * time.Millisecond)
				net.cable("n2").silence(silent)
				closed := time.Now()
				a.Close()
				b.Close()
				a.Close()
				if took := time.Since(closed); took != 0 {
					t.Errorf("Close took %v", took)
				}
				synctest.Wait()
				if left := others(); left != "" {
					t.Errorf("goroutines are still running:\n%s", left)
				}
				if err := a.Serve(net.listen("n1")); err != nil {
					t.Errorf("Serve after Close = %v, want nil", err)
				}
			})
		})
	}
}

// others returns the goroutines of this bubble other than this one.
func others() string {
	all := make([]byte, 4<<20)
	stacks := strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n")
	_, bubble, _ := strings.Cut(stacks[0], "synctest bubble ")
	bubble, _, _ = strings.Cut(bubble, "]")
	return strings.Join(slices.DeleteFunc(stacks[1:], func(s string) bool {
		own := strings.Contains(s, "internal/synctest.Run(") || strings.Contains(s, "\ntesting/synctest.testingSynctestTest(")
		return own || !strings.Contains(s, "synctest bubble "+bubble+"]")
	}), "\n\n")
}

// TestCloseWaits: Close also waits for removed peers that are still being closed.
func TestCloseWaits(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		var told atomic.Bool
		a := start(t, net, member(1), func(c *Config) { c.Unreachable = func(uint32) { pass(time.Second); told.Store(true) } })
		a.SetPeers(map[uint32]Address{2: {"nowhere", "n2"}})
		a.Send(2, []Envelope{heartbeat(1, 1)})
		settle()
		a.SetPeers(nil)
		a.Close()
		if !told.Load() {
			t.Error("Close returned while a peer was still being closed")
		}
	})
}

// TestCloseEarly: a transport that never served can be closed.
func TestCloseEarly(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, err := New(Config{Self: func() Peer { return member(1) }, Handler: handler{}, Dial: net.dial})
		if err != nil {
			t.Fatal(err)
		}
		a.SetPeers(map[uint32]Address{2: {"nowhere", "n2"}})
		a.Close()
	})
}
