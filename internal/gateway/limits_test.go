package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// docs/limits.md has a row with the value of each limit that GetLimits returns.
func TestLimitsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9,]+) ").FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = strings.ReplaceAll(m[2], ",", "")
	}
	ctx, call := callinfo.Begin(t.Context(), "grpc", "test")
	call.Principal = callinfo.Principal{Principal: auth.Anonymous}
	limits, err := newGateway(newFake()).services.access.GetLimits(ctx, &pawlv1.GetLimitsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range limits.Limits {
		if rows[b.Name] != fmt.Sprint(b.Value) {
			t.Errorf("docs/limits.md has for %s the value %q, the limit is %d %s", b.Name, rows[b.Name], b.Value, b.Unit)
		}
		delete(rows, b.Name)
	}
	if len(rows) > 0 {
		t.Errorf("docs/limits.md has rows for limits that do not exist: %v", rows)
	}
	for _, q := range task.AllQuotas {
		if access, err := os.ReadFile("../../docs/access.md"); err != nil || !bytes.Contains(access, []byte("`"+string(q)+"`")) {
			t.Errorf("docs/access.md does not document quota %s (%v)", q, err)
		}
	}
}

// A URL, headers or metadata that are too long are refused before they are processed.
func TestLongHeadersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		long := strings.Repeat("x", listen.MaxHTTPHeaders+8<<10)
		for what, head := range map[string]string{"a URL": "GET /api/v1/tasks?q=" + long + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"a header": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + long + "\r\n\r\n"} {
			c, _ := l.dial(t.Context(), "")
			go io.WriteString(c, head)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("%s of %d bytes: %v, %v, want status 431", what, len(long), resp, err)
			}
			c.Close()
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x", long)
		_, err := pawlv1.NewAccessServiceClient(dial(t, l)).WhoAmI(ctx, &pawlv1.WhoAmIRequest{})
		if err == nil {
			t.Error("metadata beyond the limit was accepted")
		}
	})
}

// A message that decompresses to more than the limit is refused, and REST accepts no compressed bodies.
func TestCompressedBodiesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, l := serve(t, f)
		bomb := &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, 30<<20)}} // 30 KB compressed
		_, err := pawlv1.NewProducerServiceClient(dial(t, l)).Enqueue(t.Context(), bomb, grpc.UseCompressor("gzip"))
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("gRPC: %v, want resource exhausted", err)
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write([]byte(`{"type":"a"}`))
		_ = z.Close()
		c, _ := l.dial(t.Context(), "")
		go fmt.Fprintf(c, "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s",
			packed.Len(), packed.Bytes())
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 400 {
			t.Fatalf("REST: %v, %v, want status 400", resp, err)
		}
		if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), "Content-Encoding") {
			t.Errorf("REST: %s", body)
		}
		c.Close()
	})
}

// A caller that does not read its response is disconnected.
func TestCallersThatDoNotReadAreDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.maxConns = 1
		_, l := serve(t, f)
		c, _ := l.dial(t.Context(), "") // a pipe: nothing is written until it is read
		_, _ = io.WriteString(c, "GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
		pass(rest.AnswerTimeout + time.Second)
		next, _ := l.dial(t.Context(), "")
		_, _ = io.WriteString(next, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := next.Read(make([]byte, 1)); err != nil {
			t.Errorf("no new connection after %v, so the unread one is still open: %v", rest.AnswerTimeout, err)
		}
		next.Close()
		c.Close()
	})
}

// The rates of a namespace: which calls are refused, when they may be retried, and which calls are never refused.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		k := newTokenSet()
		k.add("boss", auth.Everything)
		k.add("team", auth.Rights{Namespace: "team", Roles: auth.Admin})
		(&fakeTokens{}).answer(f.table())
		f.auth = k.auth
		cfg := f.config()
		cfg.Limits.Payload = 100
		g := New(cfg)
		t.Cleanup(func() { g.Shutdown(context.Background()) })
		quotas := func(q task.Quotas) {
			k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"team"}, Quotas: map[string]task.Quotas{"team": q}})
			k.auth.Refreshed(time.Now())
		}
		call := func(who, method, path, body string) (code int, answer string, after string) {
			r, _ := http.NewRequest(method, path, strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+k.secret[who])
			if body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			w := serveChecked(t, g.Handler(), r, []byte(body))
			return w.Code, w.Body.String(), w.Header().Get("Retry-After")
		}
		one := `{"type":"a","queue":"q","payload":"x"}`
		quotas(task.Quotas{Requests: 4})
		for i, want := range []int{202, 202, 202, 202, 429, 429} {
			code, answer, after := call("team", "POST", "/api/v1/tasks", one)
			if code != want || want == 429 && (after != "1" ||
				!strings.Contains(answer, `"code":"rate_limited","reason":"max_requests_per_second"`)) {
				t.Errorf("call %d at 4 a second: %d %s, Retry-After %q", i+1, code, answer, after)
			}
		}
		for _, free := range [][4]string{{"boss", "POST", "/api/v1/tasks", one}, {"team", "GET", "/api/v1/me", ""},
			{"boss", "GET", "/api/v1/namespaces", ""}, {"team", "POST", "/api/v1/tasks/ack",
				`{"items":[{"task_id":"018f0000-0000-7000-8000-000000000001","claim_token":"AQEBAAAAAAAAAAc"}]}`}} {
			if code, answer, _ := call(free[0], free[1], free[2], free[3]); code == 429 {
				t.Errorf("call %v, which is not counted, was refused: %s", free, answer)
			}
		}
		// they ask shards
		for _, path := range []string{"/api/v1/namespaces", "/api/v1/namespaces/team", "/api/v1/limits",
			"/api/v1/server", "/api/v1/stats"} {
			if code, answer, _ := call("team", "GET", path, ""); code != 429 {
				t.Errorf("call to %s was not counted: %d %s", path, code, answer)
			}
		}
		pass(time.Second) // four more
		batch := `{"tasks":[` + one + strings.Repeat(","+one, 9) + `]}`
		if _, answer, _ := call("team", "POST", "/api/v1/tasks/batch", batch); strings.Count(answer, `"task_id"`) != 4 ||
			strings.Count(answer, `rate_limited`) != 6 {
			t.Errorf("batch of 10 tasks with tokens for 4: %s", answer)
		}
		pass(time.Minute)
		quotas(task.Quotas{Bytes: 10})
		large := `{"type":"a","queue":"q","payload":"` + strings.Repeat("x", 95) + `"}`
		for i, want := range []int{202, 429} {
			if code, answer, _ := call("team", "POST", "/api/v1/tasks", large); code != want || want == 429 &&
				!strings.Contains(answer, "max_bytes_per_second") {
				t.Errorf("payload %d of 97 bytes at 10 a second: %d %s", i+1, code, answer)
			}
		}
		pass(11 * time.Second)
		k.auth.Refreshed(time.Now())
		if code, answer, _ := call("team", "POST", "/api/v1/tasks", large); code != 202 {
			t.Errorf("payload 11 s later: %d %s", code, answer)
		}
		quotas(task.Quotas{})
		for range 100 {
			if code, answer, _ := call("team", "POST", "/api/v1/tasks", large); code != 202 {
				t.Fatalf("payload without a quota: %d %s", code, answer)
			}
		}
	})
}

// These limits are part of what callers rely on, or bound what a node uses. Changing one must be deliberate.
func TestLimitsAreStable(t *testing.T) {
	for what, c := range map[string][2]int{
		"a sample": {sampleSize, 10}, "frames of a producer": {maxFrames, 64}, "spare receivers": {spareReceivers, 2},
		"results together": {maxResultsTogether, 1000},

		"slots": {maxSlots, 10_000}, "frames in a lane": {laneFrames, 64}, "items in a lane": {laneItems, 4000},
		"notices": {maxNotices, 1024}, "an instance": {maxInstance, 64},
	} {
		if c[0] != c[1] {
			t.Errorf("limit of %s = %d, want %d", what, c[0], c[1])
		}
	}
}

// Members of a group and SQS messages count towards the rates of their namespace like single tasks. The first one counts with its call.
func TestRatesOfManyTasks(t *testing.T) {
	for what, do := range map[string]func(ctx context.Context, g *Gateway) error{
		"a group": func(ctx context.Context, g *Gateway) error {
			_, err := g.services.group.CreateGroup(ctx, &pawlv1.CreateGroupRequest{Tasks: many(4, &pawlv1.TaskSpec{Type: "a"}), Open: true})
			return err
		},
		"members": func(ctx context.Context, g *Gateway) error {
			id := task.NewID(1, 7, 1)
			_, err := g.services.group.AddGroupTasks(ctx, &pawlv1.AddGroupTasksRequest{GroupId: id.String(),
				Tasks: many(4, &pawlv1.TaskSpec{Type: "a"})})
			if errors.Is(err, task.ErrNotFound) {
				err = nil
			}
			return err
		},
		"messages": func(ctx context.Context, g *Gateway) error {
			spec := task.Spec{Type: "a", Queue: "q", Priority: task.Normal, ContentType: "x/y"}
			for _, one := range (g.services.sqs).Enqueue(ctx, queues.Queue{Namespace: "default", Name: "q", Shard: 1},
				[]task.Spec{spec, spec, spec, spec}) {
				if one.Err != nil {
					return one.Err
				}
			}
			return nil
		},
		"a batch": func(ctx context.Context, g *Gateway) error {
			got, err := g.services.producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: many(4, &pawlv1.TaskSpec{Type: "a"})})
			if e := got.GetResults(); err == nil && e[3].GetError() != nil {
				err = errors.New(e[3].GetError().GetCode())
			}
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			for most, good := range map[int64]bool{3: true, 2: false} {
				k := newTokenSet()
				k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"default"}, Quotas: map[string]task.Quotas{
					"default": {Requests: most}}})
				k.auth.Refreshed(time.Now())
				f := newFake()
				f.auth = k.auth
				g := newGateway(f)
				ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
				together := what == "a group" || what == "members" // all or none of them, whatever the rate still allows
				if err := do(ctx, g); (err == nil) != (good || together) {
					t.Errorf("%s of 4 tasks at %d a second: %v", what, most, err)
				}
				if err := g.access.Rates.Take("default", task.Quotas{Requests: most}, 1, 0); good && err == nil {
					t.Errorf("%s of 4 tasks at %d a second left tokens for another call", what, most)
				}
				if err := do(ctx, g); err == nil && what != "members" {
					t.Errorf("%s of 4 tasks was accepted although none of %d a second is left", what, most)
				}
			}
		})
	}
}
