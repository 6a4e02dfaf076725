package docs

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/pawlq/pawl/internal/rest"
)

var rewrite = flag.Bool("rewrite", false, "write the examples of the REST API anew")

// examplesFile has an example of each operation, by operation id. tools/generate adds them to the OpenAPI document.
const examplesFile = root + "/internal/rest/examples.json"

// example is a request to an operation and its answer; nil: no body.
type example struct {
	Request json.RawMessage `json:"request,omitempty"`
	Status  int             `json:"status"`
	Answer  json.RawMessage `json:"answer"`
	// Stamped reports whether headers say which state of a shard the answer reflects.
	Stamped bool `json:"stamped,omitempty"`
}

// session calls every operation of the REST API once, and records requests and responses.
type session struct {
	t    *testing.T
	at   string // base URL: http://HOST:PORT
	doc  *openapi3.T
	ops  map[string]operation
	vars map[string]string // used in paths and bodies: $id
	said map[string]example
}

type operation struct{ method, path string }

// TestAPIExamples: the examples in the OpenAPI document are what a server receives and answers, except for ids and times.
func TestAPIExamples(t *testing.T) {
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer hook.Close()
	x := open(t, "--webhook-allow-network", "127.0.0.0/8")
	doc, err := openapi3.NewLoader().LoadFromData(rest.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, at: "http://" + x.server, doc: doc, ops: map[string]operation{}, said: map[string]example{},
		vars: map[string]string{"hook": hook.URL, "queue": "mail", "name": "nightly", "node": "n1", "shard": "1"}}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			s.ops[op.OperationID] = operation{method, path}
		}
	}
	s.play()

	for op := range s.ops {
		// responses that are not JSON, or are this document
		if _, ok := s.said[op]; !ok && !slices.Contains([]string{"getOpenAPI", "metrics", "watchEvents"}, op) {
			t.Errorf("%s has no example", op)
		}
	}
	if *rewrite {
		s.write()
		return
	}
	text, err := os.ReadFile(examplesFile)
	if err != nil {
		t.Fatal(err)
	}
	var examples map[string]example
	if err := json.Unmarshal(text, &examples); err != nil {
		t.Fatal(err)
	}
	for op, example := range s.said {
		written := examples[op]
		if !bytes.Equal(compact(written.Request), compact(example.Request)) {
			t.Errorf("%s: the example's request is %s, but the test sends %s", op, written.Request, example.Request)
		}
		if got, want := outline(example.Answer), outline(written.Answer); got != want {
			t.Errorf("%s: the example has %s\nbut the server answers %s", op, want, example.Answer)
		}
		if written.Stamped != example.Stamped {
			t.Errorf("%s: an answer with the headers of a shard: %t, but %t in the example", op, example.Stamped, written.Stamped)
		}
	}
}

// TestAPIExamplesAreValid: the document with its examples is valid, and every schema and operation has a description.
func TestAPIExamplesAreValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(rest.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
	for name, schema := range doc.Components.Schemas {
		if schema.Value.Description == "" {
			t.Errorf("schema %s has no description", name)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Summary == "" {
				t.Errorf("%s %s has no summary", method, path)
			}
		}
	}
}

// play makes every call once, in an order in which all succeed.
func (s *session) play() {
	s.do("getHealth", "")
	s.do("getReady", "")
	s.do("getServer", "")
	s.do("whoAmI", "")
	s.do("getLimits", "")

	// The life of a task, and everything that workers do.
	s.do("putQueue", `{"settings":{"lease":"1m","max_attempts":5,"max_running":50,"rate":{"limit":100,"period":"1s"}}}`)
	s.do("enqueue", `{"type":"mail.welcome","queue":"mail","payload":{"to":"a@example.com"},"priority":"high","tags":["signup"],`+
		`"idempotency_key":"welcome-42"}`, "id=task_id")
	s.do("explainTask", "")
	s.do("claim", `{"queues":["mail"],"types":["mail.welcome"],"wait":"20s","worker":"web-1/4711"}`, "token=tasks.0.claim_token")
	s.do("extend", `{"claim_token":"$token","progress":{"percent":40,"message":"rendered"}}`)
	s.do("beginOnce", `{"claim_token":"$token","key":"payment/42"}`)
	s.do("finishOnce", `{"claim_token":"$token","key":"payment/42","result":{"receipt":"r-17"},"ttl":"24h"}`)
	s.quietly("beginOnce", `{"claim_token":"$token","key":"payment/43"}`)
	s.do("abandonOnce", `{"claim_token":"$token","key":"payment/43"}`)
	s.do("ack", `{"claim_token":"$token","result":{"sent":true}}`)
	s.do("getTask", "")
	s.do("enqueueBatch", `{"tasks":[{"type":"mail.welcome","queue":"mail","payload":{"to":"b@example.com"}},{"type":"mail.welcome",`+
		`"queue":"mail","payload":{"to":"c@example.com"}}]}`)
	s.quietly("claim", `{"queues":["mail"],"max":2,"worker":"web-1/4711"}`, "id=tasks.0.task_id", "token=tasks.0.claim_token",
		"id2=tasks.1.task_id", "token2=tasks.1.claim_token")
	s.do("release", `{"claim_token":"$token","delay":"5s"}`)
	s.do("runTaskNow", "")
	s.do("updateTask", `{"priority":"low","payload":{"to":"bb@example.com"}}`)
	s.do("extendMany", `{"extends":[{"task_id":"$id2","claim_token":"$token2"}]}`)
	s.do("releaseMany", `{"releases":[{"task_id":"$id2","claim_token":"$token2"}]}`)
	s.quietly("claim", `{"queues":["mail"],"max":2,"worker":"web-1/4711"}`, "id=tasks.0.task_id", "token=tasks.0.claim_token",
		"id2=tasks.1.task_id", "token2=tasks.1.claim_token")
	s.do("ackMany", `{"acks":[{"task_id":"$id2","claim_token":"$token2","result":{"sent":true}}]}`)
	s.do("fail", `{"claim_token":"$token","error":{"type":"SMTPError","message":"mailbox is full"},"retry_in":"10m"}`)
	s.do("retryTask", "")
	s.quietly("claim", `{"queues":["mail"],"worker":"web-1/4711"}`, "id=tasks.0.task_id", "token=tasks.0.claim_token")
	s.do("failMany", `{"fails":[{"task_id":"$id","claim_token":"$token","error":{"message":"no such address"},"outcome":"dead"}]}`)

	// Operators look at queues and tasks, and change them.
	s.do("listDead", "")
	s.do("groupAllDead?group_by=error", "")
	s.do("listPoisoned", "")
	s.do("groupAllPoisoned?group_by=error", "")
	s.quietly("retryTask", "")
	s.do("listTasks?queue=mail&tag=signup&limit=1", "")
	s.do("cancelTask", "")
	s.do("pauseQueue", `{"reason":"the relay moves"}`)
	s.quietly("enqueue", `{"type":"mail.welcome","queue":"mail"}`, "id=task_id")
	s.do("explainQueue", "")
	s.do("discardTask", `{"reason":"sent by hand"}`)
	s.do("resumeQueue", "")
	s.quietly("enqueue", `{"type":"mail.welcome","queue":"mail"}`)
	s.do("startOperation", `{"action":"set_priority","filter":{"queue":"mail","type":"mail.welcome"},"priority":"low",`+
		`"reason":"make room"}`,
		"op=operation_id")
	s.vars["id"] = s.vars["op"]
	s.do("getOperation?wait=10s", "")
	s.do("listOperations", "")
	s.steerOperation()
	s.do("purgeQueue", `{"reason":"test data"}`)
	s.do("closeBreaker", `{"type":"mail.welcome","reason":"the relay is back"}`)
	s.do("spreadQueue", `{"parts":1}`)
	s.do("listQueues", "")
	s.do("getQueue", "")
	s.do("getQueueStats?window=1h", "")
	s.do("getStats?window=1h", "")
	s.do("getQueueScale?target=60s&slots=10", "")
	s.vars["type"] = "mail.welcome"
	s.do("listTypes?window=1h&limit=1", "")
	s.do("getTypeStats?window=5m&queue=mail", "")

	// Groups and schedules.
	s.do("createGroup", `{"name":"import of `+
		`Monday","tasks":[{"type":"part","payload":1},{"type":"part","payload":2}],"on_complete":{"type":"report"},"open":true}`,
		"id=group_id")
	s.do("addGroupTasks", `{"tasks":[{"type":"part","payload":3}]}`)
	s.do("listGroupMembers?limit=1", "")
	s.do("closeGroup", "")
	s.do("getGroup", "")
	s.do("listGroups", "")
	s.do("cancelGroup", `{"reason":"wrong file"}`)
	s.do("createSchedule", `{"name":"nightly","cron":"30 2 * * `+
		`*","time_zone":"Europe/Berlin","jitter":"5m","task":{"type":"report","queue":"mail","payload":{"kind":"day"}}}`)
	s.do("putSchedule", `{"cron":"30 3 * * `+
		`*","time_zone":"Europe/Berlin","task":{"type":"report","queue":"mail","payload":{"kind":"day"}}}`)
	s.do("triggerSchedule", "")
	s.do("listScheduleHistory", "")
	s.do("getSchedule", "")
	s.do("listSchedules", "")
	s.do("pauseSchedule", `{"reason":"the warehouse moves"}`)
	s.do("resumeSchedule", "")
	s.do("deleteSchedule", "")

	// Workers.
	s.quietly("claim", `{"queues":["mail"],"types":["mail.welcome"],"worker":"web-1/4711"}`)
	s.do("listWorkers?limit=1", "", "worker=items.0.worker_id")
	s.do("getWorker", "")
	s.do("quietWorker", `{"reason":"deploy","for":"10m"}`)
	s.do("resumeWorker", "")

	// Access.
	s.vars["name"] = "shop"
	s.do("addToken", `{"name":"shop","roles":["produce"],"queues":["mail*"],"expires_in":"8760h"}`)
	s.do("getToken", "")
	s.do("listTokens", "")
	s.do("rotateToken", `{"overlap":"1h"}`)
	s.do("revokeToken", "")
	s.do("addNamespace", `{"name":"shop","quotas":{"max_backlog":1000000,"max_running":500}}`)
	s.do("getNamespace", "")
	s.do("listNamespaces", "")
	s.do("setQuotas", `{"quotas":{"max_running":1000}}`)
	s.do("removeNamespace", "")

	// Webhooks.
	s.vars["name"] = "oncall"
	s.do("addWebhook", `{"name":"oncall","url":"$hook/hooks/pawl","events":["task.*","breaker.*"],"queues":["mail*"]}`)
	s.do("testWebhook", "")
	s.do("listWebhookDeliveries", "")
	s.do("setWebhook", `{"events":["task.dead"]}`)
	s.do("getWebhook", "")
	s.do("listWebhooks", "")
	s.do("pauseWebhook", `{"reason":"the receiver moves"}`)
	s.do("resumeWebhook", "")
	s.do("rotateWebhookSecret", `{"overlap":"1h"}`)
	s.do("removeWebhook", "")
	s.do("listAudit?limit=1", "")

	// Markers.
	s.do("addMarker", `{"kind":"incident","title":"mail provider is down","url":"https://status.example.com/42","queues":["mail*"]}`,
		"id=id")
	s.do("endMarker", "")
	s.do("listMarkers?kind=incident", "")
	s.do("removeMarker", "")

	// The cluster.
	s.do("getCluster", "")
	s.do("listNodes", "")
	s.do("listShards", "")
	s.do("getMap", "")
	s.do("verifyShard", "")
	s.do("setAuditRetention", `{"retention":"4320h"}`)
	s.do("setReplication", `{"replication":3}`)
	s.do("raiseLevel", "")
	s.do("addShards", `{"total":2}`)
	s.do("drainNode", "")
	s.do("undrainNode", "")
	s.do("transferLeader", `{"to":"n1"}`)
	// These need more than one node. Their responses are empty.
	s.keep("moveReplica", `{"from":"n1","to":"n4"}`, example{Status: http.StatusOK, Answer: []byte(`{}`)})
	s.keep("removeNode", `{"force":true}`, example{Status: http.StatusOK, Answer: []byte(`{}`)})

	s.vars["queue"] = "retired"
	s.quietly("putQueue", `{"settings":{}}`)
	s.do("deleteQueue", "")
}

// steerOperation pauses a slow operation, resumes it, and aborts it.
func (s *session) steerOperation() {
	s.quietly("enqueueBatch", `{"tasks":[{"type":"slow","queue":"slow"},{"type":"slow","queue":"slow"},{"type":"slow","queue":"slow"}]}`)
	s.quietly("startOperation", `{"action":"cancel","filter":{"queue":"slow"},"rate":"1/h"}`, "id=operation_id")
	s.do("pauseOperation", `{"reason":"let me look"}`)
	s.do("resumeOperation", "")
	s.do("abortOperation", `{"reason":"wrong filter"}`)
}

// do makes a call and records it as the example of its operation. set are "variable=path.in.the.response".
func (s *session) do(op, body string, set ...string) {
	s.t.Helper()
	name, _, _ := strings.Cut(op, "?")
	s.keep(name, s.fill(body), s.call(op, body, set))
}

// quietly makes a call that is not recorded.
func (s *session) quietly(op, body string, set ...string) {
	s.t.Helper()
	s.call(op, body, set)
}

func (s *session) call(op, body string, set []string) (answered example) {
	s.t.Helper()
	name, query, _ := strings.Cut(op, "?")
	to, ok := s.ops[name]
	if !ok {
		s.t.Fatalf("operation %s does not exist", name)
	}
	path := regexp.MustCompile(`\{(\w+)\}`).ReplaceAllStringFunc(to.path, func(p string) string { return s.vars[strings.Trim(p, "{}")] })
	if query != "" {
		path += "?" + query
	}
	r, err := http.NewRequestWithContext(s.t.Context(), to.method, s.at+path, strings.NewReader(s.fill(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Pawl-Actor", "lena@ops1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	answered = example{Status: resp.StatusCode, Answer: answer, Stamped: resp.Header.Get("Pawl-Shard") != ""}
	if resp.StatusCode >= 300 {
		s.t.Errorf("%s %s %s: %s", op, path, s.fill(body), answer)
		return answered
	}
	var v any
	if err := json.Unmarshal(answer, &v); err != nil {
		s.t.Fatalf("%s: %v in %s", op, err, answer)
	}
	for _, to := range set {
		variable, path, _ := strings.Cut(to, "=")
		s.vars[variable] = fmt.Sprint(at(v, path))
	}
	return answered
}

// fill replaces variables in a text.
func (s *session) fill(text string) string {
	return os.Expand(text, func(name string) string { return s.vars[name] })
}

// at returns the value at a path such as tasks.0.task_id, or nil.
func at(v any, path string) any {
	for part := range strings.SplitSeq(path, ".") {
		switch of := v.(type) {
		case map[string]any:
			v = of[part]
		case []any:
			i := slices.Index([]string{"0", "1", "2"}, part)
			if i < 0 || i >= len(of) {
				return nil
			}
			v = of[i]
		default:
			return nil
		}
	}
	return v
}

func (s *session) keep(op, request string, e example) {
	e.Answer = s.scrub(string(e.Answer))
	if request != "" {
		e.Request = s.scrub(request)
	}
	s.said[op] = e
}

var secrets = regexp.MustCompile(`"(claim_token|etag|cursor|next_cursor|access_key_id)":"[^"]*"`)

// scrub replaces ids, times and secrets with constants.
func (s *session) scrub(text string) json.RawMessage {
	ids := map[string]string{}
	text = strings.ReplaceAll(text, s.vars["hook"], "https://example.com")
	text = strings.ReplaceAll(text, strings.TrimPrefix(s.at, "http://"), "127.0.0.1:7295")
	text = uuid.ReplaceAllStringFunc(text, func(id string) string {
		if ids[id] == "" {
			ids[id] = fmt.Sprintf("01a20e63-6b3b-7001-98e2-d572354ba9%02x", 0x12+len(ids))
		}
		return ids[id]
	})
	text = regexp.MustCompile(`\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)(\.\d+)?Z`).ReplaceAllString(text, "2026-11-24T16:28:46.267169Z")
	text = secrets.ReplaceAllStringFunc(text, func(field string) string {
		name, _, _ := strings.Cut(field, ":")
		return name + `:"` + map[string]string{`"claim_token"`: "AQABGRTpqyoyMTM", `"access_key_id"`: "PAWL…"}[name] + `"`
	})
	text = regexp.MustCompile(`whsec_[A-Za-z0-9+/=]+`).ReplaceAllString(text, "whsec_YW4gZXhhbXBsZSBvZiBhIHNlY3JldA4gZXhhbXBs")
	text = regexp.MustCompile(`pawl_[A-Za-z0-9]{40,}`).ReplaceAllString(text, "pawl_7Hq2ExampleOfASecretThatNoServerKnows0000000000000")
	text = regexp.MustCompile(`dead-\d+T[\d.]+Z`).ReplaceAllString(text, "dead-20261124T162846.267169325Z")
	short, err := shorten([]byte(text))
	if err != nil {
		s.t.Errorf("%v in %s", err, text)
	}
	return short
}

// shorten drops all but the first items of lists: two points of a chart are enough to show the rest.
func shorten(text []byte) (json.RawMessage, error) {
	const most = 2
	var out bytes.Buffer
	from, to := jsontext.NewDecoder(bytes.NewReader(text)), jsontext.NewEncoder(&out)
	for {
		if kind, n := from.StackIndex(from.StackDepth()); kind == '[' && (n >= most && from.PeekKind() == '{' || n >= 24 &&
			from.PeekKind() != ']') {
			if err := from.SkipValue(); err != nil {
				return nil, err
			}
			continue
		}
		token, err := from.ReadToken()
		if err == io.EOF {
			return bytes.TrimSpace(out.Bytes()), nil
		}
		if err == nil {
			err = to.WriteToken(token)
		}
		if err != nil {
			return nil, err
		}
	}
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if len(raw) > 0 {
		_ = json.Compact(&b, raw)
	}
	return b.Bytes()
}

// outline returns the fields of a response and their types, which is what an example promises. For a list it is that of the first item.
func outline(raw json.RawMessage) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err.Error()
	}
	var of func(v any) any
	of = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			out := map[string]any{}
			for k, inner := range v {
				if !slices.Contains(vary, k) {
					out[k] = of(inner)
				}
			}
			return out
		case []any:
			if len(v) == 0 {
				return []any{}
			}
			return []any{of(v[0])}
		}
		return fmt.Sprintf("%T", v)
	}
	b, _ := json.Marshal(of(v))
	return string(b)
}

// vary are fields that a response may or may not have, depending on timing.
var vary = []string{"commit_seconds", "disk_free_bytes", "disk_total_bytes", "problems", "attention", "oldest_ready",
	"oldest_ready_age", "wait", "run"}

func (s *session) write() {
	// One operation per line.
	var b bytes.Buffer
	for i, op := range slices.Sorted(maps.Keys(s.said)) {
		line, err := json.Marshal(s.said[op])
		if err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n  %q: %s", map[bool]string{true: "{", false: ","}[i == 0], op, bytes.ReplaceAll(line,
			[]byte(`\u0026`), []byte("&")))
	}
	b.WriteString("\n}\n")
	if err := os.WriteFile(examplesFile, b.Bytes(), 0o644); err != nil { // #nosec G306 -- a file of the repository
		s.t.Fatal(err)
	}
}
