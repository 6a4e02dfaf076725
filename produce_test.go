package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// wantStreams checks how many producers' streams have been opened, and how many are open.
func (f *fake) wantStreams(t *testing.T, what string, opened, open int) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened != opened || len(f.producers) != open {
		t.Errorf("%s: %d streams were opened and %d are open, want %d and %d", what, f.opened, len(f.producers), opened, open)
	}
}

// endProducers ends the producers' streams like a server does.
func (f *fake) endProducers(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.producers {
		s.cut <- err
	}
}

// enqueued enqueues a task in the background.
func enqueued(ctx context.Context, client *pawl.Client, queue string) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := client.Enqueue(ctx, welcome{}, pawl.Queue(queue))
		done <- err
	}()
	synctest.Wait()
	return done
}

func mustEnqueue(t *testing.T, client *pawl.Client) {
	t.Helper()
	if err := <-enqueued(t.Context(), client, "default"); err != nil {
		t.Fatal(err)
	}
}

// All enqueues use one stream. It is closed when nothing was sent for a while, and reopened by the next enqueue.
func TestEnqueuesShareAStream(t *testing.T) {
	for _, opts := range [][]pawl.DialOptions{nil, {pawl.DialOptions{NoRouting: true}}} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t, append(opts, pawl.DialOptions{RetryFor: -1})...)
			f.wantStreams(t, "before", 0, 0)
			for range 10 {
				mustEnqueue(t, client)
				time.Sleep(20 * time.Second)
			}
			if _, err := client.EnqueueBatch(t.Context(), []pawl.Item{{Args: welcome{}}, {Args: welcome{}}}); err != nil {
				t.Error(err)
			}
			f.wantStreams(t, "while it is used", 1, 1)
			time.Sleep(time.Minute)
			f.wantStreams(t, "when it was idle", 1, 0)
			mustEnqueue(t, client)
			f.wantStreams(t, "when it is used again", 2, 1)
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			f.wantStreams(t, "in the end", 2, 0)
			if len(f.tasks) != 13 {
				t.Errorf("got %d tasks, want 13", len(f.tasks))
			}
		})
	}
}

// A slow frame delays no other, and keeps its stream open.
func TestFramesAreAnsweredInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		hold := make(chan struct{})
		slow := true
		f.before = func(string) error {
			if slow {
				slow = false
				<-hold
			}
			return nil
		}
		first := enqueued(t.Context(), client, "default")
		mustEnqueue(t, client)
		time.Sleep(time.Hour)
		if len(first) > 0 {
			t.Error("the first call returned before its frame was answered")
		}
		close(hold)
		if err := <-first; err != nil {
			t.Error(err)
		}
		f.wantStreams(t, "in the end", 1, 1)
	})
}

// Enqueues to a shard that does not answer hold up none to another, whether or not the client knows yet which shards there are.
func TestHungShardHoldsUpNoOther(t *testing.T) {
	for _, leader := range []string{"n1", "n2"} {
		for _, warm := range [][]string{nil, {"live"}, {"live", "hung"}} {
			synctest.Test(t, func(t *testing.T) {
				c := startNodes(t)
				c.lead(2, leader)
				c.homes["hung"] = 2
				client := c.client("n1:7295")
				for _, queue := range warm {
					if err := <-enqueued(t.Context(), client, queue); err != nil {
						t.Fatal(err)
					}
				}
				hold := make(chan struct{})
				c.trailers = func(md metadata.MD) metadata.MD {
					if md.Get("pawl-shard")[0] == "2" {
						<-hold
					}
					return md
				}
				var hung []chan error
				for range 20 {
					hung = append(hung, enqueued(t.Context(), client, "hung"))
				}
				for n := range 150 { // those below are not gathered
					if live := enqueued(t.Context(), client, "live"); len(live) == 0 {
						t.Errorf("a client that knows %v, while a shard of %s hangs: an enqueue to another shard waits behind 20 and %d",
							warm, leader, n)
						break
					}
					done := make(chan error, 1)
					hung = append(hung, done)
					go func() {
						_, err := client.EnqueueBatch(t.Context(),
							[]pawl.Item{{Args: welcome{}, Options: []pawl.Option{pawl.Queue("hung")}}})
						done <- err
					}()
				}
				close(hold)
				for _, done := range hung {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				synctest.Wait()
				if n := len(c.f.producers); n > 2 { // one at each node
					t.Errorf("%d streams are left", n)
				}
			})
		}
	}
}

// The connection breaks between a frame and its answer: the frame is sent again with the same request ids, and its
// tasks are created once. A client without retries gets an error, since the frame may or may not have been handled.
func TestCutBetweenFrameAndAnswer(t *testing.T) {
	for _, n := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			items := make([]pawl.Item, n)
			for i := range items {
				items[i].Args = welcome{}
			}
			once := true
			f.after = func(string) error {
				if once {
					once = false
					f.cut()
					return errMute
				}
				return nil
			}
			out, err := client.EnqueueBatch(t.Context(), items)
			if err != nil || len(f.tasks) != n || len(f.enqueues) != 2 {
				t.Errorf("%d tasks were created in %d requests (%v), want %d in 2", len(f.tasks), len(f.enqueues), err, n)
			}
			for i, e := range out {
				if e.Err != nil || !e.Ref.Duplicate || f.enqueues[0][i].GetRequestId() != f.enqueues[1][i].GetRequestId() {
					t.Errorf("item %d: %+v, with the requests %v and %v, want a duplicate with the same request id", i, e,
						f.enqueues[0][i], f.enqueues[1][i])
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t, pawl.DialOptions{RetryFor: -1})
		f.after = func(string) error { f.cut(); return errMute }
		_, err := client.Enqueue(t.Context(), welcome{})
		wantErr(t, "without repeats", err, pawltype.ErrUnavailable)
	})
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t, pawl.DialOptions{RetryFor: -1})
		f.before = func(string) error { return errMute }
		lost := enqueued(t.Context(), client, "default")
		f.endProducers(nil)
		wantErr(t, "the server ends the stream without an answer", <-lost, pawltype.ErrUnavailable)
	})
}

// A stream that breaks while it is idle has no effect on its user, with or without retries.
func TestIdleStreamBreaks(t *testing.T) {
	for what, breaks := range map[string]func(*fake){
		"the connection is cut":     (*fake).cut,
		"the server ends it":        func(f *fake) { f.endProducers(nil) },
		"the server gives it up":    func(f *fake) { f.endProducers(errUnavailable) },
		"the token has ended":       func(f *fake) { f.endProducers(status.Error(codes.Unauthenticated, "revoked")) },
		"a proxy ends it, in a way": func(f *fake) { f.endProducers(status.Error(codes.Internal, "RST_STREAM")) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t, pawl.DialOptions{RetryFor: -1})
			mustEnqueue(t, client)
			breaks(f)
			synctest.Wait()
			if err := <-enqueued(t.Context(), client, "default"); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			f.wantStreams(t, what, 2, 1)
		})
	}
}

// A stream starts with a token. The next enqueue uses a new token, over another stream. Frames in flight are still answered.
func TestNewTokenOpensNewStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, fails := "one", error(nil)
		f, client := start(t, pawl.DialOptions{RetryFor: -1, TokenSource: func() (string, error) { return token, fails }})
		hold := make(chan struct{})
		f.before = func(string) error {
			f.mu.Lock()
			old := f.token == "Bearer one"
			f.mu.Unlock()
			if old {
				<-hold
			}
			return nil
		}
		first := enqueued(t.Context(), client, "default")
		token = "two"
		mustEnqueue(t, client)
		mustEnqueue(t, client)
		f.wantStreams(t, "the first is under way", 2, 2)
		close(hold)
		if err := <-first; err != nil || f.token != "Bearer two" {
			t.Errorf("the first call: %v, and the last token is %q", err, f.token)
		}
		f.wantStreams(t, "the first is answered", 2, 1)
		fails = errors.New("no such file")
		err := <-enqueued(t.Context(), client, "default")
		wantErr(t, "without a token", err, pawltype.ErrUnauthenticated)
		if len(f.tasks) != 3 || !strings.Contains(fmt.Sprint(err), "no such file") {
			t.Errorf("got %d tasks, want 3, and the error %v", len(f.tasks), err)
		}
	})
}

// A token expires while a frame is in flight that the server has not started. The frame is sent over a stream with the
// token that is valid by then. If there is none, the caller gets the error immediately.
func TestTokenExpiresInFlight(t *testing.T) {
	for _, good := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			mustEnqueue(t, client)
			f.set(func() { f.before = func(string) error { return errMute } })
			lost := enqueued(t.Context(), client, "default")
			f.set(func() {
				f.before = nil
				if !good {
					f.greetProducer = status.Error(codes.Unauthenticated, "no such token")
				}
			})
			f.endProducers(status.Error(codes.Unauthenticated, "revoked"))
			synctest.Wait()
			if len(lost) == 0 {
				t.Fatal("the call did not return immediately")
			}
			switch err := <-lost; {
			case good && err != nil, !good && (!errors.Is(err, pawltype.ErrUnauthenticated) ||
				!strings.Contains(err.Error(), "no such token")):
				t.Errorf("with a valid new token %v: got %v", good, err)
			}
		})
	}
}

// A stream that ends before it has answered anything was refused. The callers of its frames get the error, and there is no retry.
func TestRefusedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		f.before = func(string) error { return errMute }
		refused := enqueued(t.Context(), client, "default")
		f.endProducers(status.Error(codes.Unauthenticated, "no such token"))
		synctest.Wait()
		if len(refused) == 0 {
			t.Fatal("the call did not return immediately")
		}
		wantErr(t, "a stream that was refused", <-refused, pawltype.ErrUnauthenticated)
		f.wantStreams(t, "in the end", 1, 0)
	})
}

// A node that shuts down gets no more frames, and answers those that it has.
func TestProducerLeavesDrainingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t, pawl.DialOptions{RetryFor: -1})
		mustEnqueue(t, client)
		hold := make(chan struct{})
		f.set(func() { f.before = func(string) error { <-hold; return nil } })
		first := enqueued(t.Context(), client, "default")
		f.mu.Lock()
		f.before = nil
		for s := range f.producers {
			s.send(&pawlv1.ProduceResponse{Draining: true})
		}
		f.mu.Unlock()
		synctest.Wait()
		mustEnqueue(t, client)
		f.wantStreams(t, "while a frame is under way at the node that drains", 2, 2)
		close(hold)
		if err := <-first; err != nil {
			t.Error(err)
		}
		f.wantStreams(t, "when it is answered", 2, 1)
	})
}

// When a caller's context ends, its call returns, and the other calls are not affected.
func TestCallerAbandonsFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t, pawl.DialOptions{RetryFor: -1})
		hold := make(chan struct{})
		f.before = func(string) error { <-hold; return nil }
		ctx, cancel := context.WithCancel(t.Context())
		first, second := enqueued(ctx, client, "default"), enqueued(t.Context(), client, "default")
		cancel()
		wantErr(t, "who left", <-first, context.Canceled)
		close(hold)
		if err := <-second; err != nil {
			t.Errorf("the call of another caller: %v", err)
		}
		f.wantStreams(t, "in the end", 1, 1)
	})
}

// A server that does not read delays neither a caller that gives up nor Close. When it reads again, all frames whose
// callers still wait are sent, and no others.
func TestServerDoesNotRead(t *testing.T) {
	for _, closes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			mustEnqueue(t, client)
			paused := make(chan struct{})
			f.set(func() { f.paused = paused })
			mustEnqueue(t, client) // after this its reader sees the hook
			large := pawl.RawTask{Type: "large", ContentType: "b", Payload: make([]byte, 3<<20)}
			var batches []chan error
			for range 3 {
				done := make(chan error, 1)
				go func() {
					_, err := client.EnqueueBatch(t.Context(), []pawl.Item{{Args: large}})
					done <- err
				}()
				synctest.Wait()
				batches = append(batches, done)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			leaves := enqueued(ctx, client, "leaves")
			stays := enqueued(t.Context(), client, "stays")
			time.Sleep(time.Second)
			synctest.Wait()
			if len(leaves) == 0 {
				t.Fatal("the call did not return although its context had ended")
			}
			wantErr(t, "who leaves", <-leaves, context.DeadlineExceeded)
			if closes {
				client.Close()
				for _, done := range append(batches, stays) {
					wantErr(t, "after Close", <-done, pawltype.ErrClosed)
				}
				close(paused)
				return
			}
			f.mu.Lock()
			for s := range f.producers {
				s.send(&pawlv1.ProduceResponse{Draining: true}) // so that the stream is closed by the code that sends the rest
			}
			f.mu.Unlock()
			synctest.Wait()
			close(paused)
			for i, done := range append(batches, stays) {
				if err := <-done; err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			}
			for _, task := range f.tasks {
				if task.spec.GetQueue() == "leaves" {
					t.Error("a frame was sent although its caller had given up")
				}
			}
			f.wantStreams(t, "in the end", 1, 0)
		})
	}
}

// Close ends calls in flight.
func TestCloseEndsFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		f.before = func(string) error { return errMute }
		under := enqueued(t.Context(), client, "default")
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, "under way", <-under, pawltype.ErrClosed)
		wantErr(t, "afterwards", <-enqueued(t.Context(), client, "default"), pawltype.ErrClosed)
	})
}

// A batch that is larger than a message is refused, and the stream stays usable for others.
func TestBatchLargerThanMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		hold := make(chan struct{})
		f.before = func(string) error { <-hold; return nil }
		other := enqueued(t.Context(), client, "default")
		large := pawl.RawTask{Type: "large", ContentType: "b", Payload: make([]byte, 9<<20)}
		out, err := client.EnqueueBatch(t.Context(), []pawl.Item{{Args: large, Options: []pawl.Option{pawl.Then(large)}}})
		if err != nil || !errors.Is(out[0].Err, pawltype.ErrPayloadTooLarge) {
			t.Errorf("enqueuing a task of 18 MiB: %+v, %v, want ErrPayloadTooLarge", out, err)
		}
		close(hold)
		if err := <-other; err != nil {
			t.Errorf("another frame of the stream: %v", err)
		}
		f.wantStreams(t, "in the end", 1, 1)
	})
}

// A server without Produce gets calls, and is tried again after a while.
func TestServerWithoutProduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t, pawl.DialOptions{RetryFor: -1})
		f.greetProducer = status.Error(codes.Unimplemented, "unknown method Produce")
		for range 3 {
			mustEnqueue(t, client)
		}
		f.wantStreams(t, "calls", 1, 0)
		f.set(func() { f.greetProducer = nil })
		time.Sleep(2 * time.Minute)
		mustEnqueue(t, client)
		f.wantStreams(t, "after the server was upgraded", 2, 1)
		if len(f.tasks) != 4 {
			t.Errorf("got %d tasks, want 4", len(f.tasks))
		}
	})
}
