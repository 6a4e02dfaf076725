package visitor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
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
					t.Error("no client, and no error")
				}
				leave()
			}
		})
	}
	all.Wait()
	if n := len(v.known); n > maxVisitors+8 {
		t.Errorf("%d clients are kept, at most %d and those in use", n, maxVisitors)
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
		t.Errorf("a visitor that is here lost the client: %v", err)
	} else {
		leaveAgain()
	}
	leave()
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := v.Client(Visitor{host: "late"}); err == nil {
		t.Error("a closed door lets people in")
	}
}
