package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/sqs"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// The SQS test scripts are in testdata/sqs. Each call states the action, and the token that it sends or whose access key signs it.
func TestSQS(t *testing.T) {
	datadriven.Walk(t, "testdata/sqs", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			s := &sqsStory{restStory: restStory{t: t, f: newFake(1)}, k: newTokenSet()}
			s.k.add("boss", auth.Rights{Namespace: "team", Roles: auth.Admin})
			s.k.add("mail", auth.Rights{Namespace: "team", Roles: auth.Produce | auth.Consume, Queues: []string{"mail*"}})
			s.k.add("eye", auth.Rights{Namespace: "team", Roles: auth.Observe})
			for i := range s.k.tokens {
				s.k.tokens[i].SQS = true
			}
			s.k.publish()
			s.f.auth = s.k.auth
			s.g = newGateway(s.f)
			s.g.cfg.SQS, s.g.cfg.Logger = true, slog.New(slog.NewTextHandler(&s.log, nil))
			s.g.wire()
			s.handler = s.g.withSQS(http.NotFoundHandler())
			datadriven.RunTest(t, path, s.step)
			s.g.Shutdown(context.Background())
		})
	})
}

type sqsStory struct {
	restStory
	k        *tokenSet
	handler  http.Handler
	receipts []string // of messages, in order of arrival; $0 in a body stands for the first
	move     string   // the handle of the last move task, which is random; $move stands for it
	log      strings.Builder
}

func (s *sqsStory) step(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "sqs":
		return s.sqs(d)
	case "quota": // requests per second; 0: none
		var q task.Quotas
		d.ScanArgs(t, "requests", &q.Requests)
		s.k.auth.Replace(auth.Access{Tokens: s.k.tokens, Namespaces: []string{"team"}, Quotas: map[string]task.Quotas{"team": q}})
		return ""
	case "started": // the authors of the operations
		ctx, _ := callinfo.Begin(t.Context(), task.InterfaceSQS, "test")
		page, err := s.g.services.sqs.Operations(ctx, task.ID{}, 10)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		var out strings.Builder
		for _, o := range page.Operations {
			fmt.Fprintf(&out, "%s by %q over %s from %s\n", o.Spec.Action, o.Spec.By.Name, o.Spec.By.Interface, o.Spec.By.Address)
		}
		return out.String()
	case "counted": // what the node reports of its calls and callers
		return fmt.Sprintf("%d calls, %d workers\n", s.g.access.Calls.InUse(), len(s.f.registry.Counts()))
	}
	return s.restStory.step(t, d)
}

var (
	receiptHandle = regexp.MustCompile(`"ReceiptHandle":"([^"]+)"`)
	moveHandle    = regexp.MustCompile(`"TaskHandle":"([^"]+)"`)
)

func (s *sqsStory) sqs(d *datadriven.TestData) string {
	s.k.auth.Refreshed(time.Now())
	body := strings.ReplaceAll(d.Input, "$move", s.move)
	for i, r := range s.receipts {
		body = strings.ReplaceAll(body, fmt.Sprintf("$%d", i), r)
	}
	r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	for _, a := range d.CmdArgs {
		switch value := a.Vals[0]; a.Key {
		case "do":
			r.Header.Set("X-Amz-Target", "AmazonSQS."+value)
		case "token":
			r.Header.Set("Authorization", "Bearer "+s.k.secret[value])
		case "key", "false-key":
			key := auth.AccessKeyOf(auth.HashOf(s.k.secret[value]))
			if a.Key == "false-key" {
				key.Secret = "another"
			}
			sum := sha256.Sum256([]byte(body))
			if err := signer.NewSigner().SignHTTP(s.t.Context(), aws.Credentials{AccessKeyID: key.ID, SecretAccessKey: key.Secret}, r,
				hex.EncodeToString(sum[:]), "sqs", "eu-west-1", time.Now()); err != nil {
				d.Fatalf(s.t, "%v", err)
			}
		default:
			r.Header.Set(a.Key, value)
		}
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	for _, m := range receiptHandle.FindAllStringSubmatch(w.Body.String(), -1) {
		s.receipts = append(s.receipts, m[1])
	}
	if m := moveHandle.FindStringSubmatch(w.Body.String()); m != nil {
		s.move = m[1]
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", w.Code, w.Header().Get("x-amzn-query-error"),
		moveHandle.ReplaceAllString(w.Body.String(),
			`"TaskHandle":"$$move"`))) + "\n"
}

// Where no token is required, SQS accepts only known hosts, like the other APIs.
func TestSQSKeepsToItsHosts(t *testing.T) {
	g := newGateway(newFake())
	g.cfg.SQS = true
	g.wire()
	handler := g.withSQS(http.NotFoundHandler())
	for host, want := range map[string]int{"localhost": 200, "evil.example": 0} {
		r := httptest.NewRequest("POST", "http://"+host+"/", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/x-amz-json-1.0")
		r.Header.Set("X-Amz-Target", "AmazonSQS.ListQueues")
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); (w.Code == 200) != (want == 200) {
			t.Errorf("host %s: %d %s", host, w.Code, w.Body)
		}
	}
}

// sqsCalls are all calls that package sqs makes to the gateway, for a queue with a claimed task.
var sqsCalls = map[string]func(ctx context.Context, g *sqsCore, q queues.Queue, c broker.Claimed) error{
	"find a queue": func(ctx context.Context, g *sqsCore, _ queues.Queue, _ broker.Claimed) error {
		_, _, err := g.Queue(ctx, "other")
		return err
	},
	"list queues": func(ctx context.Context, g *sqsCore, _ queues.Queue, _ broker.Claimed) error {
		_, err := g.Queues(ctx, "*", "", 9)
		return err
	},
	"put a queue": func(ctx context.Context, g *sqsCore, q queues.Queue, _ broker.Claimed) error {
		return g.PutQueue(ctx, q.Name, func(*task.QueueConfig) error { return nil })
	},
	"drop a queue": func(ctx context.Context, g *sqsCore, q queues.Queue, _ broker.Claimed) error {
		return g.DropQueue(ctx, q)
	},
	"purge a queue": func(ctx context.Context, g *sqsCore, q queues.Queue, _ broker.Claimed) error { return g.Purge(ctx, q) },
	"count": func(ctx context.Context, g *sqsCore, q queues.Queue, _ broker.Claimed) error {
		_, err := g.Depth(ctx, q)
		return err
	},
	"enqueue": func(ctx context.Context, g *sqsCore, q queues.Queue, _ broker.Claimed) error {
		return g.Enqueue(ctx, q, []task.Spec{{Type: "a", Queue: q.Name, Priority: task.Normal, ContentType: "x/y"}})[0].Err
	},
	"claim": func(ctx context.Context, g *sqsCore, q queues.Queue, _ broker.Claimed) error {
		_, err := g.Claim(ctx, broker.ClaimCall{Queues: []broker.Share{{Queue: q.Name}}, Worker: "w", Max: 1}, 0)
		return err
	},
	"settle": func(ctx context.Context, g *sqsCore, _ queues.Queue, c broker.Claimed) error {
		return g.Settle(ctx, []broker.Settle{{Verb: broker.Ack, Hold: broker.Hold{Namespace: "default", ID: c.ID, Token: c.Token}}})[0].Err
	},
	"ask for a claim": func(ctx context.Context, g *sqsCore, _ queues.Queue, c broker.Claimed) error {
		_, err := g.FirstClaimed(ctx, c.ID)
		return err
	},
	"start an operation": func(ctx context.Context, g *sqsCore, q queues.Queue, _ broker.Claimed) error {
		return g.StartOperation(ctx, broker.OperationSpec{Action: task.Move, Filter: broker.Filter{Queue: q.Name}, ToQueue: q.Name})
	},
	"list operations": func(ctx context.Context, g *sqsCore, _ queues.Queue, _ broker.Claimed) error {
		_, err := g.Operations(ctx, task.ID{}, 9)
		return err
	},
	"end an operation": func(ctx context.Context, g *sqsCore, _ queues.Queue, _ broker.Claimed) error {
		return g.AbortOperation(ctx, task.NewID(1, 1, 7))
	},
}

// startSQSCall prepares an SQS call.
func startSQSCall(t *testing.T) (*fake, *sqsCore, queues.Queue, broker.Claimed) {
	f := newFake(1, 2)
	g := newGateway(f)
	ctx, _ := callinfo.Begin(t.Context(), "sqs", "test")
	put(t, g, ctx, "q", 2, "1")
	if _, err := (g.services.operator).SpreadQueue(ctx, &pawlv1.SpreadQueueRequest{Queue: "q", Parts: 2}); err != nil {
		t.Fatal(err)
	}
	core := &g.services.sqs
	q, _, err := core.Queue(ctx, "q")
	if err != nil {
		t.Fatal(err)
	}
	got, err := core.Claim(ctx, broker.ClaimCall{Queues: []broker.Share{{Queue: "q"}}, Worker: "w", Max: 1}, 0)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if err := sqsCalls["start an operation"](ctx, core, q, got[0]); err != nil {
		t.Fatal(err)
	}
	f.faults = &faults{}
	return f, core, q, got[0]
}

// Package sqs gets the error of any call that fails.
func TestSQSReceivesEveryError(t *testing.T) {
	for what, do := range sqsCalls {
		for nth := 0; ; nth++ { // 0: none fails
			var err error
			var f *fake
			synctest.Test(t, func(t *testing.T) { // some wait for a while
				var g *sqsCore
				var q queues.Queue
				var c broker.Claimed
				f, g, q, c = startSQSCall(t)
				f.faults.nth = nth
				ctx, _ := callinfo.Begin(t.Context(), "sqs", "test")
				err = do(ctx, g, q, c)
				g.claims.close(context.Background())
			})
			failed := nth > 0 && f.faults.asked >= nth
			// another shard has the task
			if nth == 0 && (err != nil || f.faults.asked == 0) || failed && !errors.Is(err, errPlanted) &&
				!(what == "claim" && err == nil) {
				t.Errorf("SQS call to %s, with failure of call %d: %v", what, nth, err)
			}
			if nth > 0 && !failed {
				break
			}
		}
	}
}

// An SQS action that changes something has one actor, otherwise nothing is done.
func TestSQSActors(t *testing.T) {
	for what, do := range sqsCalls {
		f, g, q, c := startSQSCall(t)
		ctx, _ := callinfo.Begin(metadata.NewIncomingContext(t.Context(), metadata.Pairs("pawl-actor", "a", "pawl-actor", "b")), "sqs",
			"test")
		err := do(ctx, g, q, c)
		acts := slices.Contains([]string{"put a queue", "drop a queue", "purge a queue", "start an operation", "end an operation"}, what)
		if e, _ := task.AsError(err); acts && (e == nil || e.Field != "actor" || f.faults.asked != 0) || !acts && err != nil {
			t.Errorf("SQS call to %s with two actors: %v, after %d calls", what, err, f.faults.asked)
		}
		if what == "start an operation" {
			ctx, _ := callinfo.Begin(task.WithScope(t.Context(), task.Scope{Queues: []string{"q"}}), "sqs", "test")
			for _, spec := range []broker.OperationSpec{{Filter: broker.Filter{Queue: "r"}, ToQueue: "q"},
				{Filter: broker.Filter{Queue: "q"}, ToQueue: "r"}} {
				if e, _ := task.AsError(g.StartOperation(ctx, spec)); e == nil || e.Code != task.CodePermissionDenied {
					t.Errorf("StartOperation from %q to %q: %v, want permission denied", spec.Filter.Queue, spec.ToQueue, e)
				}
			}
			if err := g.StartOperation(ctx, broker.OperationSpec{Action: "juggle", Filter: broker.Filter{Queue: "q"},
				ToQueue: "q"}); err == nil {
				t.Error("StartOperation accepted an unknown action")
			}
		}
	}
}

// A purge ends the claimed tasks in every part of a queue.
func TestPurgeEndsClaims(t *testing.T) {
	f, g, q, c := startSQSCall(t)
	for _, x := range f.tasks {
		if x.view.ID != c.ID {
			x.at = 2
			x.view.Exec = &schema.Exec{State: task.Claimed}
		}
	}
	ctx, _ := callinfo.Begin(t.Context(), "sqs", "test")
	if err := g.Purge(ctx, q); err != nil {
		t.Fatal(err)
	}
	for _, x := range f.tasks {
		if x.view.Exec.State != task.Cancelled {
			t.Errorf("a task in shard %d is %s, want cancelled", x.at, x.view.Exec.State)
		}
	}
}

// Dropping a queue discards its dead letters, and leaves others alone.
func TestDropEndsDeadLetters(t *testing.T) {
	for state, want := range map[task.State]task.State{task.Dead: task.Discarded, task.Poisoned: task.Discarded,
		task.Succeeded: task.Succeeded} {
		f, g, q, _ := startSQSCall(t)
		for _, x := range f.tasks {
			x.view.Exec = &schema.Exec{State: state}
		}
		ctx, _ := callinfo.Begin(t.Context(), "sqs", "test")
		if err := g.DropQueue(ctx, q); err != nil {
			t.Fatal(err)
		}
		for _, x := range f.tasks {
			if got := x.view.Exec.State; got != want {
				t.Errorf("a task that was %s is %s, want %s", state, got, want)
			}
		}
	}
}

// FirstClaimed returns the earliest recorded start of an attempt.
func TestFirstClaimed(t *testing.T) {
	f, g, _, c := startSQSCall(t)
	ctx, _ := callinfo.Begin(t.Context(), "sqs", "test")
	if at, err := g.FirstClaimed(ctx, c.ID); err != nil || !at.IsZero() {
		t.Errorf("FirstClaimed of a task without attempts = %v, %v", at, err)
	}
	f.tasks[c.ID].view.Attempts = []*broker.Attempt{{StartedAt: 5_000_000}, {StartedAt: 6_000_000}}
	if at, err := g.FirstClaimed(ctx, c.ID); err != nil || at.Unix() != 5 {
		t.Errorf("FirstClaimed of a task with two attempts = %v, %v", at, err)
	}
	if _, err := g.FirstClaimed(ctx, task.NewID(1, 1, 99)); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("FirstClaimed of a task that does not exist: %v, want not found", err)
	}
}

// Other requests bypass the SQS API, and a namespace has no more concurrent calls there than elsewhere.
func TestOtherRequestsBypassSQS(t *testing.T) {
	g := newGateway(newFake())
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	knock := func(header string) (int, string) {
		r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader("{}"))
		if header != "" {
			r.Header.Set("Content-Type", "application/x-amz-json-1.0")
			r.Header.Set("X-Amz-Target", header)
		}
		w := httptest.NewRecorder()
		g.withSQS(next).ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if code, body := knock("AmazonSQS.ListQueues"); code != http.StatusForbidden || !strings.Contains(body, "--sqs") {
		t.Errorf("SQS request with the SQS API off: %d %s", code, body)
	}
	if code, _ := knock(""); code != http.StatusTeapot {
		t.Errorf("other request with the SQS API off: status %d", code)
	}
	g.cfg.SQS = true
	g.wire()
	if code, _ := knock(""); code != http.StatusTeapot {
		t.Errorf("other request with the SQS API on: status %d", code)
	}
	if code, body := knock("AmazonSQS.ListQueues"); code != 200 || g.access.Calls.InUse() != 0 {
		t.Errorf("SQS request: %d %s, %d calls in use after it", code, body, g.access.Calls.InUse())
	}
	g.access.Calls = admission.NewSlots(2)
	g.access.Calls.TryAcquire("default")
	if code, body := knock("AmazonSQS.ListQueues"); code == 200 || !strings.Contains(body, "in progress") || g.access.Calls.InUse() != 1 {
		t.Errorf("SQS request over the limit of calls: %d %s, %d calls in use after it", code, body, g.access.Calls.InUse())
	}
}

// Pages of other sites can have a browser send GETs, and forms that name their origin. They change nothing by that,
// even if they claim to be signed.
func TestSQSRefusesWhatPagesSend(t *testing.T) {
	g := newGateway(newFake())
	g.cfg.SQS = true
	g.wire()
	handler := g.withSQS(http.NotFoundHandler())
	send := func(r *http.Request) bool {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code == http.StatusForbidden
	}
	for _, action := range sqs.Actions() {
		reads := strings.HasPrefix(action, "Get") || strings.HasPrefix(action, "List")
		for _, signed := range []string{"", "&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a"} {
			path := "http://localhost/000000000000/mail?Action=" + action + signed
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut} {
				if refused := send(httptest.NewRequest(method, path, nil)); refused == reads {
					t.Errorf("%s %s: refused: %t", method, path, refused)
				}
			}
			for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"} {
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					r := httptest.NewRequest(method, path, nil)
					r.Header.Set(header, value)
					if !send(r) {
						t.Errorf("%s %s with %s: %s was not refused", method, path, header, value)
					}
				}
			}
			if send(httptest.NewRequest(http.MethodPost, path, nil)) {
				t.Errorf("POST %s was refused", path)
			}
		}
	}
}

// Large requests of SQS whose signature is not checked yet take no memory from the other requests of their namespace.
// One that waits in vain is refused.
func TestSQSBodiesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(newFake())
		g.wire()
		ctx, _ := callinfo.Begin(t.Context(), task.InterfaceSQS, "test")
		all, err := g.services.sqs.Reserve(ctx, g.services.sqs.bodies.PerNamespace())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := g.services.sqs.Reserve(ctx, 1); !errors.Is(err, task.ErrUnavailable) || time.Since(began) != rest.BodyTimeout {
			t.Errorf("a reservation beyond the share: %v after %v", err, time.Since(began))
		}
		if now, _ := g.memory.Large.InUse(); now != 0 {
			t.Errorf("SQS holds %d bytes of the memory for other requests", now)
		}
		all.Release()
	})
}

// A FIFO queue keeps its order when its settings are replaced, unless the call says otherwise. Another queue gets the default.
func TestSettingsOfFIFOQueues(t *testing.T) {
	for _, c := range []struct {
		attribute string
		now       task.KeyOrder
		asked     pawlv1.KeyOrder
		want      task.KeyOrder
	}{
		{"sqs:FifoQueue", task.KeyOrderStrict, pawlv1.KeyOrder_KEY_ORDER_UNSPECIFIED, task.KeyOrderStrict},
		{"sqs:FifoQueue", task.KeyOrderStrict, pawlv1.KeyOrder_KEY_ORDER_STRICT, task.KeyOrderStrict},
		{"sqs:FifoQueue", task.KeyOrderStrict, pawlv1.KeyOrder_KEY_ORDER_NONE, task.KeyOrderNone},
		{"sqs:FifoQueue", task.KeyOrderNone, pawlv1.KeyOrder_KEY_ORDER_UNSPECIFIED, task.KeyOrderNone},
		{"sqs:DelaySeconds", task.KeyOrderStrict, pawlv1.KeyOrder_KEY_ORDER_UNSPECIFIED, task.KeyOrderNone},
	} {
		f := newFake()
		q := queues.Queue{Namespace: "default", Name: "q.fifo", Shard: 1, Config: task.QueueConfig{Version: 1,
			Settings: task.DefaultSettings(), Annotations: map[string]string{c.attribute: "true"}}}
		q.Config.Settings.KeyOrder = c.now
		f.queues[q.Name] = q
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		put := &pawlv1.PutQueueRequest{Queue: q.Name, Settings: &pawlv1.QueueSettings{KeyOrder: c.asked, MaxLength: 7}}
		_, err := newGateway(f).services.operator.PutQueue(ctx, put)
		if got := f.queues[q.Name].Config.Settings; err != nil || got.KeyOrder != c.want || got.MaxLength != 7 {
			t.Errorf("a queue with %s and the order %q, put with %v: %q, %d, %v; want %q", c.attribute, c.now, c.asked, got.KeyOrder,
				got.MaxLength, err, c.want)
		}
	}
}
