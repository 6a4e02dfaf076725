package encrypt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltype"
)

// server is a broker that keeps the last request, and returns configured answers.
type server struct {
	rpc.Conn
	asked  int // number of WhoAmI calls
	got    any
	answer proto.Message
	task   *pawlv1.Task // returned by GetTask
	fails  error        // fails the call with this name
	failed string
}

// Invoke implements rpc.Conn.
func (s *server) Invoke(_ context.Context, method string, req, resp any, _ ...grpc.CallOption) error {
	if s.failed != "" && strings.HasSuffix(method, s.failed) {
		return s.fails
	}
	switch r := resp.(type) {
	case *pawlv1.WhoAmIResponse:
		s.asked++
		r.Namespace = "team"
	case *pawlv1.GetTaskResponse:
		r.Task = s.task
	default:
		s.got = req
		if s.answer != nil {
			proto.Merge(resp.(proto.Message), s.answer)
		}
	}
	return nil
}

func ring(t *testing.T, cfg keyring.Config, ids ...string) *keyring.Keyring {
	t.Helper()
	for _, id := range ids {
		cfg.Keys = append(cfg.Keys, keyring.Key{ID: id, Secret: bytes.Repeat([]byte(id[len(id)-1:]), 32)})
	}
	k, err := keyring.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var secret = []byte(`"secret"`)

// Each request with contents of a task is sent encrypted, and left unchanged for its caller. Others are sent unchanged, without
// asking for the namespace.
func TestRequestsAreSealed(t *testing.T) {
	spec := func() *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Queue: new("mail"), Payload: secret} }
	for what, x := range map[string]struct {
		req    proto.Message
		sealed bool
	}{
		"a task": {&pawlv1.EnqueueRequest{Task: spec()}, true},
		"a task with headers": {&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Payload: secret,
			Headers: map[string]string{"a": "b"}}}, true},
		"a group": {&pawlv1.CreateGroupRequest{Tasks: []*pawlv1.TaskSpec{spec()}, OnSuccess: spec()}, true},
		"a batch": {&pawlv1.EnqueueBatchRequest{Tasks: []*pawlv1.TaskSpec{spec(), spec()}}, true},
		"a chain": {&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Payload: secret,
			Then: []*pawlv1.TaskSpec{spec(), spec()}}}, true},
		"a schedule": {&pawlv1.PutScheduleRequest{Spec: &pawlv1.ScheduleSpec{Name: "nightly", Task: spec()}}, true},
		"a result":   {&pawlv1.AckRequest{TaskId: "1", Result: secret}, true},
		"results": {&pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{{TaskId: "1", Result: secret},
			{TaskId: "2", Result: secret}}}, true},
		"no result":               {&pawlv1.AckRequest{TaskId: "1"}, false},
		"a checkpoint":            {&pawlv1.ExtendRequest{TaskId: "1", Checkpoint: secret}, true},
		"no checkpoint":           {&pawlv1.ExtendRequest{TaskId: "1"}, false},
		"a once key":              {&pawlv1.FinishOnceRequest{Key: "k", Result: secret}, true},
		"another payload":         {&pawlv1.UpdateTaskRequest{TaskId: "1", Payload: secret}, true},
		"another priority":        {&pawlv1.UpdateTaskRequest{TaskId: "1", Priority: pawlv1.Priority_PRIORITY_LOW}, false},
		"a task that is asked of": {&pawlv1.GetTaskRequest{TaskId: "1"}, false},
	} {
		s := &server{task: &pawlv1.Task{Type: "a", Queue: "mail", ContentType: "application/vnd.pawl.encrypted; key=k1"}}
		over, before := Over(s, ring(t, keyring.Config{}, "k1"), ""), proto.Clone(x.req)
		for range 2 {
			if err := over.Invoke(t.Context(), "/x", x.req, &pawlv1.SettleResponse{}); err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			if !proto.Equal(x.req, before) {
				t.Errorf("%s: the caller's request was changed to %v", what, x.req)
			}
			wire, _ := proto.Marshal(s.got.(proto.Message))
			if changed := !proto.Equal(s.got.(proto.Message), before); changed != x.sealed || bytes.Contains(wire, []byte("secret")) {
				t.Errorf("%s: sealed = %v, want %v: %v", what, changed, x.sealed, s.got)
			}
		}
		if _, get := x.req.(*pawlv1.GetTaskRequest); s.asked > 1 || get && s.asked > 0 {
			t.Errorf("%s: WhoAmI was called %d times", what, s.asked)
		}
	}
}

// A changed payload is encrypted if the old one was, and if that can't be determined, the error is returned.
func TestChangesAreSealedAsBefore(t *testing.T) {
	req := &pawlv1.UpdateTaskRequest{TaskId: "1", Payload: secret}
	s := &server{task: &pawlv1.Task{Type: "a", Queue: "mail"}}
	over := Over(s, ring(t, keyring.Config{}, "k1"), "team")
	if err := over.Invoke(t.Context(), "/x", req, &pawlv1.UpdateTaskResponse{}); err != nil || !proto.Equal(s.got.(proto.Message), req) {
		t.Errorf("a change of a plain task: %v, sent %v", err, s.got)
	}
	boom := errors.New("boom")
	for _, failed := range []string{"WhoAmI", "GetTask"} {
		s := &server{failed: failed, fails: boom}
		if err := Over(s, ring(t, keyring.Config{}, "k1"), "").Invoke(t.Context(), "/x", req, &pawlv1.UpdateTaskResponse{}); !errors.Is(err,
			boom) || s.got != nil {
			t.Errorf("with a failing %s: %v, sent %v", failed, err, s.got)
		}
	}
}

// A retry is encrypted exactly as the first time, and a different request with the same payload is not: it depends on
// the id of the request, the task or the schedule. Only if the broker derives the unique key from the payload do equal
// payloads have equal ciphertexts.
func TestRepeatsLookTheSame(t *testing.T) {
	spec := func(change func(*pawlv1.TaskSpec)) *pawlv1.TaskSpec {
		t := &pawlv1.TaskSpec{Type: "a", Payload: secret}
		change(t)
		return t
	}
	none := func(*pawlv1.TaskSpec) {}
	task := func(t *pawlv1.TaskSpec) proto.Message { return &pawlv1.EnqueueRequest{Task: t} }
	for what, req := range map[string]func(name string) proto.Message{
		"a request": func(name string) proto.Message {
			return task(spec(func(t *pawlv1.TaskSpec) { t.RequestId = new(name) }))
		},
		"an idempotency key": func(name string) proto.Message {
			return task(spec(func(t *pawlv1.TaskSpec) { t.IdempotencyKey = new(name) }))
		},
		"a key before a request": func(name string) proto.Message {
			return task(spec(func(t *pawlv1.TaskSpec) { t.IdempotencyKey, t.RequestId = new(name), new("r") }))
		},
		"a unique key": func(name string) proto.Message {
			return task(spec(func(t *pawlv1.TaskSpec) { t.Unique, t.RequestId = &pawlv1.Unique{Key: new("u")}, new(name) }))
		},
		"a unique payload": func(name string) proto.Message {
			return task(spec(func(t *pawlv1.TaskSpec) { t.Unique, t.RequestId = &pawlv1.Unique{}, new(name) }))
		},
		"a follower": func(name string) proto.Message {
			return task(&pawlv1.TaskSpec{RequestId: new(name), Then: []*pawlv1.TaskSpec{spec(none)}})
		},
		"a schedule": func(name string) proto.Message {
			return &pawlv1.PutScheduleRequest{Spec: &pawlv1.ScheduleSpec{Name: name, Task: spec(none)}}
		},
		"a group": func(name string) proto.Message {
			return &pawlv1.CreateGroupRequest{RequestId: new(name), Tasks: []*pawlv1.TaskSpec{spec(none)}}
		},
	} {
		s := &server{}
		over := Over(s, ring(t, keyring.Config{}, "k1"), "team")
		sent := func(m proto.Message) (payload []byte) {
			if err := over.Invoke(t.Context(), "/x", m, &pawlv1.SettleResponse{}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			_ = visit(s.got.(proto.Message).ProtoReflect(), "", func(m proto.Message, _ string) error {
				payload = m.(*pawlv1.TaskSpec).GetPayload() // the last one: a follow-up task comes after its parent
				return nil
			})
			return payload
		}
		first := sent(req("x"))
		if !bytes.Equal(first, sent(req("x"))) {
			t.Errorf("%s: a retry has another ciphertext", what)
		}
		if same := bytes.Equal(first, sent(req("y"))); same != (what == "a unique payload") {
			t.Errorf("%s: another request has the same ciphertext: %v", what, same)
		}
	}
	// Two tasks of one request, and two follow-up tasks of one task, have different ciphertexts.
	both := &server{}
	m := &pawlv1.CreateGroupRequest{RequestId: new("g"), Tasks: []*pawlv1.TaskSpec{{Type: "a", Payload: secret},
		{Type: "a", Payload: secret,
			Then: []*pawlv1.TaskSpec{{Type: "a", Payload: secret}, {Type: "a", Payload: secret}}}}}
	if err := Over(both, ring(t, keyring.Config{}, "k1"), "team").Invoke(t.Context(), "/x", m, &pawlv1.CreateGroupResponse{}); err != nil {
		t.Fatal(err)
	}
	got := both.got.(*pawlv1.CreateGroupRequest).Tasks
	then := got[1].Then
	if seen := map[string]bool{string(got[0].Payload): true, string(got[1].Payload): true, string(then[0].Payload): true,
		string(then[1].Payload): true}; len(seen) != 4 {
		t.Errorf("4 tasks with the same payload have %d different ciphertexts", len(seen))
	}
}

// A payload that the broker would refuse, if it could read it, is refused here; for a follow-up task the error names its place.
func TestCheck(t *testing.T) {
	long := strings.Repeat("c", keyring.MaxContentType)
	for what, x := range map[string]struct {
		spec *pawlv1.TaskSpec
		want string
	}{
		"JSON":          {&pawlv1.TaskSpec{Payload: []byte(`7`)}, ""},
		"nothing":       {&pawlv1.TaskSpec{}, ""},
		"named JSON":    {&pawlv1.TaskSpec{Payload: []byte(`{`), ContentType: "application/json"}, "payload"},
		"not JSON":      {&pawlv1.TaskSpec{Payload: []byte(`{`)}, "payload"},
		"other bytes":   {&pawlv1.TaskSpec{Payload: []byte(`{`), ContentType: "text/plain"}, ""},
		"a long type":   {&pawlv1.TaskSpec{Payload: []byte(`{`), ContentType: long}, ""},
		"a longer type": {&pawlv1.TaskSpec{ContentType: long + "c"}, "content_type"},
		"a follower":    {&pawlv1.TaskSpec{Then: []*pawlv1.TaskSpec{{}, {Payload: []byte(`{`)}}}, "then[1].payload"},
		"a follower's follower": {&pawlv1.TaskSpec{Then: []*pawlv1.TaskSpec{{Then: []*pawlv1.TaskSpec{{Payload: []byte(`{`)}}}}},
			"then[0].then[0].payload"},
	} {
		s := &server{}
		sent := Over(s, ring(t, keyring.Config{}, "k1"), "team").Invoke(t.Context(), "/x", &pawlv1.EnqueueRequest{Task: x.spec},
			&pawlv1.EnqueueResponse{})
		if fieldOf(sent) != x.want || (s.got == nil) != (x.want != "") {
			t.Errorf("%s: Invoke = %v, sent %v", what, sent, s.got)
		}
		err := Check(x.spec)
		if got := fieldOf(err); got != x.want || (err == nil) != (got == "") || err != nil && !errors.Is(err, pawltype.ErrInvalidArgument) {
			t.Errorf("%s: Check = %v of field %q, want field %q", what, err, got, x.want)
		}
	}
}

// fieldOf returns the field that a refusal names.
func fieldOf(err error) string {
	if refusal, ok := errors.AsType[*pawltype.Error](err); ok {
		return refusal.Field
	}
	return ""
}

// Each response with contents of a task is decrypted, if the keyring has the key and the contents are in the place that they were encrypted
// for; else it is unchanged.
func TestAnswersAreOpened(t *testing.T) {
	keys := ring(t, keyring.Config{}, "k1")
	seal := func(at keyring.Place) (data []byte, contentType string) {
		data, contentType, err := keys.Seal(at, "", "text/plain", secret)
		if err != nil {
			t.Fatal(err)
		}
		return data, contentType
	}
	wrap := func(at keyring.Place) []byte {
		data := bytes.Clone(secret)
		if err := (&conn{keys: keys}).wrap(at, &data); err != nil {
			t.Fatal(err)
		}
		return data
	}
	payload, sealedAs := seal(keyring.ForPayload("team", "mail", "a"))
	result, _ := seal(keyring.ForResult("team", "1"))
	check, once := wrap(keyring.ForCheckpoint("team", "a")), wrap(keyring.ForOnce("team", "k"))
	for what, x := range map[string]struct {
		answer, want proto.Message
	}{
		"a task": {
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{TaskId: "1", Type: "a", Queue: "mail", Payload: payload, ContentType: sealedAs,
				Result: result, ResultContentType: sealedAs, Checkpoint: check}},
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{TaskId: "1", Type: "a", Queue: "mail", Payload: secret, ContentType: "text/plain",
				Result: secret, ResultContentType: "text/plain", Checkpoint: secret}}},
		"claimed tasks with their parents": {
			&pawlv1.ClaimResponse{Tasks: []*pawlv1.ClaimedTask{{}, {Type: "a", Queue: "mail", Payload: payload, ContentType: sealedAs,
				Checkpoint: check, Parent: &pawlv1.Parent{TaskId: "1", Result: result, ContentType: sealedAs}}}},
			// OpenClaimed decrypts the rest.
			&pawlv1.ClaimResponse{Tasks: []*pawlv1.ClaimedTask{{}, {Type: "a", Queue: "mail", Payload: payload, ContentType: sealedAs,
				Checkpoint: check, Parent: &pawlv1.Parent{TaskId: "1", Result: secret, ContentType: "text/plain"}}}}},
		"a schedule": {
			&pawlv1.GetScheduleResponse{Schedule: &pawlv1.Schedule{Spec: &pawlv1.ScheduleSpec{Task: &pawlv1.TaskSpec{Type: "a",
				Queue: new("mail"), Payload: payload, ContentType: sealedAs}}}},
			&pawlv1.GetScheduleResponse{Schedule: &pawlv1.Schedule{Spec: &pawlv1.ScheduleSpec{Task: &pawlv1.TaskSpec{Type: "a",
				Queue: new("mail"), Payload: secret, ContentType: "text/plain"}}}}},
		"members": {
			&pawlv1.ListGroupMembersResponse{Items: []*pawlv1.GroupMember{{TaskId: "1", Result: result, ResultContentType: sealedAs}}},
			&pawlv1.ListGroupMembersResponse{Items: []*pawlv1.GroupMember{{TaskId: "1", Result: secret, ResultContentType: "text/plain"}}}},
		"a once key":       {&pawlv1.BeginOnceResponse{Result: once}, &pawlv1.BeginOnceResponse{Result: secret}},
		"a plain once key": {&pawlv1.BeginOnceResponse{Result: secret}, &pawlv1.BeginOnceResponse{Result: secret}},
		"a plain result": {
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{TaskId: "1", Result: result, ResultContentType: "text/plain"}},
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{TaskId: "1", Result: result, ResultContentType: "text/plain"}}},
		"a list without payloads": {
			&pawlv1.ListTasksResponse{Items: []*pawlv1.Task{{Type: "a", Queue: "mail", ContentType: sealedAs}}},
			&pawlv1.ListTasksResponse{Items: []*pawlv1.Task{{Type: "a", Queue: "mail", ContentType: sealedAs}}}},
		"plain": {
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{Payload: secret, Result: secret, Checkpoint: secret}},
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{Payload: secret, Result: secret, Checkpoint: secret}}},
	} {
		got := x.want.ProtoReflect().New().Interface()
		s := &server{answer: x.answer}
		if err := Over(sOfTask{s}, keys, "team").Invoke(t.Context(), "/x", &pawlv1.BeginOnceRequest{Key: "k"}, got); err != nil ||
			!proto.Equal(got, x.want) {
			t.Errorf("%s: %v, got %v, want %v", what, err, got, x.want)
		}
		other := x.want.ProtoReflect().New().Interface()
		err := Over(sOfTask{s}, ring(t, keyring.Config{}, "k2"), "team").Invoke(t.Context(), "/x", &pawlv1.BeginOnceRequest{Key: "k"},
			other)
		if (err != nil) != (what == "a once key") || err == nil && !proto.Equal(other, x.answer) || err != nil &&
			!strings.HasPrefix(err.Error(),
				`pawl: result of once key "k": `) {
			t.Errorf("%s: without the key: %v, got %v", what, err, other)
		}
	}
}

// A keyring with OnlyEncrypted lets no plain result or checkpoint through. An operator still sees a plain payload.
func TestPlainAnswersAreRefused(t *testing.T) {
	const counts = `{"group_id":"g","name":"n","members":2,"pending":0,"succeeded":1,"dead":1,"poisoned":0,"discarded":0,"cancelled":0,` +
		`"refused":0,"task_id":"t","state":"complete"}`
	for what, x := range map[string]struct {
		answer, want proto.Message
		says         string
	}{
		"a task": {
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{Payload: secret, Result: secret, ResultContentType: "text/plain",
				Checkpoint: secret}},
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{Payload: secret, ResultContentType: plainType}}, ""},
		"a parent": {
			&pawlv1.ClaimResponse{Tasks: []*pawlv1.ClaimedTask{{Parent: &pawlv1.Parent{Result: secret}}}},
			&pawlv1.ClaimResponse{Tasks: []*pawlv1.ClaimedTask{{Parent: &pawlv1.Parent{ContentType: plainType}}}}, ""},
		"a member": {
			&pawlv1.ListGroupMembersResponse{Items: []*pawlv1.GroupMember{{Result: secret}}},
			&pawlv1.ListGroupMembersResponse{Items: []*pawlv1.GroupMember{{ResultContentType: plainType}}}, ""},
		"a result that only says that it is encrypted": {
			&pawlv1.ListGroupMembersResponse{Items: []*pawlv1.GroupMember{{Result: secret, ResultContentType: plainType + "k1"}}},
			&pawlv1.ListGroupMembersResponse{Items: []*pawlv1.GroupMember{{ResultContentType: plainType}}}, ""},
		"one of another key": {
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{Result: secret, ResultContentType: plainType + "k9"}},
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{ResultContentType: plainType}}, ""},
		"the counts of a group": { // which the broker makes
			&pawlv1.ClaimResponse{Tasks: []*pawlv1.ClaimedTask{{Parent: &pawlv1.Parent{GroupId: "g", Result: []byte(counts[:len(counts)-1] +
				`,"amount":7}`)}}}},
			&pawlv1.ClaimResponse{Tasks: []*pawlv1.ClaimedTask{{Parent: &pawlv1.Parent{GroupId: "g", Result: []byte(counts)}}}}, ""},
		"something else as a group's": {
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{Parent: &pawlv1.Parent{GroupId: "g", Result: []byte(`"secret"`)}}},
			&pawlv1.GetTaskResponse{Task: &pawlv1.Task{Parent: &pawlv1.Parent{GroupId: "g"}}}, ""},
		"no result": {&pawlv1.GetTaskResponse{Task: &pawlv1.Task{}}, &pawlv1.GetTaskResponse{Task: &pawlv1.Task{}}, ""},
		"a once key": {&pawlv1.BeginOnceResponse{Result: secret}, &pawlv1.BeginOnceResponse{},
			`pawl: result of once key "k": it is not encrypted`},
		"an empty once key": {&pawlv1.BeginOnceResponse{}, &pawlv1.BeginOnceResponse{}, ""},
	} {
		got := x.want.ProtoReflect().New().Interface()
		only := ring(t, keyring.Config{OnlyEncrypted: true}, "k1")
		err := Over(sOfTask{&server{answer: x.answer}}, only, "team").Invoke(t.Context(), "/x", &pawlv1.BeginOnceRequest{Key: "k"}, got)
		if (err != nil) != (x.says != "") || err != nil && !strings.HasPrefix(err.Error(), x.says) ||
			keyring.IsForged(err) != (err != nil) || !proto.Equal(got, x.want) {
			t.Errorf("%s: %v, got %v, want %v", what, err, got, x.want)
		}
	}
}

// Encrypted data is not encrypted again, a batch is refused for any of its tasks, and other messages than those of the API pass unchanged.
func TestUnencryptedMessages(t *testing.T) {
	s := &server{}
	over := Over(s, ring(t, keyring.Config{}, "k1"), "team")
	req := &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Payload: secret, ContentType: "application/vnd.pawl.encrypted; key=k2"}}
	if err := over.Invoke(t.Context(), "/x", req, &pawlv1.EnqueueResponse{}); err != nil || !proto.Equal(s.got.(proto.Message), req) {
		t.Errorf("an encrypted payload was changed: %v, sent %v", err, s.got)
	}
	s.got = nil
	batch := &pawlv1.EnqueueBatchRequest{Tasks: []*pawlv1.TaskSpec{{}, {Payload: []byte(`{`)}, {}}}
	if err := over.Invoke(t.Context(), "/x", batch, &pawlv1.EnqueueBatchResponse{}); fieldOf(err) != "payload" || s.got != nil {
		t.Errorf("a batch with an invalid task: %v, sent %v", err, s.got)
	}
	if err := over.Invoke(t.Context(), "/x", "a word", new(string)); err != nil || s.got != "a word" {
		t.Errorf("a string was not sent unchanged: %v, sent %v", err, s.got)
	}
	boom := errors.New("boom")
	unknown := &server{failed: "WhoAmI", fails: boom, answer: &pawlv1.BeginOnceResponse{Result: secret}}
	if err := Over(unknown, ring(t, keyring.Config{}, "k1"), "").Invoke(t.Context(), "/x", &pawlv1.BeginOnceRequest{},
		&pawlv1.BeginOnceResponse{}); !errors.Is(err, boom) {
		t.Errorf("Invoke without a known namespace: %v, want the error of WhoAmI", err)
	}
}

// stream is a stream whose methods can fail.
type stream struct {
	grpc.ClientStream
	s            *server
	sends, recvs error
}

func (s *stream) Context() context.Context { return context.Background() }

func (s *stream) SendMsg(m any) error {
	s.s.got = m
	return s.sends
}

func (s *stream) RecvMsg(m any) error {
	proto.Merge(m.(proto.Message), s.s.answer)
	return s.recvs
}

// streaming is a server that opens streams.
type streaming struct {
	*server
	stream *stream
	opens  error
	opened int
}

// NewStream implements rpc.Conn.
func (s *streaming) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	s.opened++
	return s.stream, s.opens
}

// Streams encrypt and decrypt like calls. That of a worker knows the namespace before the first task arrives.
func TestStreams(t *testing.T) {
	boom, keys := errors.New("boom"), ring(t, keyring.Config{}, "k1")
	for method, want := range map[string]int{pawlv1.WorkerService_Work_FullMethodName: 1, "/x": 0} {
		s := &server{}
		s2 := &streaming{server: s, stream: &stream{s: s}}
		if _, err := Over(s2, keys, "").NewStream(t.Context(), nil, method); err != nil || s.asked != want || s2.opened != 1 {
			t.Errorf("%s: %v, WhoAmI was called %d times, want %d", method, err, s.asked, want)
		}
		s.failed, s.fails = "WhoAmI", boom
		if _, err := Over(s2, keys, "").NewStream(t.Context(), nil, method); errors.Is(err, boom) != (want == 1) {
			t.Errorf("%s: with a failing WhoAmI: %v", method, err)
		}
	}
	result, sealedAs, _ := keys.Seal(keyring.ForResult("team", "1"), "", "", secret)
	s := &server{answer: &pawlv1.WorkResponse{Tasks: []*pawlv1.ClaimedTask{{Type: "a", Queue: "mail", Parent: &pawlv1.Parent{TaskId: "1",
		Result: result, ContentType: sealedAs}}}}}
	base := &stream{s: s}
	over, err := Over(&streaming{server: s, stream: base}, keys, "team").NewStream(t.Context(), nil, "/x")
	if err != nil {
		t.Fatal(err)
	}
	ack := &pawlv1.WorkRequest{Settle: &pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{{TaskId: "1", Result: secret}}}}
	if err := over.SendMsg(ack); err != nil || s.got == nil || proto.Equal(s.got.(proto.Message), ack) {
		t.Errorf("SendMsg sent %v, %v, want an encrypted result", s.got, err)
	}
	s.got = nil
	if err := over.SendMsg(&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Payload: []byte(`{`)}}); err == nil || s.got != nil {
		t.Errorf("SendMsg of an invalid payload: %v, sent %v", err, s.got)
	}
	var got pawlv1.WorkResponse
	if err := over.RecvMsg(&got); err != nil || !bytes.Equal(got.Tasks[0].Parent.GetResult(), secret) {
		t.Errorf("received %v, %v", &got, err)
	}
	base.sends, base.recvs = boom, boom
	if err := over.SendMsg(ack); !errors.Is(err, boom) {
		t.Errorf("a failing SendMsg: %v", err)
	}
	if err := over.RecvMsg(&pawlv1.WorkResponse{}); !errors.Is(err, boom) {
		t.Errorf("a failing RecvMsg: %v", err)
	}
}

// sOfTask answers GetTask like any other call.
type sOfTask struct{ *server }

// Invoke implements rpc.Conn.
func (s sOfTask) Invoke(_ context.Context, _ string, _, resp any, _ ...grpc.CallOption) error {
	proto.Merge(resp.(proto.Message), s.answer)
	return nil
}

// A claimed task is decrypted, or there is a reason why its handler can't read it. Contents that look encrypted once they are decrypted are
// the user's own.
func TestOpenClaimed(t *testing.T) {
	keys := ring(t, keyring.Config{}, "k1")
	seal := func(contentType string) (payload []byte, sealedAs string) {
		payload, sealedAs, err := keys.Seal(keyring.ForPayload("team", "mail", "a"), "", contentType, secret)
		if err != nil {
			t.Fatal(err)
		}
		return payload, sealedAs
	}
	wrap := func(plain []byte) []byte {
		data := bytes.Clone(plain)
		if err := (&conn{keys: keys}).wrap(keyring.ForCheckpoint("team", "a"), &data); err != nil {
			t.Fatal(err)
		}
		return data
	}
	payload, sealedAs := seal("")
	alike, _ := seal(sealedAs)
	check, own := wrap(secret), []byte(`{"pawl_encrypted":"mine"}`)
	s := &server{}
	with := func(k *keyring.Keyring) rpc.Conn { return Over(s, k, "team") }
	for what, x := range map[string]struct {
		over   rpc.Conn
		task   *pawlv1.ClaimedTask
		want   string // why it can't be read; "": it can
		forged bool
		plain  *pawlv1.ClaimedTask // nil: as it was
	}{
		"plain":             {with(keys), &pawlv1.ClaimedTask{Payload: secret}, "", false, nil},
		"plain, no keyring": {s, &pawlv1.ClaimedTask{Payload: secret, Checkpoint: secret}, "", false, nil},
		"encrypted": {with(keys), &pawlv1.ClaimedTask{Type: "a", Queue: "mail", Payload: payload, ContentType: sealedAs, Checkpoint: check},
			"", false, &pawlv1.ClaimedTask{Type: "a", Queue: "mail", Payload: secret, Checkpoint: secret}},
		"a checkpoint that looks encrypted": {with(keys), &pawlv1.ClaimedTask{Type: "a", Checkpoint: wrap(own)}, "", false,
			&pawlv1.ClaimedTask{Type: "a", Checkpoint: own}},
		"one encrypted twice": {with(keys), &pawlv1.ClaimedTask{Type: "a", Checkpoint: wrap(check)}, "", false,
			&pawlv1.ClaimedTask{Type: "a", Checkpoint: check}},
		"a payload that looks encrypted": {with(keys), &pawlv1.ClaimedTask{Type: "a", Queue: "mail", Payload: alike, ContentType: sealedAs},
			"", false, &pawlv1.ClaimedTask{Type: "a", Queue: "mail", Payload: secret, ContentType: sealedAs}},
		"no keyring": {s, &pawlv1.ClaimedTask{Payload: payload, ContentType: sealedAs},
			`payload: it is encrypted with key "k1", and the client has no keyring`, false, nil},
		"no keyring for it": {s, &pawlv1.ClaimedTask{Checkpoint: check}, "checkpoint: it is encrypted, and the client has no keyring",
			false, nil},
		"another key": {with(ring(t, keyring.Config{}, "k2")), &pawlv1.ClaimedTask{Type: "a", Queue: "mail", Payload: payload,
			ContentType: sealedAs}, `payload: it is encrypted with key "k1"`, false, nil},
		"elsewhere": {with(keys), &pawlv1.ClaimedTask{Type: "a", Queue: "b", Payload: payload, ContentType: sealedAs},
			"payload: ", true, nil},
		"another checkpoint": {with(keys), &pawlv1.ClaimedTask{Type: "b", Checkpoint: check}, "checkpoint: ", true, nil},
		"a broken checkpoint": {with(keys), &pawlv1.ClaimedTask{Type: "a", Checkpoint: check[:len(check)-2]},
			"checkpoint: it does not have the format", true, nil},
		"plain and refused": {with(ring(t, keyring.Config{OnlyEncrypted: true}, "k1")),
			&pawlv1.ClaimedTask{Payload: secret, ContentType: "b"}, "payload: it is not encrypted", true,
			&pawlv1.ClaimedTask{ContentType: plainType}},
		"a plain checkpoint, refused": {with(ring(t, keyring.Config{OnlyEncrypted: true}, "k1")),
			&pawlv1.ClaimedTask{Type: "a", Queue: "mail", Payload: payload, ContentType: sealedAs, Checkpoint: secret},
			"checkpoint: it is not encrypted", true, &pawlv1.ClaimedTask{Type: "a", Queue: "mail", Payload: secret}},
		"nothing": {with(keys), &pawlv1.ClaimedTask{Type: "a", Queue: "mail", ContentType: sealedAs},
			"payload: it does not have the format", true, nil},
	} {
		if x.plain == nil {
			x.plain = proto.CloneOf(x.task)
		}
		err := OpenClaimed(x.over, x.task)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) || keyring.IsForged(err) != x.forged {
			t.Errorf("%s: got %v, forged %v, want %q, %v", what, err, keyring.IsForged(err), x.want, x.forged)
		}
		if !proto.Equal(x.task, x.plain) {
			t.Errorf("%s: got %v, want %v", what, x.task, x.plain)
		}
	}
	if !Encrypts(with(keys)) || Encrypts(s) {
		t.Error("Encrypts does not tell a connection with a keyring from one without")
	}
}

// A keyring with OnlyEncrypted hides plain payloads from handlers, and one with AcceptFrom decrypts those moved from there.
func TestOtherKeyrings(t *testing.T) {
	keys := ring(t, keyring.Config{}, "k1")
	payload, sealedAs, _ := keys.Seal(keyring.ForPayload("team", "mail", "a"), "", "", secret)
	for what, x := range map[string]struct {
		cfg     keyring.Config
		task    *pawlv1.ClaimedTask
		want    string
		refused bool
	}{
		"plain": {keyring.Config{}, &pawlv1.ClaimedTask{Payload: secret, ContentType: "b"}, `"secret" b`, false},
		"plain and refused": {keyring.Config{OnlyEncrypted: true}, &pawlv1.ClaimedTask{Payload: secret, ContentType: "b"},
			" " + plainType, true},
		"only encrypted": {keyring.Config{OnlyEncrypted: true}, &pawlv1.ClaimedTask{Type: "a", Queue: "mail", Payload: payload,
			ContentType: sealedAs}, `"secret" `, false},
		"moved": {keyring.Config{AcceptFrom: []string{"x", "mail", "y"}}, &pawlv1.ClaimedTask{Type: "a", Queue: "b", Payload: payload,
			ContentType: sealedAs}, `"secret" `, false},
		"moved elsewhere": {keyring.Config{AcceptFrom: []string{"x"}}, &pawlv1.ClaimedTask{Type: "a", Queue: "b", Payload: payload,
			ContentType: sealedAs}, string(payload) + " " + sealedAs, true},
	} {
		err := OpenClaimed(Over(&server{}, ring(t, x.cfg, "k1"), "team"), x.task)
		if got := fmt.Sprintf("%s %s", x.task.Payload, x.task.ContentType); got != x.want || (err != nil) != x.refused {
			t.Errorf("%s: %v, got %q, want %q, refused %v", what, err, got, x.want, x.refused)
		}
	}
}

// hanging is a broker that does not answer.
type hanging struct{ rpc.Conn }

// Invoke implements rpc.Conn.
func (hanging) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// While the namespace is asked for, each call has its own time.
func TestNamespaceRespectsEachContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := Over(hanging{}, ring(t, keyring.Config{}, "k1"), "")
		call := func(d time.Duration) chan error {
			done := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				done <- over.Invoke(ctx, "/x", &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}}, &pawlv1.EnqueueResponse{})
			}()
			return done
		}
		began, long := time.Now(), call(time.Hour)
		synctest.Wait()
		if err := <-call(time.Second); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("a call with one second returned %v after %s", err, time.Since(began))
		}
		if err := <-long; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call with one hour returned %v", err)
		}
	})
}
