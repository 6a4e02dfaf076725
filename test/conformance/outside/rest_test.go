package outside

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"
)

// restDriver makes REST calls, and has a worker built on the four calls that docs/workers-in-any-language.md describes.
type restDriver struct {
	api    string
	client *http.Client
}

func newRESTDriver(t *testing.T, addr string) *restDriver {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &restDriver{api: "http://" + addr + "/api/v1", client: &http.Client{Transport: transport}}
}

// restCalls maps the calls of stories to a method and a path, with the names of arguments in it. The remaining arguments are the body.
var restCalls = map[string][2]string{
	"enqueue": {"POST", "/tasks"}, "enqueue_many": {"POST", "/tasks/batch"}, "get": {"GET", "/tasks/{task}"},
	"cancel": {"DELETE", "/tasks/{task}"}, "create_group": {"POST", "/groups"}, "get_group": {"GET", "/groups/{group}"},
	"wait_group": {"GET", "/groups/{group}"}, "add_to_group": {"POST", "/groups/{group}/tasks"}, "close_group": {"POST",
		"/groups/{group}/close"}, "cancel_group": {"POST", "/groups/{group}/cancel"}, "group_members": {"GET", "/groups/{group}/members"},
	"put_schedule": {"PUT", "/schedules/{name}"}, "get_schedule": {"GET", "/schedules/{name}"}, "delete_schedule": {"DELETE",
		"/schedules/{name}"},
	"pause_schedule": {"POST", "/schedules/{name}/pause"}, "resume_schedule": {"POST", "/schedules/{name}/resume"},
	"trigger_schedule": {"POST", "/schedules/{name}/trigger"}, "set_queue": {"PUT", "/queues/{queue}"},
	"get_queue": {"GET", "/queues/{queue}"}, "pause_queue": {"POST", "/queues/{queue}/pause"}, "resume_queue": {"POST",
		"/queues/{queue}/resume"}, "purge_queue": {"POST", "/queues/{queue}/purge"}, "queue_stats": {"GET", "/queues/{queue}/stats"},
	"dead_groups": {"GET", "/queues/{queue}/dead?group_by=error"}, "explain": {"GET", "/tasks/{task}/explain"},
	"run_now": {"POST", "/tasks/{task}/run_now"}, "retry_task": {"POST", "/tasks/{task}/retry"},
	"start_operation": {"POST", "/operations"}, "get_operation": {"GET", "/operations/{operation}"},
}

func (f *restDriver) call(ctx context.Context, do string, with map[string]any) (any, error) {
	switch do {
	case "wait", "result":
		return f.wait(ctx, do, with)
	case "find_worker":
		return f.findWorker(ctx, text(with, "worker"))
	}
	c, ok := restCalls[do]
	if !ok {
		return nil, fmt.Errorf("no such call: %s", do)
	}
	method, path := c[0], ""
	body := maps.Clone(with)
	for rest := c[1]; rest != ""; {
		before, after, found := cut(rest, '{')
		path += before
		if !found {
			break
		}
		name, next, _ := cut(after, '}')
		path += url.PathEscape(text(with, name))
		delete(body, name)
		rest = next
	}
	if method == "DELETE" && body["reason"] != nil {
		path += "?reason=" + url.QueryEscape(text(body, "reason"))
	}
	return f.answer(f.sendAs(ctx, text(with, "actor"), method, path, withTimes(body)))(do)
}

func cut(s string, at byte) (before, after string, found bool) {
	for i := range len(s) {
		if s[i] == at {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// withTimes replaces "+1h" in run_at.
func withTimes(body map[string]any) map[string]any {
	if at := text(body, "run_at"); at != "" {
		body["run_at"] = time.Now().Add(length(at)).UTC().Format(time.RFC3339Nano)
	}
	return body
}

// answer converts a REST answer to the form of stories: a list is its items, and a refusal in it is that of Error.
func (f *restDriver) answer(got map[string]any, err error) func(do string) (any, error) {
	return func(do string) (any, error) {
		if err != nil {
			return nil, err
		}
		switch do {
		case "group_members":
			return got["items"], nil
		case "enqueue_many", "add_to_group":
			return refusals(got["results"]), nil
		case "get", "wait", "cancel":
			if point, ok := got["checkpoint"].(string); ok { // bytes, in REST
				data, _ := base64.StdEncoding.DecodeString(point)
				got["checkpoint"] = string(data)
			}
		}
		return got, nil
	}
}

func refusals(results any) any {
	items, _ := results.([]any)
	for i := range items {
		if entry, _ := items[i].(map[string]any); entry["error"] != nil {
			items[i] = map[string]any{"refused": entry["error"]}
		}
	}
	return items
}

// send makes a call.
func (f *restDriver) send(ctx context.Context, method, path string, body map[string]any) (map[string]any, error) {
	return f.sendAs(ctx, "", method, path, body)
}

// sendAs makes a call in the name of an actor.
func (f *restDriver) sendAs(ctx context.Context, actor, method, path string, body map[string]any) (map[string]any, error) {
	delete(body, "actor")
	var data io.Reader
	if method != "GET" && method != "DELETE" {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		data = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, f.api+path, data)
	if err != nil {
		return nil, err
	}
	if actor != "" {
		req.Header.Set("Pawl-Actor", actor)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if len(said) > 0 {
		if err := json.Unmarshal(said, &out); err != nil {
			return nil, fmt.Errorf("%s %s: %s: %w", method, path, said, err)
		}
	}
	if resp.StatusCode >= 300 {
		return nil, refusal(out)
	}
	return out, nil
}

// wait waits for the end of a task.
func (f *restDriver) wait(ctx context.Context, do string, with map[string]any) (any, error) {
	for {
		got, err := f.send(ctx, "GET", "/tasks/"+url.PathEscape(text(with, "task"))+"?wait=20s", nil)
		switch {
		case err != nil:
			return nil, err
		case got["ended_at"] == nil:
		case do == "wait":
			return f.answer(got, nil)(do)
		case got["state"] != "succeeded":
			return nil, refusal{"code": "task_ended", "state": got["state"]}
		default:
			return got["result"], nil
		}
	}
}

func (f *restDriver) findWorker(ctx context.Context, name string) (any, error) {
	got, err := f.send(ctx, "GET", "/workers?limit=1000", nil)
	if err != nil {
		return nil, err
	}
	items, _ := got["items"].([]any)
	for _, item := range items {
		if w, _ := item.(map[string]any); w["worker"] == name {
			return w, nil
		}
	}
	return nil, refusal{"code": "not_found"}
}

// work claims one task at a time in each of its slots.
func (f *restDriver) work(ctx context.Context, w workerSpec, handle func(handling) ending) error {
	if w.name == "" {
		w.name = "rest"
	}
	lapsed, lapse := context.WithCancel(context.WithoutCancel(ctx)) // done when the drain timeout is over
	defer lapse()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(w.drainTimeout, lapse) })
	defer stop()
	errs := make([]error, w.concurrency)
	var slots sync.WaitGroup
	for slot := range w.concurrency {
		slots.Go(func() {
			for ctx.Err() == nil && errs[slot] == nil {
				errs[slot] = f.workOne(ctx, lapsed, w, handle)
			}
		})
	}
	slots.Wait()
	return errors.Join(errs...)
}

func (f *restDriver) workOne(ctx, lapsed context.Context, w workerSpec, handle func(handling) ending) error {
	got, err := f.send(ctx, "POST", "/claim", map[string]any{"queues": w.queues, "types": w.types, "max": 1,
		"wait": "1s", "worker": w.name})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	tasks, _ := got["tasks"].([]any)
	for _, each := range tasks {
		task, _ := each.(map[string]any)
		run := &restRun{driver: f, task: task, began: time.Now(), lapsed: lapsed}
		if err := run.settle(handle(run)); err != nil {
			return err
		}
	}
	return nil
}

// restRun is a claim of the REST worker. Its stories are shorter than its lease.
type restRun struct {
	driver *restDriver
	task   map[string]any
	began  time.Time
	lapsed context.Context
}

func (r *restRun) claim() map[string]any { return r.task }

func (r *restRun) post(verb string, with map[string]any) (map[string]any, error) {
	with["claim_token"] = r.task["claim_token"]
	return r.driver.send(context.Background(), "POST", "/tasks/"+text(r.task, "task_id")+"/"+verb, with)
}

func (r *restRun) progress(percent float64, message string) error {
	_, err := r.post("extend", map[string]any{"progress": map[string]any{"percent": percent, "message": message}})
	return err
}

func (r *restRun) checkpoint(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = r.post("extend", map[string]any{"checkpoint": data})
	return stale(err)
}

// stale returns why a claim is no longer valid.
func stale(err error) error {
	if r, ok := errors.AsType[refusal](err); ok && r["code"] == "stale_claim" {
		return interruption(fmt.Sprint(r["reason"]))
	}
	return err
}

func (r *restRun) lastCheckpoint() (out any, err error) {
	data, err := base64.StdEncoding.DecodeString(text(r.task, "checkpoint"))
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return out, json.Unmarshal(data, &out)
}

func (r *restRun) parent() (any, error) {
	parent, _ := r.task["parent"].(map[string]any)
	return parent["result"], nil
}

func (r *restRun) step(string, func() (any, error)) (any, error) {
	return nil, errors.New("REST has no steps")
}

func (r *restRun) once(key string, fn func() (any, error)) (any, error) {
	begun, err := r.post("once/begin", map[string]any{"key": key})
	if err != nil || begun["state"] != "run" {
		return begun["result"], err
	}
	v, err := fn()
	if err != nil {
		return nil, err
	}
	_, err = r.post("once/finish", map[string]any{"key": key, "result": v})
	return v, err
}

// interrupted extends the lease until that is refused, or the worker's or the task's time is over.
func (r *restRun) interrupted() error {
	over := time.After(time.Hour)
	if timeout := length(r.task["timeout"]); timeout > 0 {
		over = time.After(time.Until(r.began.Add(timeout)))
	}
	for {
		if _, err := r.post("extend", map[string]any{}); err != nil {
			return stale(err)
		}
		select {
		case <-r.lapsed.Done():
			return interruption("draining")
		case <-over:
			return interruption("timed_out")
		case <-time.After(pollStep):
		}
	}
}

// settle reports how a run ended.
func (r *restRun) settle(e ending) error {
	if e.err != nil { // the error of a call
		e.kind, e.message = "fails", e.err.Error()
	}
	if isInterruption("draining", e.err) == nil {
		_, err := r.post("release", map[string]any{})
		return notLost(err)
	}
	with, verb := map[string]any{}, "fail"
	switch e.kind {
	case "returns":
		verb = "ack"
		if e.hasResult {
			with["result"] = e.result
		}
		if e.contentType != "" {
			with["content_type"] = e.contentType
		}
	case "snoozes":
		verb, with["delay"] = "release", e.delay.String()
	default:
		with["error"] = map[string]any{"message": e.message}
		with["outcome"] = map[string]string{"fails": "retry", "dead": "dead", "discards": "discard", "poisons": "poison"}[e.kind]
		if e.delay > 0 {
			with["retry_in"] = e.delay.String()
		}
	}
	_, err := r.post(verb, with)
	if refused, ok := errors.AsType[refusal](err); ok && refused["code"] == "payload_too_large" {
		_, err = r.post("fail", map[string]any{"outcome": "dead", "error": map[string]any{"message": "the result is too large"}})
	}
	return notLost(err)
}

// notLost returns err unless it says that the claim was lost.
func notLost(err error) error {
	if _, lost := errors.AsType[interruption](stale(err)); lost {
		return nil
	}
	return err
}

var _ handling = (*restRun)(nil)
