package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// tokenSet is a set of tokens, and an authenticator that knows them.
type tokenSet struct {
	auth   *auth.Authenticator
	secret map[string]string
	tokens []auth.Token
}

func newTokenSet() *tokenSet {
	return &tokenSet{auth: auth.NewAuthenticator(auth.Config{Mode: auth.Always}), secret: map[string]string{}}
}

// add creates a token with the given name.
func (k *tokenSet) add(name string, r auth.Rights) string {
	s := bearer.New()
	k.secret[name] = s
	k.tokens = append(k.tokens, auth.Token{Name: name, Rights: r, Hash: auth.HashOf(s), CreatedAt: store.TimeOf(time.Now())})
	k.publish()
	return s
}

func (k *tokenSet) publish() {
	k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"team"}})
	k.auth.Refreshed(time.Now())
}

// addAll creates tokens of every kind: one for each role in a namespace, and admins with and without limits.
func (k *tokenSet) addAll() {
	for _, name := range auth.RoleNames {
		role, err := auth.ParseRoles("roles", []string{name})
		if err != nil {
			panic(err)
		}
		k.add(name, auth.Rights{Namespace: "team", Roles: role})
	}
	k.add("admin of mail*", auth.Rights{Namespace: "team", Roles: auth.Admin, Queues: []string{"mail*"}})
	k.add("observer of all", auth.Rights{Namespace: "*", Roles: auth.Observe})
	k.add("admin of all", auth.Everything)
}

// expected returns the code that the table implies for a token, regardless of the call's arguments.
func (k *tokenSet) expected(token string, n access.Need) codes.Code {
	if token == "" {
		return codes.Unauthenticated
	}
	for i := range k.tokens {
		t := &k.tokens[i]
		if t.Name != token {
			continue
		}
		names := t.Roles.Full().Names()
		has := n.Roles == 0
		for _, want := range n.Roles.Names() {
			has = has || strings.Contains(strings.Join(names, " "), want)
		}
		switch {
		case !has, n.Reach > access.OfQueues && t.Queues != nil, n.Reach == access.OfCluster && t.Namespace != "*":
			return codes.PermissionDenied
		}
	}
	return codes.OK
}

func lockedGateway(t *testing.T, k *tokenSet) *Gateway {
	f := newFake()
	f.auth = k.auth
	cfg := f.config()
	cfg.Admin = f.admin
	g := New(cfg)
	t.Cleanup(func() { g.Shutdown(context.Background()) })
	return g
}

func dialGateway(t testing.TB, g *Gateway) *grpc.ClientConn {
	l := bufconn.Listen(1 << 20)
	go func() { _ = g.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///pawl", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func with(ctx context.Context, token, namespace string) context.Context {
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	if namespace != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "pawl-namespace", namespace)
	}
	return ctx
}

// eachRPC calls fn for every rpc of the API.
func eachRPC(fn func(name string, m protoreflect.MethodDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage("pawl.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				fn(fmt.Sprintf("%s/%s", s.Name(), s.Methods().Get(j).Name()), s.Methods().Get(j))
			}
		}
		return true
	})
}

// Each rpc with each kind of token is refused according to the table or admitted, whatever the result of an empty request.
func TestRolesOverGRPC(t *testing.T) {
	k := newTokenSet()
	k.addAll()
	conn := dialGateway(t, lockedGateway(t, k))
	calls := 0
	eachRPC(func(name string, m protoreflect.MethodDescriptor) {
		for token, secret := range map[string]string{"": "", "produce": "", "consume": "", "observe": "", "operate": "", "admin": "",
			"admin of mail*": "", "observer of all": "", "admin of all": ""} {
			if token != "" {
				secret = k.secret[token]
			}
			patience := 5 * time.Second
			if k.expected(token, access.RPCNeeds()[name]) == codes.OK && m.IsStreamingServer() { // it runs forever
				patience = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(with(t.Context(), secret, ""), patience)
			err := callEmpty(ctx, conn, name, m)
			cancel()
			calls++
			got, want := status.Code(err), k.expected(token, access.RPCNeeds()[name])
			if want == codes.OK && (got == codes.PermissionDenied && !unserved(err) || got == codes.Unauthenticated) ||
				want != codes.OK && got != want {
				t.Errorf("%s with token %q: %v, want %v (%v)", name, token, got, want, err)
			}
		}
	})
	if calls < 500 {
		t.Errorf("only %d calls were tried, want at least 500", calls)
	}
}

// unserved reports whether an error only means that the test's gateway lacks something, which is unrelated to tokens.
func unserved(err error) bool {
	return strings.Contains(err.Error(), "not served here") || strings.Contains(err.Error(), "no cluster")
}

func callEmpty(ctx context.Context, conn *grpc.ClientConn, name string, m protoreflect.MethodDescriptor) error {
	in, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		return err
	}
	out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return err
	}
	request, answer := in.New().Interface(), out.New().Interface()
	if !m.IsStreamingServer() {
		return conn.Invoke(ctx, access.APIPackage+name, request, answer)
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: m.IsStreamingClient()}, access.APIPackage+name)
	if err == nil {
		if err = s.SendMsg(request); err == nil || errors.Is(err, io.EOF) { // the stream was refused, and RecvMsg returns why
			_ = s.CloseSend()
			err = s.RecvMsg(answer)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// Each REST route with each kind of token is refused or admitted as over gRPC.
func TestRolesOverREST(t *testing.T) {
	k := newTokenSet()
	k.addAll()
	g := lockedGateway(t, k)
	fill := strings.NewReplacer("{id}", "00000000-0000-7000-8000-000000000001", "{queue}", "mail", "{name}", "n", "{node}", "n1", "{shard}",
		"1", "{worker}", "w")
	for _, r := range rest.Routes() {
		if strings.HasSuffix(r.Path, "/events") { // they run forever
			continue
		}
		n := access.NeedOfRoute(r)
		for token, secret := range k.secret {
			w := knock(g, r.Method, fill.Replace(r.Path), secret, "")
			want := k.expected(token, n)
			if n.Reach == access.Public {
				want = codes.OK
			}
			denied := w.Code == http.StatusForbidden && !strings.Contains(w.Body.String(), "not served here")
			if (want == codes.PermissionDenied) != denied || w.Code == http.StatusUnauthorized {
				t.Errorf("%s %s with token %q: status %d, want %v (%s)", r.Method, r.Path, token, w.Code, want, w.Body)
			}
		}
		w := knock(g, r.Method, fill.Replace(r.Path), "", "")
		if n.Reach == access.Public && w.Code == http.StatusUnauthorized ||
			n.Reach != access.Public && (w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") != "Bearer" ||
				!strings.Contains(w.Body.String(), `"unauthenticated"`)) {
			t.Errorf("%s %s without a token: status %d (%s)", r.Method, r.Path, w.Code, w.Body)
		}
	}
}

func knock(g *Gateway, method, path, token, namespace string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if namespace != "" {
		r.Header.Set("Pawl-Namespace", namespace)
	}
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, r)
	return w
}

// A token must have the scheme Bearer, in any case. Without it, or with another scheme, it is refused whatever it contains.
func TestBearerTokens(t *testing.T) {
	k := newTokenSet()
	k.addAll()
	g := lockedGateway(t, k)
	secret := k.secret["observe"]
	for said, want := range map[string]int{
		"Bearer " + secret: 200, "bearer  " + secret: 200, "BEARER " + secret + " ": 200,
		secret: 401, "Basic " + secret: 401, "Bearer" + secret: 401, "Token " + secret: 401, "": 401, "Bearer ": 401, "Bearer": 401,
	} {
		r, w := httptest.NewRequest("GET", "/api/v1/me", nil), httptest.NewRecorder()
		r.Header.Set("Authorization", said)
		g.rest.ServeHTTP(w, r)
		if w.Code != want || strings.Contains(w.Body.String(), secret) {
			t.Errorf("REST, %.12q: status %d %s, want %d", said, w.Code, w.Body, want)
		}
		s := access.GRPCCredentials(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", said)))
		_, err := g.access.Authenticate(s)
		if e, _ := task.AsError(err); (err == nil) != (want == 200) || want == 401 && (e == nil || e.Code != task.CodeUnauthenticated) {
			t.Errorf("gRPC, %.12q: %v, want status %d", said, err, want)
		}
	}
}

func TestRefusalsNameTheMissingRight(t *testing.T) {
	k := newTokenSet()
	k.addAll()
	g := lockedGateway(t, k)
	for _, c := range []struct {
		token, method, path, namespace string
		status                         int
		says                           string
	}{
		{"observe", "GET", "/api/v1/me", "", 200, `"namespace":"team"`},
		{"observe", "GET", "/api/v1/me", "team", 200, `"name":"observe"`},
		{"observe", "GET", "/api/v1/me", "other", 403, `limited to namespace \"team\"`},
		{"observe", "GET", "/api/v1/me", "default", 403, `limited to namespace \"team\"`},
		{"admin of all", "GET", "/api/v1/me", "", 200, `"namespace":"default"`},
		{"admin of all", "GET", "/api/v1/me", "team", 200, `"namespace":"team","all_namespaces":true`},
		{"admin of all", "GET", "/api/v1/me", "other", 404, `namespace \"other\": not found`},
		{"admin of all", "GET", "/api/v1/me", "a/b", 400, `is not a namespace name`},
		{"admin of mail*", "GET", "/api/v1/queues/sms", "", 403, `limited to the queues mail*, and \"sms\" is not one of them`},
		{"admin of mail*", "GET", "/api/v1/queues/sms/explain", "", 403, `not one of them`},
		{"admin of mail*", "GET", "/api/v1/queues/sms/dead", "", 403, `not one of them`},
		{"admin of mail*", "GET", "/api/v1/tasks?queue=sms", "", 403, `not one of them`},
		{"admin of mail*", "GET", "/api/v1/queues/mail", "", 404, `queue \"mail\": not found`},
		{"produce", "GET", "/api/v1/queues", "", 403, `has the role produce, and this call needs observe`},
		{"admin", "GET", "/api/v1/cluster", "", 403, `concerns the whole cluster`},
	} {
		w := knock(g, c.method, c.path, k.secret[c.token], c.namespace)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s (namespace %q) with token %q: status %d, want %d and %s (%s)", c.method, c.path, c.namespace, c.token, w.Code,
				c.status, c.says, w.Body)
		}
	}
}

// A task is refused in a queue that the token does not cover, whether it is enqueued directly, as a follow-up, in a group or by a schedule.
func TestEnqueueKeepsToTheQueues(t *testing.T) {
	k := newTokenSet()
	k.add("mail", auth.Rights{Namespace: "team", Roles: auth.Produce | auth.Operate, Queues: []string{"mail*"}})
	conn := dialGateway(t, lockedGateway(t, k))
	ctx := with(t.Context(), k.secret["mail"], "")
	spec := func(queue string, then ...*pawlv1.TaskSpec) *pawlv1.TaskSpec {
		s := &pawlv1.TaskSpec{Type: "t", Then: then}
		if queue != "" {
			s.Queue = &queue
		}
		return s
	}
	producer, groups, schedules, mass := pawlv1.NewProducerServiceClient(conn), pawlv1.NewGroupServiceClient(conn),
		pawlv1.NewScheduleServiceClient(conn), pawlv1.NewOperationServiceClient(conn)
	for what, call := range map[string]func() error{
		"a task":               func() error { _, err := producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: spec("sms")}); return err },
		"in the default queue": func() error { _, err := producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: spec("")}); return err },
		"what follows": func() error {
			_, err := producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: spec("mail", spec("mail", spec("sms")))})
			return err
		},
		"of a batch": func() error {
			r, err := producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: []*pawlv1.TaskSpec{spec("sms")}})
			return item0(r, err)
		},
		"what follows second": func() error {
			_, err := producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: spec("mail", spec("mail"), spec("sms"))})
			return err
		},
		"a second member": func() error {
			_, err := groups.CreateGroup(ctx, &pawlv1.CreateGroupRequest{Tasks: []*pawlv1.TaskSpec{spec("mail"), spec("sms")}})
			return err
		},
		"one of two callbacks": func() error {
			_, err := groups.CreateGroup(ctx, &pawlv1.CreateGroupRequest{Tasks: []*pawlv1.TaskSpec{spec("mail")}, OnComplete: spec("mail"),
				OnDeath: spec("sms")})
			return err
		},
		"another of two callbacks": func() error {
			_, err := groups.CreateGroup(ctx, &pawlv1.CreateGroupRequest{Tasks: []*pawlv1.TaskSpec{spec("mail")}, OnSuccess: spec("sms"),
				OnDeath: spec("mail")})
			return err
		},
		"what follows in a batch": func() error {
			r, err := producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: []*pawlv1.TaskSpec{spec("mail", spec("sms"))}})
			return item0(r, err)
		},
		"a member": func() error {
			_, err := groups.CreateGroup(ctx, &pawlv1.CreateGroupRequest{Tasks: []*pawlv1.TaskSpec{spec("sms")}})
			return err
		},
		"a callback": func() error {
			_, err := groups.CreateGroup(ctx, &pawlv1.CreateGroupRequest{Tasks: []*pawlv1.TaskSpec{spec("mail")}, OnComplete: spec("sms")})
			return err
		},
		"a later member": func() error {
			_, err := groups.AddGroupTasks(ctx, &pawlv1.AddGroupTasksRequest{GroupId: task.ID{1}.String(),
				Tasks: []*pawlv1.TaskSpec{spec("sms")}})
			return err
		},
		"a schedule": func() error {
			_, err := schedules.PutSchedule(ctx, &pawlv1.PutScheduleRequest{Spec: &pawlv1.ScheduleSpec{Name: "s", Cron: new("@daily"),
				Task: spec("sms")}})
			return err
		},
		"what follows a tick": func() error {
			_, err := schedules.PutSchedule(ctx, &pawlv1.PutScheduleRequest{Spec: &pawlv1.ScheduleSpec{Name: "s", Cron: new("@daily"),
				Task: spec("mail", spec("sms"))}})
			return err
		},
		"a move": func() error {
			_, err := mass.StartOperation(ctx, &pawlv1.StartOperationRequest{Spec: &pawlv1.OperationSpec{Action: pawlv1.Action_ACTION_MOVE,
				Filter: &pawlv1.Filter{Queue: new("mail")}, ToQueue: new("sms")}})
			return err
		},
		"an operation": func() error {
			_, err := mass.StartOperation(ctx, &pawlv1.StartOperationRequest{Spec: &pawlv1.OperationSpec{
				Action: pawlv1.Action_ACTION_CANCEL,
				Filter: &pawlv1.Filter{Queue: new("sms")}}})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "is limited to the queues mail*") {
			t.Errorf("%s in a queue that the token does not cover: %v, want permission denied", what, err)
		}
	}
	if _, err := producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: spec("mail", spec("mail.x"))}); err != nil {
		t.Errorf("enqueue in a covered queue: %v", err)
	}
}

// A group is limited to the queues of its creator's token.
func TestGroupKeepsToItsCreatorsQueues(t *testing.T) {
	k := newTokenSet()
	k.add("mail", auth.Rights{Namespace: "team", Roles: auth.Produce, Queues: []string{"mail*", "sms"}})
	k.add("all", auth.Rights{Namespace: "team", Roles: auth.Produce})
	g := lockedGateway(t, k)
	conn := dialGateway(t, g)
	made := &g.services.group.groups.(*fakeGroups).all
	for i, c := range []struct {
		token string
		want  []string
	}{{"mail", []string{"mail*", "sms"}}, {"all", nil}} {
		_, err := pawlv1.NewGroupServiceClient(conn).CreateGroup(with(t.Context(), k.secret[c.token], ""),
			&pawlv1.CreateGroupRequest{Tasks: []*pawlv1.TaskSpec{{Type: "t", Queue: new("mail")}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := (*made)[i].Within; !reflect.DeepEqual(got, c.want) {
			t.Errorf("a group by token %s is limited to the queues %q, want %q", c.token, got, c.want)
		}
	}
}

// item0 returns the error of the first task of a batch.
func item0(r *pawlv1.EnqueueBatchResponse, err error) error {
	if e := r.GetResults(); err == nil && len(e) == 1 && e[0].GetError().GetCode() == string(task.CodePermissionDenied) {
		return status.Error(codes.PermissionDenied, e[0].GetError().GetMessage())
	}
	return err
}

// A worker's stream and a long poll end when their token is revoked, with an error that says so.
func TestLongCallsEndWithTheirToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		secret := k.add("worker", auth.Rights{Namespace: "team", Roles: auth.Consume})
		g := lockedGateway(t, k)
		conn := dialGateway(t, g)
		ctx := with(t.Context(), secret, "")
		s, err := pawlv1.NewWorkerServiceClient(conn).Work(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "mail"}}, Worker: "w"},
			Grant: 1}); err != nil {
			t.Fatal(err)
		}
		polled := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			r := httptest.NewRequest("POST", "/api/v1/claim", strings.NewReader(`{"queues":["mail"],"wait":"20s","worker":"w"}`))
			r.Header.Set("Authorization", "Bearer "+secret)
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, r)
			polled <- w
		}()
		synctest.Wait()
		began := time.Now()
		k.tokens = nil
		k.publish()
		if _, err := s.Recv(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "was revoked") {
			t.Errorf("the stream ended with %v, want unauthenticated", err)
		}
		if w := <-polled; w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "was revoked") {
			t.Errorf("the poll ended with %d %s, want unauthenticated", w.Code, w.Body)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("stream and poll ended after %v", took)
		}
		_ = conn.Close()
		g.Shutdown(context.Background())
		synctest.Wait()
	})
}

// A long call that began while no token was required ends when one is.
func TestLongCallsEndWhenTokensAreRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &tokenSet{auth: auth.NewAuthenticator(auth.Config{}), secret: map[string]string{}}
		k.publish()
		g := lockedGateway(t, k)
		conn := dialGateway(t, g)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := pawlv1.NewWorkerServiceClient(conn).Work(ctx)
		if err == nil {
			err = s.Send(&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "mail"}}, Worker: "w"},
				Grant: 1})
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		k.auth.Replace(auth.Access{Required: true, Namespaces: []string{"team"}})
		if _, err := s.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the stream of a worker without a token ended with %v, want unauthenticated", err)
		}
		_ = conn.Close()
		g.Shutdown(context.Background())
		synctest.Wait()
	})
}

// A refused worker is not registered anywhere.
func TestRefusedWorkersAreNotCounted(t *testing.T) {
	k := newTokenSet()
	k.add("mail", auth.Rights{Namespace: "team", Roles: auth.Consume, Queues: []string{"mail*"}})
	g := lockedGateway(t, k)
	for path, body := range map[string]string{"/api/v1/claim": `{"queues":["mail","sms"],"worker":"w"}`} {
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+k.secret["mail"])
		w := httptest.NewRecorder()
		if g.Handler().ServeHTTP(w, r); w.Code != http.StatusForbidden || len(g.cfg.Registry.Counts()) != 0 {
			t.Errorf("%s: status %d %s, with %d workers registered", path, w.Code, w.Body, len(g.cfg.Registry.Counts()))
		}
	}
	s, err := pawlv1.NewWorkerServiceClient(dialGateway(t, g)).Work(with(t.Context(), k.secret["mail"], ""))
	if err == nil {
		err = s.Send(&pawlv1.WorkRequest{Hello: hello("mail", "sms")})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "mail*") ||
		len(g.cfg.Registry.Counts()) != 0 {
		t.Errorf("refused stream: %v, with %d workers registered", err, len(g.cfg.Registry.Counts()))
	}
}

// The cost of a token for an enqueue and an ack, over gRPC in memory and without a broker.
func BenchmarkAccess(b *testing.B) {
	k := newTokenSet()
	k.add("whole", auth.Rights{Namespace: "team", Roles: auth.Produce | auth.Consume})
	k.add("limited", auth.Rights{Namespace: "team", Roles: auth.Produce | auth.Consume, Queues: []string{"sms", "mail*"}})
	for _, who := range []string{"nobody", "whole", "limited"} {
		f := newFake()
		cfg := f.config()
		cfg.Broker, cfg.Cluster = idle{f}, idleCluster{fakeCluster{f}}
		if who != "nobody" {
			cfg.Auth = k.auth
		}
		g := New(cfg)
		conn := dialGateway(b, g)
		ctx := with(b.Context(), k.secret[who], "")
		k.publish()
		task1 := &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t", Queue: new("mail")}}
		ack1 := &pawlv1.AckRequest{TaskId: "0199a0e4-0f4c-7001-8000-000000000001", ClaimToken: task.Token{Epoch: 1, Fence: 1,
			Nonce: 7}.String()}
		run := func(name string, call func() error) {
			b.Run(name+"/"+who, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					k.auth.Refreshed(time.Now())
					if err := call(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("enqueue", func() error { _, err := pawlv1.NewProducerServiceClient(conn).Enqueue(ctx, task1); return err })
		run("ack", func() error { _, err := pawlv1.NewWorkerServiceClient(conn).Ack(ctx, ack1); return err })
		g.Shutdown(context.Background())
	}
}

// A call limited to some queues can't reach other queues through the cluster, and a call that is in no table is refused to everyone.
func TestQueuesBeyondAToken(t *testing.T) {
	c := fanout.Scoped{Cluster: fakeCluster{newFake()}}
	whole, call := callinfo.Begin(t.Context(), "grpc", "test")
	call.Principal = callinfo.Principal{Principal: auth.Anonymous}
	limited := task.WithScope(whole, task.Scope{Queues: []string{"mail*"}})
	for what, do := range map[string]func(context.Context, string) error{
		"place": func(ctx context.Context, q string) error { _, err := c.Place(ctx, "n", q); return err },
		"read":  func(ctx context.Context, q string) error { _, _, err := c.Queue(ctx, "n", q); return err },
		"now":   func(ctx context.Context, q string) error { _, _, err := c.Current(ctx, "n", q); return err },
		"put": func(ctx context.Context, q string) error {
			_, err := c.PutQueue(ctx, auditlog.Action{}, "n", q, func(*task.QueueConfig) error { return nil })
			return err
		},
		"drop": func(ctx context.Context, q string) error { return c.DropQueue(ctx, task.Author{}, "n", q) },
		"spread": func(ctx context.Context, q string) error {
			_, err := c.Spread(ctx, task.Author{}, "n", q, queues.SpreadTarget{Parts: 1})
			return err
		},
	} {
		if err := errors.Join(do(limited, "mail2"), do(whole, "sms")); err != nil {
			t.Errorf("%s of a permitted queue: %v", what, err)
		}
		if e, _ := task.AsError(do(limited, "sms")); e == nil || e.Code != task.CodePermissionDenied {
			t.Errorf("%s of another queue: %v, want permission denied", what, e)
		}
	}
	for _, queue := range []string{"mail2", "sms"} {
		if _, err := c.PutQueue(whole, auditlog.Action{}, "n", queue, func(*task.QueueConfig) error { return nil }); err != nil {
			t.Fatal(err) // it may have been dropped last
		}
		_, all := c.Copied(whole, "n", queue)
		if _, ok := c.Copied(limited, "n", queue); !all || ok != (queue == "mail2") {
			t.Errorf("the copy of queue %q is shown to an unlimited token: %v, to one for mail*: %v", queue, all, ok)
		}
	}
	for _, n := range []access.Need{access.NeedOfRPC("/pawl.v1.ProducerService/Steal"), access.NeedOfRPC("/other.Service/Call"),
		access.NeedOfRoute(&rest.Route{Method: "GET", Path: "/secret"})} {
		if e, _ := task.AsError(n.Allows(call.Principal)); n.Reach != 0 || e == nil || e.Code != task.CodePermissionDenied {
			t.Errorf("call that is in no table needs %+v: %v", n, e)
		}
	}
	if n := access.NeedOfRPC("/grpc.health.v1.Health/Check"); n.Reach != access.Public {
		t.Errorf("the health service needs %+v, want public", n)
	}
	if _, err := newGateway(newFake()).services.marker.ListMarkers(limited, &pawlv1.ListMarkersRequest{Queue: new("sms")}); err == nil ||
		!strings.Contains(err.Error(), "is not one of them") {
		t.Errorf("ListMarkers of another queue: %v, want permission denied", err)
	}

}
