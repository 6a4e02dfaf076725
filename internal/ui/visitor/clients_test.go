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
					t.Error("Client returned neither a client nor an error")
				}
				leave()
			}
		})
	}
	all.Wait()
	if n := len(v.known); n > maxVisitors+8 {
		t.Errorf("%d clients are kept, want at most %d and those in use", n, maxVisitors)
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
