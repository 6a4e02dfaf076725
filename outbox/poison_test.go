package outbox_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
)

// A server without Pawl's calls, as a load balancer without a route to one is, has refused no row: the rows wait.
func TestRelayToAnotherServer(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	pipe, server := bufconn.Listen(1<<16), grpc.NewServer()
	go func() { _ = server.Serve(pipe) }()
	t.Cleanup(server.Stop)
	client, err := pawl.Dial("another", pawl.DialOptions{Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
		return pipe.DialContext(ctx)
	}})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	enqueue(t, box, db, receipt{"1"})
	enqueue(t, box, db, receipt{"2"})
	log := &warnings{Handler: slog.DiscardHandler}
	r, stop := startRelay(t, box, client, outbox.RelayConfig{Logger: slog.New(log)})
	eventually(t, "the relay has tried", func() bool { return log.take("rows can't be enqueued") > 0 || r.Stats().Dead > 0 })
	stop()
	if dead := r.Stats().Dead; dead != 0 || rowsLeft(t, db) != 2 {
		t.Errorf("%d rows are dead and %d are left, want 0 and 2", dead, rowsLeft(t, db))
	}
}

// A row that another program wrote with a time that can't be read does not block the others.
func TestRelayWithUnreadableTime(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	client := pawltest.New(t).Client(t)
	exec(t, db, `INSERT INTO pawl_outbox (id, queue, task, created_at) VALUES ('0198c5a3-7ac1-7000-8000-000000000001', 'default', `+
		`'{"type":"a","payload":{"order":"1"}}', '1764379763000')`)
	enqueue(t, box, db, receipt{"2"})
	if s, err := box.Status(t.Context(), 0); err != nil || s.Waiting != 2 {
		t.Errorf("Status = %+v, %v, want two rows", s, err)
	}
	startRelay(t, box, client, outbox.RelayConfig{})
	eventually(t, "all rows are enqueued", func() bool { return rowsLeft(t, db) == 0 })
	if got := orders(t, client, "default"); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the tasks are %v, want both", got)
	}
}

// A queue that is full but for one row at a time is warned of once, not with every row.
func TestRelayWarnsOfAQueueOnce(t *testing.T) {
	db := openDB(t, outbox.SQLite)
	box := newBox(t, outbox.SQLite, db)
	for range 6 {
		enqueue(t, box, db, receipt{"1"})
	}
	var text lockedBuffer
	startRelay(t, box, &broken{before: func(items []pawl.Item) []pawl.Enqueued {
		got := all(items, &pawltype.Error{Code: pawl.ErrQueueFull})
		got[0] = pawl.Enqueued{Ref: &pawl.Ref{}}
		return got
	}}, outbox.RelayConfig{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	eventually(t, "all rows are enqueued", func() bool { return rowsLeft(t, db) == 0 })
	if log := text.String(); strings.Count(log, "are delayed") != 1 || !strings.Contains(log, "queue=default") {
		t.Errorf("the log has not one warning of the queue: %s", log)
	}
}
