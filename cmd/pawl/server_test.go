package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/node"
)

// serveFake starts a server that answers each call as answer does, until the test ends.
func serveFake(t *testing.T, answer func(method string, stream grpc.ServerStream) error) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		return answer(method, stream)
	}))
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// server is a node in this process, in memory or in a directory.
type server struct {
	t      *testing.T
	addr   string
	client *pawl.Client
	stop   func()
}

func startServer(t *testing.T, cfg node.Config) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listener, cfg.MinFree = l, 1
	n, err := node.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, addr: l.Addr().String()}
	if s.client, err = pawl.Dial(s.addr); err != nil {
		t.Fatal(err)
	}
	s.stop = func() {
		if err := errors.Join(s.client.Close(), n.Stop(context.Background())); err != nil {
			t.Error(err)
		}
	}
	return s
}

// run runs a command line, which must end with the exit status.
func (s *server) run(status int, line ...string) (stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	if got := run(append(line, "--server", s.addr), strings.NewReader(""), &out, &errs); got != status {
		s.t.Errorf("pawl %s: status %d, want %d\n%s%s", strings.Join(line, " "), got, status, &out, &errs)
	}
	return out.String(), errs.String()
}

// state returns what commands can change. The audit log has an entry for each change by an operator.
func (s *server) state() string {
	s.t.Helper()
	ctx, a := s.t.Context(), admin.New(s.client)
	return listed(s.t, a.Tasks().List(ctx, admin.Filter{})) + listed(s.t, a.Schedules().List(ctx)) + listed(s.t, a.Operations().List(ctx)) +
		listed(s.t, a.Audit().List(ctx, admin.AuditFilter{}))
}

// listed returns a list as text.
func listed[T any](t *testing.T, list iter.Seq2[T, error]) (all string) {
	t.Helper()
	for item, err := range list {
		text, wrong := json.Marshal(item)
		if err = errors.Join(err, wrong); err != nil {
			t.Fatal(err)
		}
		all += string(text) + "\n"
	}
	return all
}

// tasks enqueues three tasks in a queue.
func (s *server) tasks(queue string, opts ...pawl.Option) (ids []string) {
	s.t.Helper()
	for range 3 {
		ref, err := s.client.Enqueue(s.t.Context(), pawl.RawTask{Type: "job"}, append(opts, pawl.Queue(queue))...)
		if err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, ref.ID)
	}
	return ids
}

func (s *server) ready(queue string) []string { return s.tasks(queue) }

func (s *server) scheduled(queue string) []string { return s.tasks(queue, pawl.In(time.Hour)) }

func (s *server) discarded(queue string) []string {
	ids := s.tasks(queue)
	for _, id := range ids {
		if _, err := admin.New(s.client).Tasks().Discard(s.t.Context(), id); err != nil {
			s.t.Fatal(err)
		}
	}
	return ids
}

func (s *server) dead(queue string) []string {
	ids, c := s.tasks(queue), claims.New(s.client)
	got, err := c.Claim(s.t.Context(), claims.Request{Queues: pawl.Strict{queue}, Max: len(ids)})
	if err != nil || len(got) != len(ids) {
		s.t.Fatalf("%d tasks were claimed: %v", len(got), err)
	}
	for _, claim := range got {
		if _, err := c.Fail(s.t.Context(), claim, pawl.DeadLetter(errors.New("down"))); err != nil {
			s.t.Fatal(err)
		}
	}
	return ids
}
