package visitor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestVisitorsComeAndGo has more concurrent visitors than clients are kept, and then closes them all.
func TestVisitorsComeAndGo(t *testing.T) {
	v := NewClients(func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed }, slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 3 * maxVisitors {
				client, leave, err := v.Client(Visitor{host: "h", Name: fmt.Sprint(n, i%2)})
				if err != nil {
					t.Error(err)
					return
				}
				if client == nil {
					t.Error("Client returned neither a client nor an error")
				}
				leave()
			}
		})
	}
	all.Wait()
	if n := len(v.known); n != maxVisitors {
		t.Errorf("%d clients are kept, want %d", n, maxVisitors)
	}
	held, leave, err := v.Client(Visitor{host: "held"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 * maxVisitors {
		_, leave, err := v.Client(Visitor{host: fmt.Sprint(n)})
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	if again, leaveAgain, err := v.Client(Visitor{host: "held"}); err != nil || again != held {
		t.Errorf("Client returned another client while the first was in use: %v", err)
	} else {
		leaveAgain()
	}
	leave()
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := v.Client(Visitor{host: "late"}); err == nil {
		t.Error("Client succeeded after Close")
	}
}

// Visitors who came all at once, and those who have not returned, leave no clients behind.
func TestDepartedVisitors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewClients(func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed }, slog.New(slog.DiscardHandler))
		defer v.Close()
		began := time.Now()
		var left []func()
		for n := range 10 * maxVisitors {
			_, leave, err := v.Client(Visitor{host: fmt.Sprint(n)})
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, leave)
		}
		_, leave, err := v.Client(Visitor{host: "stays"})
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		for _, leave := range left {
			leave()
		}
		kept := func() int {
			v.mu.Lock()
			defer v.mu.Unlock()
			return len(v.known)
		}
		if n := kept(); n != maxVisitors+1 {
			t.Errorf("after %d visitors left, %d clients are kept, want %d", len(left), n, maxVisitors+1)
		}
		time.Sleep(maxIdle / 2)
		if _, again, err := v.Client(Visitor{host: fmt.Sprint(10*maxVisitors - 1)}); err != nil {
			t.Error(err)
		} else {
			again()
		}
		for _, c := range []struct {
			at   time.Duration
			want int
		}{{maxIdle - time.Second, maxVisitors + 1}, {maxIdle, 2}, {maxIdle*3/2 - time.Second, 2}, {maxIdle * 3 / 2, 1}} {
			time.Sleep(time.Until(began.Add(c.at)))
			synctest.Wait()
			if n := kept(); n != c.want {
				t.Errorf("after %v, %d clients are kept, want %d", c.at, n, c.want)
			}
		}
	})
}
