package transport

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCall(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		b.call = func(_ context.Context, from Peer, method string, request []byte) ([]byte, error) {
			if from != member(1) || method != "claim" {
				t.Errorf("the handler got %q from %v, want claim from %v", method, from, member(1))
			}
			return bytes.ToUpper(request), nil
		}
		for _, request := range []string{"some", "", strings.Repeat("x", 3<<20)} {
			answer, err := a.Call(t.Context(), 2, "claim", []byte(request))
			if err != nil || string(answer) != strings.ToUpper(request) {
				t.Errorf("call with %d bytes = %d bytes, %v", len(request), len(answer), err)
			}
		}
	})
}

// TestCallRefused: the handler's error arrives as its text, shortened, and is distinguished from all others.
func TestCallRefused(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		for _, text := range []string{"shard 3: not leader", strings.Repeat("ü", 5000), "bad \xff bytes", ""} {
			b.call = func(context.Context, Peer, string, []byte) ([]byte, error) { return nil, errors.New(text) }
			_, err := a.Call(t.Context(), 2, "claim", nil)
			var remote *RemoteError
			if !errors.As(err, &remote) || errors.Is(err, ErrNotSent) {
				t.Errorf("call = %v, want a RemoteError", err)
			} else if want := cut(text, maxErrorText); remote.Message != want || len(want) > maxErrorText {
				t.Errorf("error text has %d bytes, want %d", len(remote.Message), len(want))
			}
		}
	})
}

func TestCallLimits(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		ran := false
		b.call = func(context.Context, Peer, string, []byte) ([]byte, error) {
			ran = true
			return make([]byte, MaxCall+1), nil
		}
		_, err := a.Call(t.Context(), 2, "big", make([]byte, MaxCall+1))
		if !errors.Is(err, ErrNotSent) || ran {
			t.Errorf("a request above the limit: %v, handler ran: %t, want ErrNotSent", err, ran)
		}
		var remote *RemoteError
		if _, err = a.Call(t.Context(), 2, "big", nil); !errors.As(err, &remote) || !strings.Contains(err.Error(), "at most 41943040") {
			t.Errorf("an answer above the limit: %v, want a RemoteError that names the limit", err)
		}
		b.call = func(_ context.Context, _ Peer, _ string, request []byte) ([]byte, error) { return request, nil }
		if answer, err := a.Call(t.Context(), 2, "big", make([]byte, MaxCall)); len(answer) != MaxCall || err != nil {
			t.Errorf("a call at the limit = %d bytes, %v", len(answer), err)
		}
	})
}

// TestNotSent: a request that never reached a peer may be sent to another node.
func TestNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a := start(t, net, member(1))
		a.SetPeers(map[uint32]Address{2: {"nowhere", "n2"}, 3: {"silent", "n3"}})
		net.cable("silent").silence(true)
		for _, c := range []struct {
			to   uint32
			wait time.Duration
			want string
		}{
			{9, time.Minute, "not a member"},
			{2, time.Minute, "connection refused"},
			{3, time.Second, "no connection in time"},
			{3, time.Minute, ""},
		} {
			began := time.Now()
			_, err := a.Call(within(t, c.wait), c.to, "claim", nil)
			if !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("call to %d = %v, want ErrNotSent with %q", c.to, err, c.want)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("call to %d took %v to fail", c.to, took)
			}
		}
		if _, err := a.Call(within(t, time.Second), 3, "claim", nil); !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, ErrNotSent) {
			t.Errorf("call to a silent node = %v", err)
		}
		a.Close()
		if _, err := a.Call(t.Context(), 2, "claim", nil); !errors.Is(err, ErrNotSent) {
			t.Errorf("call after Close = %v, want ErrNotSent", err)
		}
	})
}

// TestUnknown: a peer that dies, or is cut off, after the request has left may have handled it.
func TestUnknown(t *testing.T) {
	ends := map[string]func(b *node, net *network){
		"its connections are cut": func(_ *node, net *network) { net.cable("n2").cut() },
		"it closes":               func(b *node, _ *network) { b.Close() },
		"it is silent":            func(_ *node, net *network) { net.cable("n2").silence(true) },
		"we close":                nil,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *network) {
				a, b := pair(t, net)
				if end == nil {
					end = func(*node, *network) { a.Close() }
				}
				b.call = func(ctx context.Context, _ Peer, _ string, _ []byte) ([]byte, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				done := make(chan error, 1)
				go func() {
					_, err := a.Call(t.Context(), 2, "enqueue", []byte("x"))
					done <- err
				}()
				settle()
				began := time.Now()
				end(b, net)
				err := <-done
				var remote *RemoteError
				if err == nil || errors.Is(err, ErrNotSent) || errors.As(err, &remote) || errors.Is(err, context.Canceled) {
					t.Errorf("call = %v, want an error that leaves the outcome open", err)
				}
				if took := time.Since(began); took > pingEvery+pingWait {
					t.Errorf("the failure was detected after %v, want at most %v", took, pingEvery+pingWait)
				}
			})
		})
	}
}

// TestSentToDeadPeer: bytes handed to a connection whose peer is dead already count as sent.
func TestSentToDeadPeer(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		ran := false
		b.call = func(context.Context, Peer, string, []byte) ([]byte, error) { ran = true; return nil, nil }
		if _, err := a.Call(t.Context(), 2, "warm up", nil); err != nil {
			t.Fatal(err)
		}
		ran = false
		net.cable("n2").silence(true)
		_, err := a.Call(within(t, time.Second), 2, "enqueue", []byte("x"))
		if ran || errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("call = %v, handler ran: %t, want a deadline and not ErrNotSent", err, ran)
		}
	})
}

// TestDeadline: deadline and cancellation travel to the handler.
func TestDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		type seen struct {
			left time.Duration
			err  error
			at   time.Time
		}
		handled := make(chan seen, 1)
		b.call = func(ctx context.Context, _ Peer, _ string, _ []byte) ([]byte, error) {
			end, ok := ctx.Deadline()
			if !ok {
				end = time.Now()
			}
			left := time.Until(end)
			<-ctx.Done()
			handled <- seen{left, ctx.Err(), time.Now()}
			pass(time.Millisecond) // both sides have the same clock here, and the caller's deadline must win
			return nil, ctx.Err()
		}
		_, err := a.Call(within(t, 3*time.Second), 2, "wait", nil)
		s := <-handled
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotSent) || s.left < 2900*time.Millisecond ||
			s.left > 3*time.Second {
			t.Errorf("call = %v, its handler had %v left, want 3s", err, s.left)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		_, err = a.Call(ctx, 2, "wait", nil)
		s = <-handled
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrNotSent) || !errors.Is(s.err, context.Canceled) ||
			s.at.Sub(began) != time.Second {
			t.Errorf("call = %v, its handler %v after %v, want cancelled after 1s", err, s.err, s.at.Sub(began))
		}
	})
}

// TestCallAddress: a new node joins knowing only an address, becomes a member, and is then known as one.
func TestCallAddress(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a := start(t, net, member(1))
		fresh := start(t, net, Peer{Name: "n2"})
		who, answer, err := fresh.CallAddress(t.Context(), "n1", "join", []byte("me"))
		if err != nil || who != member(1) || string(answer) != "join me" {
			t.Errorf("join = %v, %q, %v", who, answer, err)
		}
		who, answer, err = a.CallAddress(t.Context(), "n2", "join", nil)
		if !errors.Is(err, ErrNotSent) || who != (Peer{}) || answer != nil || !strings.Contains(err.Error(),
			`this node, "n2", belongs to no cluster yet`) {
			t.Errorf("a call to a node without a cluster = %v, %q, %v", who, answer, err)
		}
		for _, method := range []string{"claim", ""} {
			if _, _, err = fresh.CallAddress(t.Context(), "n1", method, nil); !errors.Is(err, ErrNotSent) ||
				!strings.Contains(err.Error(), "may join ours") {
				t.Errorf("call %q from a node without a cluster = %v, want a refusal", method, err)
			}
		}
		a.call = func(context.Context, Peer, string, []byte) ([]byte, error) { return nil, errors.New("name in use") }
		var remote *RemoteError
		if who, _, err = fresh.CallAddress(t.Context(), "n1", "join", nil); who != member(1) || !errors.As(err, &remote) {
			t.Errorf("refused join = %v, %v", who, err)
		}
		a.call = nil
		fresh.become(member(2))
		fresh.SetPeers(map[uint32]Address{1: {"n1", "n1"}})
		if _, err := fresh.Call(t.Context(), 1, "claim", nil); err != nil {
			t.Errorf("call from the new member: %v", err)
		}
		if _, _, err = fresh.CallAddress(within(t, time.Second), "nowhere", "join", nil); !errors.Is(err, ErrNotSent) {
			t.Errorf("call to an unknown address = %v, want ErrNotSent", err)
		}
	})
}

// TestManyCalls: thousands of calls wait at the same time without blocking each other.
func TestManyCalls(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		a, b := pair(t, net)
		release := make(chan struct{})
		b.call = func(_ context.Context, _ Peer, method string, request []byte) ([]byte, error) {
			if method == "wait" {
				<-release
			}
			return request, nil
		}
		const n = 2000
		done := make(chan error, n)
		for range n {
			go func() {
				_, err := a.Call(t.Context(), 2, "wait", nil)
				done <- err
			}()
		}
		synctest.Wait()
		if _, err := a.Call(within(t, time.Second), 2, "quick", nil); err != nil {
			t.Errorf("a call while %d others wait: %v", n, err)
		}
		close(release)
		for range n {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}
