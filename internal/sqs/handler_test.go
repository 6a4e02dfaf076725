package sqs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// oneQueue is a Core with one queue. Calls that the tests do not need panic.
type oneQueue struct {
	Core
	q       queues.Queue
	wrote   int
	purged  int
	failing error
	during  func() // Purge
}

func (c *oneQueue) Namespace(context.Context) string { return defaultNamespace }

func (c *oneQueue) Queue(context.Context, string) (queues.Queue, bool, error) { return c.q, true, nil }

func (c *oneQueue) FreshQueue(context.Context, string) (queues.Queue, bool, error) {
	return c.q, true, nil
}

func (c *oneQueue) PutQueue(ctx context.Context, _ string, change func(*task.QueueConfig) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	to := c.q.Config
	if err := change(&to); err != nil {
		return err
	}
	c.q.Config = to
	c.wrote++
	return nil
}

func (c *oneQueue) Purge(ctx context.Context, _ queues.Queue) error {
	if c.during != nil {
		c.during()
	}
	if c.failing == nil && ctx.Err() == nil {
		c.purged++
	}
	return errors.Join(c.failing, ctx.Err())
}

// A failed purge may be retried immediately. After a successful one, another is refused for a minute.
func TestFailedPurgeIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &oneQueue{q: queues.Queue{Name: "mail", Config: task.QueueConfig{Version: 1,
			Annotations: map[string]string{"kept": "yes"}}}}
		purge := func(ctx context.Context) error {
			r := httptest.NewRequestWithContext(ctx, "POST", "http://pawl/", nil)
			return purgeQueue(&exchange{Handler: New(Config{Core: core}), ctx: ctx, r: r,
				in: &wire.Input{QueueURL: "http://pawl/000000000000/mail"}})
		}
		early := func(err error) bool {
			e, ok := errors.AsType[*wire.Error](err)
			return ok && e.Shape == wire.ErrPurgeQueueInProgress.Shape
		}
		core.failing = task.Unavailable(0, "a shard has no leader")
		for range 2 {
			if err := purge(t.Context()); !errors.Is(err, task.ErrUnavailable) {
				t.Errorf("purge that fails: %v, want unavailable", err)
			}
		}
		core.failing = nil
		gone, leave := context.WithCancel(t.Context())
		core.during = leave
		if err := purge(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("purge whose caller leaves: %v, want cancelled", err)
		}
		core.during = nil
		if err := purge(t.Context()); err != nil || core.purged != 1 {
			t.Fatalf("purge after failed ones: %v, %d purges, want 1", err, core.purged)
		}
		time.Sleep(58 * time.Second)
		if err := purge(t.Context()); !early(err) {
			t.Errorf("purge 58 s after another: %v, want it refused", err)
		}
		time.Sleep(2 * time.Second)
		if err := purge(t.Context()); err != nil || core.purged != 2 {
			t.Errorf("purge 60 s after another: %v, %d purges, want 2", err, core.purged)
		}
		if core.q.Config.Annotations["kept"] != "yes" {
			t.Error("a purge removed another annotation of the queue")
		}
	})
}

// A refused change of a queue writes nothing: even a write that changes nothing keeps a queue that is being deleted.
func TestRefusedChangesWriteNothing(t *testing.T) {
	granted, err := json.Marshal(policy{Statement: slices.Repeat([]json.RawMessage{json.RawMessage(`{"Sid":"a"}`)}, maxStatements)})
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]string{}
	for i := range maxTags {
		tags[noteTag+strconv.Itoa(i)] = ""
	}
	permission := wire.Input{Label: "a", AccountIDs: []string{"123456789012"}, ActionNames: []string{"*"}}
	other := permission
	other.Label = "b"
	for name, c := range map[string]struct {
		notes map[string]string
		do    action
		in    wire.Input
		want  string
	}{
		"another tag":   {tags, tagQueue, wire.Input{Tags: map[string]string{"a": "b"}}, "Too many tags"},
		"a label again": {map[string]string{noteAttribute + "Policy": string(granted)}, addPermission, permission, "Already exists"},
		"another permission": {map[string]string{noteAttribute + "Policy": string(granted)}, addPermission, other,
			"statements were found"},
		"an unknown label": {nil, removePermission, permission, "can't find label"},
		"a policy of its own": {map[string]string{noteAttribute + "Policy": "mine"}, addPermission, permission,
			"can not be changed by labels"},
		"other attributes": {nil, createQueue, wire.Input{QueueName: "mail", Attributes: map[string]string{"DelaySeconds": "7"}},
			"already exists with the same name"},
		"a purge after a purge": {map[string]string{notePurged: strconv.FormatInt(time.Now().Unix(), 10)}, purgeQueue, wire.Input{},
			"every 60 seconds"},
	} {
		core := &oneQueue{q: queues.Queue{Name: "mail", Config: task.QueueConfig{Version: 1, Annotations: c.notes}}}
		c.in.QueueURL = "http://pawl/000000000000/mail"
		err := c.do(&exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil),
			in: &c.in})
		if err == nil || !strings.Contains(err.Error(), c.want) || core.wrote != 0 {
			t.Errorf("%s: %v, want %q; %d writes", name, err, c.want, core.wrote)
		}
	}
}

// A failed purge does not create the queue again that was deleted meanwhile.
func TestFailedPurgeOfADeletedQueue(t *testing.T) {
	core := &oneQueue{q: queues.Queue{Name: "mail", Config: task.QueueConfig{Version: 1}}, failing: task.Unavailable(0,
		"a shard has no leader")}
	core.during = func() { core.q, core.wrote = queues.Queue{Name: "mail"}, 0 }
	r := httptest.NewRequest("POST", "http://pawl/", nil)
	err := purgeQueue(&exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: r,
		in: &wire.Input{QueueURL: "http://pawl/000000000000/mail"}})
	if !errors.Is(err, core.failing) || core.wrote != 0 {
		t.Errorf("purge: %v, want %v; %d writes", err, core.failing, core.wrote)
	}
}

func TestRegionOfARequest(t *testing.T) {
	for _, c := range []struct{ header, query, want string }{
		{"", "", "us-east-1"},
		{"AWS4-HMAC-SHA256 Credential=AKID/20260102/eu-west-1/sqs/aws4_request, SignedHeaders=host, Signature=0", "", "eu-west-1"},
		{"", "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKID%2F20260102%2Feu-west-3%2Fsqs%2Faws4_request", "eu-west-3"},
		{"", "?X-Amz-Credential=AKID%2F20260102%2Feu_west%2Fsqs%2Faws4_request", "us-east-1"},
		{"AWS4-HMAC-SHA256 Credential=AKID/20260102/sqs/aws4_request, Signature=0", "", "us-east-1"},
		{"Bearer pawl", "?X-Amz-Credential=AKID%2F20260102%2Fap-south-1%2Fsqs%2Faws4_request", "ap-south-1"},
	} {
		r := httptest.NewRequest("GET", "http://pawl/"+c.query, nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		if got := (&exchange{r: r}).region(); got != c.want {
			t.Errorf("header %q, query %q: region %s", c.header, c.query, got)
		}
	}
}

// After a restore the fences of claims are high, but that does not count as receives, which would move messages to the dead-letter queue.
func TestFencesOfAnEpochAreNotReceives(t *testing.T) {
	const epoch = 1767225600
	x := exchange{Handler: &Handler{Config: Config{Core: &oneQueue{}}}}
	fence := uint64(9)
	for want := range uint64(3) {
		fence = task.NextFence(fence, epoch)
		c := broker.Claimed{Envelope: &schema.Envelope{}, Token: task.Token{Epoch: epoch, Fence: fence}}
		if got := receives(&c); got != want+1 {
			t.Errorf("claim %d after a restore is receive %d", want+1, got)
		}
		left, err := x.redrive(&queues.Queue{}, redrive{Max: 3}, []broker.Claimed{c})
		if err != nil || len(left) != 1 {
			t.Errorf("claim %d after a restore: %d messages are left, %v", want+1, len(left), err)
		}
	}
}

// A request that announces more bytes than it may have is refused before anything is reserved or read. One that does not say how many it
// has is read up to the limit, and reserves nothing if it is small.
func TestTooLargeRequests(t *testing.T) {
	for _, c := range []struct {
		announced, has, read int64
		reserved             []int64
	}{
		{maxBody + 1, maxBody + 1, 0, nil}, {maxBody, maxBody, maxBody, []int64{2 * maxBody}},
		{-1, maxBody + 9, maxBody + 1, []int64{2 * maxBody}}, {-1, maxBody, maxBody, []int64{2 * maxBody}},
		{-1, contract.SmallMessage, contract.SmallMessage, []int64{2 * maxBody}}, {-1, contract.SmallMessage - 1, contract.SmallMessage - 1,
			nil},
		{-1, 0, 0, nil}, {contract.SmallMessage, contract.SmallMessage, contract.SmallMessage, nil},
	} {
		core, body := &reserving{}, &zeros{left: c.has}
		r := httptest.NewRequest("POST", "http://pawl/", body)
		r.ContentLength = c.announced
		got, err := (&exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: r}).body()
		if read := c.has - body.left; read != c.read || !slices.Equal(core.reserved, c.reserved) {
			t.Errorf("%d bytes, announced as %d: %d bytes were read and %v reserved, want %d and %v", c.has, c.announced,
				read, core.reserved, c.read, c.reserved)
		}
		e, refused := errors.AsType[*wire.Error](err)
		if large := c.has > maxBody; refused != large ||
			large && e.Shape != wire.ErrInvalidParameterValue.Shape || !large && int64(len(got)) != c.has {
			t.Errorf("%d bytes, announced as %d: %d bytes, %v", c.has, c.announced, len(got), err)
		}
	}
}

// anyone is a caller who may do everything.
type anyone struct{}

func (anyone) Verify([]byte) error                       { return nil }
func (anyone) Authorize(string) (context.Context, error) { return context.Background(), nil }

// A queue's URL has the actions of that queue. A request that names none gets the answer that Amazon SQS gives.
func TestActionsOfAURL(t *testing.T) {
	core := &named{queues: map[string]task.QueueConfig{"mail": {Version: 1}}}
	h := New(Config{Core: core, Call: func(r *http.Request, handle func(context.Context, Caller) error) *task.Error {
		e, _ := task.AsError(handle(r.Context(), anyone{}))
		return e
	}})
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/000000000000/mail", "", 404, "<UnknownOperationException/>\n"},
		{"POST", "/000000000000/mail", "Version=2012-11-05", 404, "<UnknownOperationException/>\n"},
		{"POST", "/", "", 404, "<UnknownOperationException/>\n"},
		{"GET", "/000000000000/mail?Action=Nothing", "", 400,
			"<Code>InvalidAction</Code><Message>The action Nothing is not valid for this endpoint.</Message>"},
		{"GET", "/000000000000/mail?Action=CreateQueue&QueueName=a", "", 400,
			"<Code>InvalidAction</Code><Message>The action CreateQueue is not valid for this endpoint.</Message>"},
		{"POST", "/000000000000/mail", "Action=ListQueues", 400,
			"<Code>InvalidAction</Code><Message>The action ListQueues is not valid for this endpoint.</Message>"},
		{"POST", "/000000000000/mail", "Action=GetQueueUrl&QueueName=mail", 200, "<QueueUrl>http://pawl/000000000000/mail</QueueUrl>"},
		{"POST", "/", "Action=ListQueues", 200, "<QueueUrl>http://pawl/000000000000/mail</QueueUrl>"},
		{"POST", "/", "Action=CreateQueue&QueueName=a", 200, "<QueueUrl>http://pawl/000000000000/a</QueueUrl>"},
	} {
		w := httptest.NewRecorder()
		h.Serve(w, httptest.NewRequest(c.method, "http://pawl"+c.path, strings.NewReader(c.body)), nil)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, w.Code, w.Body, c.code, c.want)
		}
	}
	// A client of the JSON protocol may send anything to any URL: a header names the action.
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "http://pawl/000000000000/mail", strings.NewReader("{}"))
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set("X-Amz-Target", wire.TargetPrefix+"ListQueues")
	if h.Serve(w, r, nil); w.Code != 200 || !strings.Contains(w.Body.String(), `"http://pawl/000000000000/mail"`) {
		t.Errorf("ListQueues in JSON: %d %s", w.Code, w.Body)
	}
	if len(core.queues) != 2 {
		t.Errorf("the queues are %v", core.queues)
	}
}

// URLs of queues have the scheme by which the client reaches the server, or the proxy before it.
func TestSchemeOfURLs(t *testing.T) {
	for _, c := range []struct{ header, value, want string }{
		{"", "", "http"}, {"X-Forwarded-Proto", "https", "https"}, {"X-Forwarded-Proto", "http", "http"},
		{"Forwarded", "for=192.0.2.60;proto=https;by=203.0.113.43", "https"}, {"Forwarded", `Proto="HTTPS"`, "https"},
		{"Forwarded", "proto=http", "http"}, {"Forwarded", "proto=http, proto=https", "http"}, {"Forwarded", "host=proto.https", "http"},
	} {
		r := httptest.NewRequest("POST", "http://pawl/", nil)
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		x := &exchange{Handler: New(Config{Core: &oneQueue{}}), ctx: t.Context(), r: r}
		if got, want := x.urlOf("mail"), c.want+"://pawl/000000000000/mail"; got != want {
			t.Errorf("%s: %s: %s, want %s", c.header, c.value, got, want)
		}
	}
	x := &exchange{Handler: New(Config{Core: &oneQueue{}}), ctx: t.Context(), r: httptest.NewRequest("POST", "https://pawl/", nil)}
	if got := x.urlOf("mail"); got != "https://pawl/000000000000/mail" {
		t.Errorf("by TLS: %s", got)
	}
}

// The answer to a request whose body is not wanted is sent first, and then the body is read, so that the client gets to
// see the answer. A body that has stalled is not waited for again, and that of a stranger is left alone.
func TestRefusedBodiesAreRead(t *testing.T) {
	for what, c := range map[string]struct {
		announced, has int64
		broken         error // instead of the body's end
		full           error // what Reserve returns
		why            error // what Serve is called with
		stranger       bool
		code           int
		left           int64
	}{
		"too large":                  {maxBody + 1, maxBody + 1, nil, nil, nil, false, 400, 0},
		"too large, unannounced":     {-1, 2 * maxBody, nil, nil, nil, false, 400, 0},
		"far too large":              {5 * maxBody, 5 * maxBody, nil, nil, nil, false, 400, 5*maxBody - contract.MaxMessage},
		"without room":               {maxBody, maxBody, nil, contract.NoRoom(), nil, false, 503, 0},
		"for another server":         {maxBody, maxBody, nil, nil, task.Invalid("Host", "no"), false, 400, 0},
		"of a stranger":              {maxBody, maxBody, nil, nil, nil, true, 403, maxBody},
		"one that breaks off":        {maxBody, maxBody - 1, errors.ErrUnsupported, nil, nil, false, 400, 0},
		"one that breaks off, small": {-1, 9, errors.ErrUnsupported, nil, nil, false, 400, 0},
	} {
		core, body, w := &reserving{fails: c.full}, &zeros{left: c.has, broken: c.broken}, httptest.NewRecorder()
		handled := false
		body.reads = func() {
			if body.failed || handled && !w.Flushed {
				t.Errorf("%s: the body is read after it broke off, or before the answer is sent", what)
			}
		}
		h := New(Config{Core: core, Call: func(r *http.Request, handle func(context.Context, Caller) error) *task.Error {
			if c.stranger {
				return &task.Error{Code: task.CodePermissionDenied, Message: "unknown"}
			}
			e, _ := task.AsError(handle(r.Context(), nil))
			handled = true
			return e
		}})
		r := httptest.NewRequest("POST", "http://pawl/", body)
		r.ContentLength = c.announced
		h.Serve(w, r, c.why)
		if w.Code != c.code || body.left != c.left {
			t.Errorf("%s: answered with %d %s, and %d bytes were left unread, want %d and %d", what, w.Code, w.Body,
				body.left, c.code, c.left)
		}
	}
}

// reserving is a Core that records how much memory requests reserve.
type reserving struct {
	Core
	reserved []int64
	fails    error
}

func (c *reserving) Reserve(_ context.Context, n int64) (*admission.Reservation, error) {
	c.reserved = append(c.reserved, n)
	return nil, c.fails
}

// zeros is a body of so many zeros.
type zeros struct {
	left   int64
	broken error  // at the end; nil: io.EOF
	failed bool   // broken was returned
	reads  func() // called at each Read; nil: nothing is
}

func (z *zeros) Read(b []byte) (int, error) {
	if z.reads != nil {
		z.reads()
	}
	n := min(int64(len(b)), z.left)
	if z.left -= n; n == 0 {
		z.failed = z.broken != nil
		return 0, cmp.Or(z.broken, io.EOF)
	}
	return int(n), nil
}

// A server that can't handle requests yet refuses those of SQS in their own protocol, and no others.
func TestRefuse(t *testing.T) {
	refusal := task.Unavailable(time.Second, "the node waits")
	for name, c := range map[string]struct {
		header, value string
		path          string
		want          string // "": not SQS
	}{
		"a form":           {"Authorization", "AWS4-HMAC-SHA256 Credential=a", "/", "<Code>ServiceUnavailable</Code>"},
		"a URL":            {"", "", "/000000000000/mail", "<Message>the node waits</Message>"},
		"JSON":             {"Content-Type", "application/x-amz-json-1.0", "/", `"message":"the node waits"`},
		"with a charset":   {"Content-Type", "application/x-amz-json-1.0; charset=utf-8", "/", `"message":"the node waits"`},
		"an unsigned form": {"Content-Type", "application/x-www-form-urlencoded; charset=utf-8", "/", "<Code>ServiceUnavailable</Code>"},
		"a form of the UI": {"Content-Type", "application/x-www-form-urlencoded", "/login", ""},
		"a token":          {"Authorization", "Bearer a", "/", ""},
		"a probe":          {"", "", "/readyz", ""},
		"REST JSON":        {"Content-Type", "application/json", "/api/v1/tasks", ""},
	} {
		r := httptest.NewRequest("POST", "http://pawl"+c.path, strings.NewReader("Action=ListQueues"))
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		w := httptest.NewRecorder()
		switch is := Refuse(w, r, refusal); {
		case is != (c.want != ""):
			t.Errorf("%s: Refuse = %v", name, is)
		case is && (w.Code != 503 || !strings.Contains(w.Body.String(), c.want)):
			t.Errorf("%s: %d %s, want %q", name, w.Code, w.Body, c.want)
		case !is && w.Body.Len() > 0:
			t.Errorf("%s: answered with %s", name, w.Body)
		}
	}
}
