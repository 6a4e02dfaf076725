package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// words are the arguments of a step: those without a value are true.
type words map[string][]string

func wordsOf(d *datadriven.TestData) words {
	w := words{}
	for _, x := range d.CmdArgs {
		w[x.Key] = x.Vals
	}
	return w
}

func (w words) has(name string) bool { _, ok := w[name]; return ok }

func (w words) first(name string) string {
	if len(w[name]) == 0 {
		return ""
	}
	return w[name][0]
}

func (w words) number(name string) uint32 {
	n, _ := strconv.ParseUint(w.first(name), 10, 32)
	return uint32(n)
}

// destination parses a destination: queue=Q, with part if it is only a part of the request, or task=SHARD.
func (w words) destination() Destination {
	if w.has("task") {
		return OfShard(w.number("task"))
	}
	return Destination{queue: w.first("queue"), whole: w.has("queue") && !w.has("part")}
}

func (w words) stamp() stamp {
	return stamp{shard: w.number("shard"), stamped: w.has("shard"), leader: w.first("leader")}
}

// clusterMap parses map node=N cluster=C version=V nodes=(N,…) shards=(S:N,…).
func (w words) clusterMap() *pawlv1.GetMapResponse {
	m := &pawlv1.GetMapResponse{Node: w.first("node"), ClusterId: w.first("cluster"), Version: uint64(w.number("version"))}
	for _, name := range w["nodes"] {
		m.Nodes = append(m.Nodes, &pawlv1.MapNode{Name: name, ApiAddress: name + ":1"})
	}
	for _, x := range w["shards"] {
		shard, leader, _ := strings.Cut(x, ":")
		n, _ := strconv.ParseUint(shard, 10, 32)
		m.Shards = append(m.Shards, &pawlv1.MapShard{Shard: uint32(n), Leader: leader})
	}
	return m
}

// TestTopology checks what a client learns from answers and maps.
//
//	learn [queue=Q [part]] [task=SHARD] [from=NODE] shard=N [leader=NODE]   an answer; would it have been new?
//	forget, leader                                                         of such a destination
//	map [here] node=… cluster=… version=… nodes=(…) shards=(…)
func TestTopology(t *testing.T) {
	c := newTopology()
	datadriven.RunTest(t, "testdata/topology.txt", func(t *testing.T, d *datadriven.TestData) string {
		w, said := wordsOf(d), ""
		switch d.Cmd {
		case "learn":
			said = fmt.Sprintf("known before: %v\n", c.knows(w.destination(), w.first("from"), w.stamp()))
			c.learn(w.destination(), w.first("from"), w.stamp())
		case "forget":
			c.forget(w.destination(), w.first("node"))
		case "leader":
			return fmt.Sprintf("%q\n", c.leader(w.destination()))
		case "map":
			c.update(w.clusterMap(), w.has("here"))
		}
		if len(c.spread) > 0 {
			said += fmt.Sprintln("spread:", slices.Sorted(maps.Keys(c.spread)))
		}
		return said + fmt.Sprintf("here %q, queues %v, leaders %v, cluster %q at version %d, addresses %v\n", c.defaultNode,
			c.queues, c.leaders, c.cluster, c.version, c.addrs)
	})
}

// Queues beyond a limit replace each other.
func TestHintsAreBounded(t *testing.T) {
	c := newTopology()
	for i := range maxHints + 10 {
		c.learn(Destination{queue: fmt.Sprint(i), whole: true}, "n1", stamp{shard: 1, stamped: true})
		c.learn(Destination{queue: fmt.Sprint(i), whole: true}, "n1", stamp{shard: 2, stamped: true})
		if want := min(i+1, maxHints); len(c.queues) != want || len(c.spread) != want || c.queues[fmt.Sprint(i)] != 2 {
			t.Fatalf("after %d queues %d are remembered, want %d, the last in shard %d", i+1, len(c.queues), want, c.queues[fmt.Sprint(i)])
		}
	}
}

// Trailers and frames carry the same stamp of an answer, if it is valid.
func TestStamps(t *testing.T) {
	long := strings.Repeat("n", 256)
	for _, x := range []struct {
		shards, leaders []string
		want            stamp
	}{
		{nil, nil, stamp{}},
		{nil, []string{"n1"}, stamp{}},
		{[]string{"7"}, nil, stamp{7, true, ""}},
		{[]string{"7"}, []string{"n1"}, stamp{7, true, "n1"}},
		{[]string{"7"}, []string{long}, stamp{7, true, long}},
		{[]string{"7"}, []string{long + "n"}, stamp{7, true, ""}},
		{[]string{"4095"}, nil, stamp{4095, true, ""}},
		{[]string{"4096"}, []string{"n1"}, stamp{4096, false, ""}},
		{[]string{"x"}, []string{"n1"}, stamp{}},
		{[]string{"1", "2"}, []string{"n1"}, stamp{}},
		{[]string{"7"}, []string{"n1", "n2"}, stamp{7, true, ""}},
	} {
		if got := stampOf(metadata.MD{"pawl-shard": x.shards, "pawl-leader": x.leaders}); got.stamped != x.want.stamped || got.stamped &&
			got != x.want || got.leader != x.want.leader {
			t.Errorf("stampOf trailers %v %.9v: got %+v", x.shards, x.leaders, got)
		}
		var frame []*pawlv1.ShardStamp
		for i, s := range x.shards {
			n, err := strconv.Atoi(s)
			if err != nil || len(x.leaders) > 1 {
				frame = nil
				break
			}
			frame = append(frame, &pawlv1.ShardStamp{Shard: uint32(n)})
			if i < len(x.leaders) {
				frame[i].Leader = x.leaders[i]
			}
		}
		if got := stampOfFrame(frame); len(frame) > 0 && (got.stamped != x.want.stamped || got.leader != x.want.leader || got.stamped &&
			got.shard != x.want.shard) {
			t.Errorf("stampOfFrame %v: got %+v", frame, got)
		}
	}
}

func TestDestinations(t *testing.T) {
	const id = "00dc6acf-ac00-7001-8000-000000000001" // in shard 1
	own := OfShard(1)
	task := &pawlv1.TaskSpec{Queue: new("mail")}
	mail := Destination{queue: "mail", whole: true}
	shares := func(weights ...int32) (all []*pawlv1.QueueShare) {
		for i, n := range weights {
			all = append(all, &pawlv1.QueueShare{Queue: string(rune('a' + i)), Weight: n})
		}
		return all
	}
	for what, x := range map[string]struct {
		req  any
		want Destination
	}{
		"a task":              {&pawlv1.EnqueueRequest{Task: task}, mail},
		"the default queue":   {&pawlv1.EnqueueRequest{}, Destination{queue: "default", whole: true}},
		"a batch":             {&pawlv1.EnqueueBatchRequest{Tasks: []*pawlv1.TaskSpec{task, {Queue: new("b")}}}, mail},
		"an empty batch":      {&pawlv1.EnqueueBatchRequest{}, Destination{}},
		"a task's id":         {&pawlv1.GetTaskRequest{TaskId: id}, own},
		"no id":               {&pawlv1.GetTaskRequest{TaskId: "x"}, Destination{}},
		"of no shard":         {&pawlv1.GetServerRequest{}, Destination{}},
		"one queue":           {&pawlv1.ClaimRequest{Queues: shares(0)}, Destination{queue: "a", whole: true}},
		"no queue":            {&pawlv1.ClaimRequest{}, Destination{}},
		"queues in order":     {&pawlv1.ClaimRequest{Queues: shares(0, 0)}, Destination{queue: "a"}},
		"the heaviest first":  {&pawlv1.ClaimRequest{Queues: shares(7, 3)}, Destination{queue: "a"}},
		"the heaviest second": {&pawlv1.ClaimRequest{Queues: shares(3, 7, 5)}, Destination{queue: "b"}},
		"acks":                {&pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{{TaskId: id}}, Fails: []*pawlv1.FailRequest{{}}}, own},
		"fails": {&pawlv1.SettleRequest{Fails: []*pawlv1.FailRequest{{TaskId: id}}, Releases: []*pawlv1.ReleaseRequest{{}}},
			own},
		"releases": {&pawlv1.SettleRequest{Releases: []*pawlv1.ReleaseRequest{{TaskId: id}}, Extends: []*pawlv1.ExtendRequest{{}}},
			own},
		"extends":         {&pawlv1.SettleRequest{Extends: []*pawlv1.ExtendRequest{{TaskId: id}}}, own},
		"nothing settled": {&pawlv1.SettleRequest{}, Destination{}},
	} {
		got := destinationOf(x.req)
		if got != x.want || got.nowhere() != (x.want == Destination{}) && what != "no queue" {
			t.Errorf("%s: got %+v, nowhere %v, want %+v", what, got, got.nowhere(), x.want)
		}
	}
}

// notes are lines that any goroutine can write.
type notes struct {
	mu   sync.Mutex
	text string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text += fmt.Sprintf(format, args...)
}

func (n *notes) take() (text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text, n.text = n.text, ""
	return text
}

// fakeStream is the server side of a producer's stream.
type fakeStream struct {
	grpc.ClientStream
	said  *notes
	fails error         // of Send
	holds chan struct{} // blocks Send until it is closed
}

func (s *fakeStream) Send(r *pawlv1.ProduceRequest) error {
	if s.holds != nil {
		<-s.holds
	}
	s.said.add("sends %d\n", r.Number)
	return s.fails
}

func (s *fakeStream) Recv() (*pawlv1.ProduceResponse, error) { return nil, io.EOF }

func (s *fakeStream) CloseSend() error {
	s.said.add("closes\n")
	return nil
}

// TestFrames checks the frames of one stream and their results.
//
//	stream [opening]           a stream, or one that is not open yet
//	begin                      it is open
//	send FRAME [size=N]        a caller sends a frame
//	leave FRAME                its caller no longer waits
//	holds, reads               the server makes senders wait, or no longer does
//	fails                      from here on, sends fail
//	answer NUMBER… [draining]  the server answers
//	retire                     no more frames
//	pass D                     time passes
//	ends eof | CODE            the stream ends
func TestFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &frames{}
		datadriven.RunTest(t, "testdata/frames.txt", func(t *testing.T, d *datadriven.TestData) string {
			w.step(d.Cmd, wordsOf(d), d)
			synctest.Wait()
			return w.said.take() + w.sent.take() + w.state()
		})
	})
}

type frames struct {
	s      *frameStream
	stream *fakeStream
	of     map[string]*frame
	said   *notes // what happened to the stream
	sent   *notes // what callers got
}

func (w *frames) step(cmd string, a words, d *datadriven.TestData) {
	name := ""
	if len(d.CmdArgs) > 0 {
		name = d.CmdArgs[0].Key
	}
	switch cmd {
	case "stream":
		w.said, w.sent = &notes{}, &notes{}
		w.s, w.stream, w.of = &frameStream{frames: map[uint64]*frame{}}, &fakeStream{said: w.said}, map[string]*frame{}
		if !a.has("opening") {
			w.s.begin(w.stream)
		}
	case "begin":
		w.s.begin(w.stream)
	case "send":
		f := &frame{size: int(a.number("size")), done: make(chan struct{}, 1)}
		w.of[name] = f
		s, told := w.s, w.sent
		go func() { // the server may block it
			sent, err := s.send(f)
			told.add("%s: sent %v, error %v\n", name, sent, err)
		}()
	case "leave":
		w.s.leave(w.of[name])
	case "holds":
		w.stream.holds = make(chan struct{})
	case "reads":
		close(w.stream.holds)
	case "fails":
		w.stream.fails = io.EOF
	case "answer":
		r := &pawlv1.ProduceResponse{Draining: a.has("draining")}
		for _, x := range d.CmdArgs {
			if n, err := strconv.ParseUint(x.Key, 10, 64); err == nil {
				r.Answers = append(r.Answers, &pawlv1.ProduceAnswer{Number: n})
			}
		}
		w.s.received(r)
	case "retire":
		w.s.retire()
	case "pass":
		pause, _ := time.ParseDuration(name)
		time.Sleep(pause)
	case "ends":
		w.s.end(map[string]error{"eof": io.EOF, "unauthenticated": status.Error(codes.Unauthenticated, "no"),
			"permission_denied": status.Error(codes.PermissionDenied, "no"), "unavailable": status.Error(codes.Unavailable, "no")}[name])
	}
}

func (w *frames) state() (said string) {
	for _, name := range slices.Sorted(maps.Keys(w.of)) {
		f := w.of[name]
		select {
		case <-f.done:
			said += fmt.Sprintf("%s: answered %v, error %v, again %v\n", name, f.answer != nil, f.err, f.again)
		default:
		}
	}
	s := w.s
	return said + fmt.Sprintf("takes frames %v, served %v, under way %v, %d bytes, %d wait to be sent\n", !s.over.Load(), s.served,
		slices.Sorted(maps.Keys(s.frames)), s.unanswered, len(s.queue))
}

// The credentials of a call have what is set, or report that a token can't be had.
func TestCredentials(t *testing.T) {
	token := func() (string, error) { return "secret", nil }
	none := func() (string, error) { return "", errors.New("no such file") }
	for _, x := range []struct {
		c    caller
		want string
	}{
		{caller{}, "map[] <nil>"},
		{caller{namespace: "a"}, "map[pawl-namespace:a] <nil>"},
		{caller{token: token}, "map[authorization:Bearer secret] <nil>"},
		{caller{token: token, namespace: "a"}, "map[authorization:Bearer secret pawl-namespace:a] <nil>"},
		{caller{token: none, namespace: "a"}, "map[] rpc error: code = Unauthenticated desc = no token: no such file"},
	} {
		md, err := x.c.GetRequestMetadata(context.Background())
		if got := fmt.Sprint(md, " ", err); got != x.want {
			t.Errorf("namespace %q: got %s, want %s", x.c.namespace, got, x.want)
		}
	}
}
