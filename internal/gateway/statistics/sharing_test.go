package statistics

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/task"
)

// viewer returns the context of a call: from a page of the web UI, or over gRPC.
func viewer(ctx context.Context, page bool, namespace string, began int64, rights auth.Rights) context.Context {
	ctx, call := callinfo.Begin(ctx, task.InterfaceGRPC, "test")
	call.Namespace, call.Began, call.Principal = namespace, time.Unix(began, 0),
		callinfo.Principal{Principal: &auth.Principal{Rights: rights}}
	if page {
		return peer.NewContext(ctx, &peer.Peer{Addr: listen.InProcessAddr("")})
	}
	return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}})
}

// Pages of the web UI that want the same figures at the same time, or a moment later, share a read. Programs do not.
func TestViewersShareReads(t *testing.T) {
	const page, program = true, false
	one := auth.Rights{Namespace: "shop", Roles: auth.Observe}
	few := auth.Rights{Namespace: "shop", Roles: auth.Observe, Queues: []string{"mail"}}
	none := auth.Rights{Namespace: "shop", Roles: auth.Observe, Queues: []string{}}
	type call struct {
		after time.Duration // since the one before
		page  bool
		ns    string
		began int64
		of    auth.Rights
		what  string
		reads int // so far
	}
	for name, calls := range map[string][]call{
		"two pages at once":            {{0, page, "shop", 1, one, "a", 1}, {0, page, "shop", 1, one, "a", 1}},
		"a page and a program at once": {{0, page, "shop", 1, one, "a", 1}, {0, program, "shop", 1, one, "a", 2}},
		"a program, then a page":       {{0, program, "shop", 1, one, "a", 1}, {0, page, "shop", 1, one, "a", 2}},
		"while it is read":             {{0, page, "shop", 1, one, "a", 1}, {time.Second - 1, page, "shop", 1, one, "a", 1}},
		"soon after the answer": {{0, page, "shop", 1, one, "a", 1}, {time.Second + sharedFor - 1, page, "shop", 1, one, "a", 1},
			{1, page, "shop", 1, one, "a", 2}},
		"no queue at all":              {{0, page, "shop", 1, one, "a", 1}, {0, page, "shop", 1, none, "a", 2}},
		"other figures":                {{0, page, "shop", 1, one, "a", 1}, {0, page, "shop", 1, one, "b", 2}},
		"another namespace":            {{0, page, "shop", 1, one, "a", 1}, {0, page, "bank", 1, one, "a", 2}},
		"a later one of the same name": {{0, page, "shop", 1, one, "a", 1}, {0, page, "shop", 2, one, "a", 2}},
		"fewer queues":                 {{0, page, "shop", 1, one, "a", 1}, {0, page, "shop", 1, few, "a", 2}},
		"rights in all namespaces":     {{0, page, "shop", 1, one, "a", 1}, {0, page, "shop", 1, auth.Everything, "a", 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s Sharing
				var mu sync.Mutex
				var all sync.WaitGroup
				reads := 0
				for _, c := range calls {
					time.Sleep(c.after)
					ctx, cancel := context.WithCancel(viewer(t.Context(), c.page, c.ns, c.began, c.of))
					all.Go(func() {
						got, err := share(ctx, &s, c.what, func(ctx context.Context) (string, error) {
							mu.Lock()
							reads++
							mu.Unlock()
							time.Sleep(time.Second)
							return c.what, ctx.Err()
						})
						if got != c.what || err != nil {
							t.Errorf("share = %q, %v, want %q", got, err, c.what)
						}
					})
					defer cancel()
					synctest.Wait()
					mu.Lock()
					if reads != c.reads {
						t.Errorf("%d reads, want %d", reads, c.reads)
					}
					mu.Unlock()
				}
				all.Wait()
				time.Sleep(sharedFor)
				synctest.Wait()
				if len(s.reads) != 0 {
					t.Errorf("%d reads are kept after all have ended, want none", len(s.reads))
				}
			})
		})
	}
}

// A read goes on when its viewer goes away, and a viewer who goes away waits for none.
func TestViewersWhoGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Sharing
		read := func(ctx context.Context) (string, error) { time.Sleep(time.Second); return "a", ctx.Err() }
		began := time.Now()
		look := func(after time.Duration) func() (string, error) {
			ctx, cancel := context.WithCancel(viewer(t.Context(), true, "shop", 1, auth.Everything))
			time.AfterFunc(after, cancel)
			return func() (string, error) { return share(ctx, &s, "a", read) }
		}
		var all sync.WaitGroup
		all.Go(func() { _, _ = look(time.Second / 4)() })
		synctest.Wait()
		all.Go(func() {
			if got, err := look(time.Second / 2)(); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second/2 {
				t.Errorf("a viewer who goes away got %q, %v after %s", got, err, time.Since(began))
			}
		})
		all.Go(func() {
			if got, err := look(time.Hour)(); got != "a" || err != nil {
				t.Errorf("a viewer who stays got %q, %v", got, err)
			}
		})
		all.Wait()
		time.Sleep(time.Hour)
	})
}

// A read that fails, or panics, is shared only while it lasts.
func TestFailedReadsAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Sharing
		ctx, bad := viewer(t.Context(), true, "shop", 1, auth.Everything), errors.New("bad")
		if got, err := share(ctx, &s, "a", func(context.Context) (int, error) { return 0, bad }); got != 0 || err != bad {
			t.Errorf("share = %d, %v, want %v", got, err, bad)
		}
		if got, err := share(ctx, &s, "a", func(context.Context) (int, error) { panic("bad") }); got != 0 || err == nil {
			t.Errorf("share of a read that panics = %d, %v, want an error", got, err)
		}
		if got, err := share(ctx, &s, "a", func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
			t.Errorf("share = %d, %v, want 7", got, err)
		}
	})
}
