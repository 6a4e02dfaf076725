package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rest calls /api/v1 over HTTP/1.1. It decodes the API's JSON strictly: a field that the suite does not know is an error.
type rest struct {
	client    *http.Client
	namespace string // "": omitted
}

func newREST(t *testing.T, h *testNode) *rest { return newRESTIn(t, h, "") }

func newRESTIn(t *testing.T, h *testNode, ns string) *rest {
	// One connection per call: the server may close an idle one while the test lets hours pass.
	tr := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return h.pipe.DialContext(ctx) }}
	t.Cleanup(tr.CloseIdleConnections)
	return &rest{&http.Client{Transport: tr}, ns}
}

// fields is a request body.
type fields map[string]any

// with adds a field if it is given.
func (f fields) with(said bool, name string, value any) fields {
	if said {
		f[name] = value
	}
	return f
}

// query makes a call with parameters and no body; call makes one with a body.
func (d *rest) query(ctx context.Context, method, path string, q url.Values, answer any) error {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return d.send(ctx, method, path, nil, answer)
}

func (d *rest) call(ctx context.Context, method, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return d.send(ctx, method, path, b, answer)
}

func (d *rest) send(ctx context.Context, method, path string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Pawl-Actor", actor)
	if d.namespace != "" {
		req.Header.Set("Pawl-Namespace", d.namespace)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	name := method + " " + path
	if resp.StatusCode != successOf(name) {
		return stamped(name, refusedByREST(resp, b), resp.Header.Get)
	}
	if t := resp.Header.Get("Content-Type"); t != "application/json" {
		return fmt.Errorf("the answer to %s is of type %q", name, t)
	}
	return stamped(name, decode(b, answer), resp.Header.Get)
}

// successOf returns the status of a call that was not refused.
func successOf(call string) int {
	switch {
	case call == "POST /tasks", call == "POST /operations", strings.HasSuffix(call, "/trigger"):
		return http.StatusAccepted
	case call == "POST /schedules", call == "POST /groups", call == "POST /tokens", call == "POST /webhooks", call == "POST /markers":
		return http.StatusCreated
	}
	return http.StatusOK
}

// decode decodes JSON and rejects unknown fields.
func decode(b []byte, to any) error {
	r := json.NewDecoder(bytes.NewReader(b))
	r.DisallowUnknownFields()
	if err := r.Decode(to); err != nil {
		return fmt.Errorf("%w in %s", err, b)
	}
	return nil
}

// httpStatuses are the statuses of the contract's codes.
var httpStatuses = map[string]int{"invalid_argument": 400, "not_found": 404, "conflict": 409, "stale_claim": 409, "wrong_state": 409,
	"payload_too_large": 413, "queue_full": 429, "rate_limited": 429, "unavailable": 503}

// refusedByREST decodes a problem and checks its outer form against the contract.
func refusedByREST(resp *http.Response, b []byte) error {
	var p struct {
		refusal
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}
	if err := decode(b, &p); err != nil {
		return fmt.Errorf("status %d: %w", resp.StatusCode, err)
	}
	after := ""
	if p.RetryAfter > 0 {
		after = strconv.Itoa(int((p.RetryAfter + second - 1) / second))
	}
	if resp.Header.Get("Content-Type") != "application/problem+json" || resp.StatusCode != httpStatuses[p.Code] ||
		p.Status != resp.StatusCode || p.Type == "" || p.Title == "" || p.Detail == "" || resp.Header.Get("Retry-After") != after {
		return fmt.Errorf("status %d with %v and the problem %s", resp.StatusCode, resp.Header, b)
	}
	r := p.refusal
	r.Text = p.Detail
	return &r
}

// itemError is the refusal of one item of a batch.
type itemError struct {
	refusal
	Message string `json:"message"`
}

func (e *itemError) err() error {
	if e == nil {
		return nil
	}
	r := e.refusal
	r.Text = e.Message
	return &r
}

// specBody is a spec with its payload as JSON.
type specBody struct {
	spec
	Payload json.RawMessage `json:"payload,omitempty"`
}

func (s spec) body() specBody { return specBody{s, dataJSON(s.Payload, s.ContentType)} }

// dataJSON returns JSON as it is, and other bytes as base64.
func dataJSON(data, contentType string) json.RawMessage {
	switch {
	case data == "":
		return nil
	case contentType == "" || contentType == "application/json":
		return json.RawMessage(data)
	}
	return json.RawMessage(strconv.Quote(base64.StdEncoding.EncodeToString([]byte(data))))
}

// jsonData is the inverse of dataJSON.
func jsonData(raw json.RawMessage, contentType string) (string, error) {
	if raw == nil || contentType == "" || contentType == "application/json" {
		return string(raw), nil
	}
	var b []byte
	err := json.Unmarshal(raw, &b)
	return string(b), err
}

// enqueued is the answer for an accepted task.
type enqueued struct {
	accepted
	Status string     `json:"status"`
	Error  *itemError `json:"error"`
}

func (d *rest) Enqueue(ctx context.Context, s spec) (accepted, error) {
	var a enqueued
	err := d.call(ctx, "POST", "/tasks", s.body(), &a)
	if err == nil {
		err = sameStatus(a.Status, a.State)
	}
	return a.accepted, err
}

// sameStatus checks the coarse status against the exact state.
func sameStatus(status, state string) error {
	want := map[string]string{"scheduled": "queued", "ready": "queued", "retrying": "queued", "claimed": "processing",
		"succeeded": "completed", "dead": "failed", "discarded": "failed", "poisoned": "failed", "cancelled": "cancelled"}[state]
	if status != want {
		return fmt.Errorf("the status of state %q is %q", state, status)
	}
	return nil
}

func (d *rest) EnqueueMany(ctx context.Context, specs []spec) ([]accepted, error) {
	var bodies []specBody
	for _, s := range specs {
		bodies = append(bodies, s.body())
	}
	var a struct {
		Results []enqueued `json:"results"`
	}
	err := d.call(ctx, "POST", "/tasks/batch", fields{"tasks": bodies}, &a)
	var out []accepted
	for _, r := range a.Results {
		r.Err = r.Error.err()
		out = append(out, r.accepted)
	}
	return out, err
}

// taskBody is a task in an answer.
type taskBody struct {
	view
	Payload json.RawMessage `json:"payload"`
	Result  json.RawMessage `json:"result"`
}

func (b *taskBody) read() (view, error) {
	v := b.view
	var err, err2 error
	v.Payload, err = jsonData(b.Payload, b.ContentType)
	v.Result, err2 = jsonData(b.Result, b.ResultType)
	if len(v.Log) == 0 {
		v.Log = nil
	}
	return v, errors.Join(err, err2, sameStatus(v.Status, v.State))
}

// onTask makes a call that answers with a task.
func (d *rest) onTask(call func(answer any) error) (view, error) {
	var b taskBody
	if err := call(&b); err != nil {
		return view{}, err
	}
	return b.read()
}

func (d *rest) Get(ctx context.Context, id string) (view, error) {
	return d.onTask(func(a any) error { return d.query(ctx, "GET", taskPath(id, ""), nil, a) })
}

func taskPath(id, verb string) string { return "/tasks/" + url.PathEscape(id) + verb }

func (d *rest) WaitResult(ctx context.Context, id string, wait span) (view, error) {
	return d.onTask(func(a any) error {
		return d.query(ctx, "GET", taskPath(id, ""), url.Values{"wait": {wait.String()}}, a)
	})
}

func (d *rest) Cancel(ctx context.Context, id string) (view, error) {
	return d.onTask(func(a any) error { return d.query(ctx, "DELETE", taskPath(id, ""), nil, a) })
}

func (d *rest) Update(ctx context.Context, id string, e edit) (view, error) {
	return d.onTask(func(a any) error { return d.call(ctx, "PATCH", taskPath(id, ""), e, a) })
}

func (d *rest) Retry(ctx context.Context, id string) (view, error) {
	return d.onTask(func(a any) error { return d.query(ctx, "POST", taskPath(id, "/retry"), nil, a) })
}

func (d *rest) RunNow(ctx context.Context, id string) (view, error) {
	return d.onTask(func(a any) error { return d.query(ctx, "POST", taskPath(id, "/run_now"), nil, a) })
}

func (d *rest) Discard(ctx context.Context, id string) (view, error) {
	return d.onTask(func(a any) error { return d.query(ctx, "POST", taskPath(id, "/discard"), nil, a) })
}

func (d *rest) List(ctx context.Context, f filter, p part) (page, error) {
	q := f.query(p)
	if f.Queue != "" {
		q.Set("queue", f.Queue)
	}
	if p.WithPayload {
		q.Set("fields", "payload")
	}
	return d.page(ctx, "/tasks", q)
}

// query returns the filter without its queue, and the part of the list.
func (f filter) query(p part) url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"type": f.Type, "tag": f.Tag, "key": f.Key, "worker": f.Worker, "error": f.Error,
		"fingerprint": f.Fingerprint, "operation": f.Operation, "q": f.Text, "state": strings.Join(f.States, ","), "cursor": p.Cursor} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"created_after": f.CreatedAfter, "created_before": f.CreatedBefore} {
		if !at.IsZero() {
			q.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	for _, c := range f.Payload {
		q.Add("payload", c)
	}
	if p.Limit != 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	return q
}

func (d *rest) page(ctx context.Context, path string, q url.Values) (page, error) {
	var a struct {
		Items []taskBody `json:"items"`
		Next  string     `json:"next_cursor"`
	}
	err := d.query(ctx, "GET", path, q, &a)
	out := page{Next: a.Next}
	for _, b := range a.Items {
		v, bad := b.read()
		out.Items = append(out.Items, v)
		err = errors.Join(err, bad)
	}
	return out, err
}

func (d *rest) Claim(ctx context.Context, c claimCall) ([]claim, error) {
	var queues any = c.Queues
	if c.Weights != nil {
		queues = c.Weights
	}
	body := fields{"queues": queues}.with(c.Types != nil, "types", c.Types).with(c.Max != 0, "max", c.Max).with(c.MaxBytes != 0,
		"max_bytes", c.MaxBytes).
		with(c.Lease != 0, "lease", c.Lease).with(c.Wait != 0, "wait", c.Wait).with(c.Worker != "", "worker", c.Worker).with(c.Key != "",
		"claim_key", c.Key).with(c.Runs, "runs", c.Runs)
	var a struct {
		Tasks []struct {
			claim
			Payload json.RawMessage `json:"payload"`
		} `json:"tasks"`
	}
	err := d.call(ctx, "POST", "/claim", body, &a)
	var out []claim
	for _, t := range a.Tasks {
		var bad error
		t.claim.Payload, bad = jsonData(t.Payload, t.ContentType)
		out = append(out, t.claim)
		err = errors.Join(err, bad)
	}
	return out, err
}

// settledBody is the answer to a call that ended a claim.
type settledBody struct {
	settled
	ID     string     `json:"task_id"`
	Status string     `json:"status"`
	Error  *itemError `json:"error"`
}

func (d *rest) settle(ctx context.Context, h hold, verb string, body fields) (settled, error) {
	var a settledBody
	body["claim_token"] = h.Token
	err := d.call(ctx, "POST", taskPath(h.ID, "/"+verb), body, &a)
	if err == nil {
		err = sameStatus(a.Status, a.State)
	}
	if err == nil && a.ID != h.ID {
		err = fmt.Errorf("%s of %s is answered for %s", verb, h.ID, a.ID)
	}
	return a.settled, err
}

func (r result) body() fields {
	return fields{}.with(r.Data != "", "result", dataJSON(r.Data, r.ContentType)).with(r.ContentType != "", "content_type", r.ContentType)
}

func (f failing) body() fields {
	return fields{"error": failure{f.Message, failureType}}.with(f.Outcome != "", "outcome", f.Outcome).with(f.RetryIn != 0,
		"retry_in", f.RetryIn)
}

func (d *rest) Ack(ctx context.Context, h hold, r result) error {
	got, err := d.settle(ctx, h, "ack", r.body())
	if err == nil && got.State != "succeeded" {
		return fmt.Errorf("acked, and %s", got.State)
	}
	return err
}

func (d *rest) Fail(ctx context.Context, h hold, f failing) (settled, error) {
	return d.settle(ctx, h, "fail", f.body())
}

func (d *rest) Release(ctx context.Context, h hold, delay span) (settled, error) {
	return d.settle(ctx, h, "release", fields{}.with(delay != 0, "delay", delay))
}

func (d *rest) Extend(ctx context.Context, h hold, e extension) (time.Time, error) {
	var a struct {
		ID             string    `json:"task_id"`
		LeaseExpiresAt time.Time `json:"lease_expires_at"`
	}
	body := fields{"claim_token": h.Token}.with(e.Lease != 0, "lease", e.Lease).with(e.Progress != nil, "progress", e.Progress).
		with(e.Checkpoint != nil, "checkpoint", e.Checkpoint)
	err := d.call(ctx, "POST", taskPath(h.ID, "/extend"), body, &a)
	return a.LeaseExpiresAt, err
}

// Settle makes one call per item: REST has no mixed batch.
func (d *rest) Settle(ctx context.Context, items []settlement) ([]settled, error) {
	batches := map[string][]fields{}
	at := map[string][]int{}
	for i, item := range items {
		verb, body := "ack", item.Result.body()
		switch {
		case item.Fail != nil:
			verb, body = "fail", item.Fail.body()
		case item.Release:
			verb, body = "release", fields{}
		}
		body["task_id"], body["claim_token"] = item.ID, item.Token
		batches[verb], at[verb] = append(batches[verb], body), append(at[verb], i)
	}
	out := make([]settled, len(items))
	for verb, batch := range batches {
		var a struct {
			Results []settledBody `json:"results"`
		}
		if err := d.call(ctx, "POST", "/tasks/"+verb, fields{verb + "s": batch}, &a); err != nil {
			return nil, err
		}
		if len(a.Results) != len(batch) {
			return nil, fmt.Errorf("%d items got %d answers", len(batch), len(a.Results))
		}
		for n, r := range a.Results {
			r.Err = r.Error.err()
			out[at[verb][n]] = r.settled
		}
	}
	return out, nil
}

func queuePath(name, verb string) string { return "/queues/" + url.PathEscape(name) + verb }

func (d *rest) Queue(ctx context.Context, name string) (q queueInfo, err error) {
	err = d.query(ctx, "GET", queuePath(name, ""), nil, &q)
	return q, err
}

func (d *rest) Queues(ctx context.Context, p part) (names []string, next string, err error) {
	var a struct {
		Items []queueInfo `json:"items"`
		Next  string      `json:"next_cursor"`
	}
	err = d.query(ctx, "GET", "/queues", filter{}.query(p), &a)
	for _, q := range a.Items {
		names = append(names, q.Queue)
	}
	return names, a.Next, err
}

func (d *rest) PutQueue(ctx context.Context, name string, s settings) (q queueInfo, err error) {
	err = d.call(ctx, "PUT", queuePath(name, ""), fields{"settings": s}, &q)
	return q, err
}

func (d *rest) DeleteQueue(ctx context.Context, name string) error {
	return d.query(ctx, "DELETE", queuePath(name, ""), nil, &struct{}{})
}

func (d *rest) Pause(ctx context.Context, name string, of pause) (q queueInfo, err error) {
	err = d.call(ctx, "POST", queuePath(name, "/pause"), of, &q)
	return q, err
}

func (d *rest) Resume(ctx context.Context, name string, of pause) (q queueInfo, err error) {
	err = d.call(ctx, "POST", queuePath(name, "/resume"), of, &q)
	return q, err
}

func (d *rest) Purge(ctx context.Context, name string) (int64, error) {
	var a struct {
		Discarded int64 `json:"discarded"`
	}
	err := d.query(ctx, "POST", queuePath(name, "/purge"), nil, &a)
	return a.Discarded, err
}

func (d *rest) Dead(ctx context.Context, f filter, p part) (page, error) {
	return d.page(ctx, queuePath(f.Queue, "/dead"), f.query(p))
}

func (d *rest) Poisoned(ctx context.Context, f filter, p part) (page, error) {
	return d.page(ctx, queuePath(f.Queue, "/poisoned"), f.query(p))
}

func (d *rest) DeadGroups(ctx context.Context, queue string) ([]group, error) {
	var a struct {
		Groups  []group `json:"groups"`
		Partial bool    `json:"partial"`
	}
	err := d.query(ctx, "GET", queuePath(queue, "/dead"), url.Values{"group_by": {"error"}}, &a)
	return a.Groups, err
}
