package outside

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// goDriver calls the Go SDK.
type goDriver struct {
	client *pawl.Client
	admin  admin.Client
	log    *slog.Logger
}

func newGoDriver(t *testing.T, addr string) *goDriver {
	log := slog.New(slog.DiscardHandler)
	c, err := pawl.Dial(addr, pawl.DialOptions{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &goDriver{c, admin.New(c), log}
}

// goSpec is a task as stories describe it.
type goSpec struct {
	Type           string            `json:"type"`
	Payload        json.RawMessage   `json:"payload"`
	ContentType    string            `json:"content_type"`
	Queue          string            `json:"queue"`
	Priority       string            `json:"priority"`
	Delay          string            `json:"delay"`
	RunAt          string            `json:"run_at"`
	IdempotencyKey string            `json:"idempotency_key"`
	IdempotencyTTL string            `json:"idempotency_ttl"`
	RequestID      string            `json:"request_id"`
	MaxAttempts    int               `json:"max_attempts"`
	Retry          *goRetry          `json:"retry"`
	Timeout        string            `json:"timeout"`
	ExpiresIn      string            `json:"expires_in"`
	Retention      string            `json:"retention"`
	Key            string            `json:"key"`
	Cost           int               `json:"cost"`
	Tags           []string          `json:"tags"`
	Headers        map[string]string `json:"headers"`
	Unique         *struct {
		Key        string              `json:"key"`
		OnConflict pawltype.OnConflict `json:"on_conflict"`
	} `json:"unique"`
	GroupID string   `json:"group_id"`
	Then    []goSpec `json:"then"`
}

type goRetry struct {
	Initial string   `json:"initial"`
	Factor  float64  `json:"factor"`
	Max     string   `json:"max"`
	Jitter  *float64 `json:"jitter"`
}

func (r goRetry) policy() pawltype.RetryPolicy {
	out := pawltype.RetryPolicy{Initial: length(r.Initial), Factor: r.Factor, Max: length(r.Max)}
	if r.Jitter != nil {
		if out.Jitter = *r.Jitter; out.Jitter == 0 {
			out.Jitter = pawltype.NoJitter
		}
	}
	return out
}

// read decodes an argument of a story, and rejects unknown fields.
func read[T any](with any) (out T, err error) {
	data, err := json.Marshal(with)
	if err != nil {
		return out, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return out, d.Decode(&out)
}

func (s goSpec) item() (pawl.Item, error) {
	payload, contentType := []byte(s.Payload), s.ContentType
	if contentType != "" && contentType != "application/json" {
		var encoded string
		if err := json.Unmarshal(s.Payload, &encoded); err != nil {
			return pawl.Item{}, err
		}
		data, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return pawl.Item{}, err
		}
		payload = data
	}
	out := pawl.Item{Args: pawl.RawTask{Type: s.Type, Payload: payload, ContentType: contentType}}
	add := func(said bool, o pawl.Option) {
		if said {
			out.Options = append(out.Options, o)
		}
	}
	add(s.Queue != "", pawl.Queue(s.Queue))
	add(s.Priority != "", pawl.Priority(pawltype.Priority(s.Priority)))
	add(s.Delay != "", pawl.In(length(s.Delay)))
	add(s.RunAt != "", pawl.At(time.Now().Add(length(s.RunAt))))
	add(s.IdempotencyKey != "", pawl.IdempotencyKey(s.IdempotencyKey))
	add(s.IdempotencyTTL != "", pawl.IdempotencyTTL(length(s.IdempotencyTTL)))
	add(s.RequestID != "", pawl.RequestID(s.RequestID))
	add(s.MaxAttempts != 0, pawl.MaxAttempts(s.MaxAttempts))
	add(s.Timeout != "", pawl.Timeout(length(s.Timeout)))
	add(s.ExpiresIn != "", pawl.ExpiresIn(length(s.ExpiresIn)))
	add(s.Retention != "", pawl.Retention(length(s.Retention)))
	add(s.Key != "", pawl.Key(s.Key))
	add(s.Cost != 0, pawl.Cost(s.Cost))
	add(s.Tags != nil, pawl.Tags(s.Tags...))
	add(s.GroupID != "", pawl.InGroup(s.GroupID))
	if s.Retry != nil {
		add(true, pawl.Retry(s.Retry.policy()))
	}
	if s.Unique != nil {
		add(true, pawl.Unique(pawl.UniqueOpts{Key: s.Unique.Key, OnConflict: s.Unique.OnConflict}))
	}
	for name, value := range s.Headers {
		add(true, pawl.Header(name, value))
	}
	for _, next := range s.Then {
		i, err := next.item()
		if err != nil {
			return pawl.Item{}, err
		}
		add(true, pawl.Then(i.Args, i.Options...))
	}
	return out, nil
}

func goItem(with any) (pawl.Item, error) {
	s, err := read[goSpec](with)
	if err != nil {
		return pawl.Item{}, err
	}
	return s.item()
}

func goItems(with any) (out []pawl.Item, err error) {
	specs, err := read[[]goSpec](with)
	for _, s := range specs {
		i, e := s.item()
		out, err = append(out, i), errors.Join(err, e)
	}
	return out, err
}

// call makes a call. Those about tasks, groups and schedules are in this file, the operators' in goadmin_test.go.
func (f *goDriver) call(ctx context.Context, do string, with map[string]any) (any, error) {
	got, err := f.make(ctx, do, with)
	if ended, ok := errors.AsType[*pawltype.EndedError](err); ok {
		return nil, refusal{"code": "task_ended", "state": string(ended.Task.State)}
	}
	if e, ok := errors.AsType[*pawltype.Error](err); ok {
		return nil, refused(e)
	}
	if err != nil {
		return nil, err
	}
	return asJSON(got), nil
}

func refused(e *pawltype.Error) refusal {
	return refusal{"code": string(e.Code), "reason": e.Reason, "field": e.Field, "state": string(e.State)}
}

func (f *goDriver) make(ctx context.Context, do string, with map[string]any) (any, error) {
	id, group := text(with, "task"), text(with, "group")
	switch do {
	case "enqueue":
		i, err := goItem(with)
		if err != nil {
			return nil, err
		}
		return goRef(f.client.Enqueue(ctx, i.Args, i.Options...))
	case "enqueue_many":
		items, err := goItems(with["tasks"])
		if err != nil {
			return nil, err
		}
		return goMany(f.client.EnqueueBatch(ctx, items))
	case "get":
		return goTask(f.client.Task(ctx, id))
	case "wait":
		t, err := f.client.Wait(ctx, id)
		if ended, ok := errors.AsType[*pawltype.EndedError](err); ok {
			t, err = ended.Task, nil
		}
		return goTask(t, err)
	case "result":
		var out any
		err := f.client.Ref(id).Result(ctx, &out)
		return out, err
	case "cancel":
		return goTask(admin.New(f.client).WithReason(text(with, "reason")).Tasks().Cancel(ctx, id))
	case "create_group":
		return f.createGroup(ctx, with)
	case "get_group":
		return goGroup(f.client.Group(ctx, group))
	case "wait_group":
		return goGroup(f.client.WaitGroup(ctx, group))
	case "close_group":
		return goGroup(f.client.CloseGroup(ctx, group))
	case "cancel_group":
		return goGroup(admin.New(f.client).WithReason(text(with, "reason")).Groups().Cancel(ctx, group))
	case "add_to_group":
		items, err := goItems(with["tasks"])
		if err != nil {
			return nil, err
		}
		return goMany(f.client.AddToGroup(ctx, group, items))
	case "group_members":
		return goMembers(f.client.GroupMembers(ctx, group))
	}
	return f.operate(ctx, do, with)
}

func goRef(r *pawl.Ref, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"task_id": r.ID, "state": r.State, "duplicate": r.Duplicate}, nil
}

func goMany(got []pawl.Enqueued, err error) (any, error) {
	out := []any{}
	for _, each := range got {
		switch e, _ := errors.AsType[*pawltype.Error](each.Err); {
		case e != nil:
			out = append(out, map[string]any{"refused": refused(e)})
		case each.Err != nil:
			return nil, each.Err
		case each.Ref == nil:
			out = append(out, map[string]any{})
		default:
			ref, _ := goRef(each.Ref, nil)
			out = append(out, ref)
		}
	}
	return out, err
}

// data returns a payload or a result as REST shows it.
func data(b []byte, contentType string) any {
	switch {
	case len(b) == 0:
		return nil
	case contentType != "" && contentType != "application/json":
		return b // base64 in JSON
	}
	return json.RawMessage(b)
}

func goTask(t *pawltype.Task, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	var log []any
	for _, a := range t.AttemptLog {
		entry := map[string]any{"attempt": a.Attempt, "fence": a.Fence, "worker": a.Worker, "outcome": a.Outcome}
		if a.Error != nil {
			entry["error"] = map[string]any{"message": a.Error.Message}
		}
		log = append(log, entry)
	}
	var then []any
	for i := range t.Then {
		then = append(then, goFollower(&t.Then[i]))
	}
	return map[string]any{"task_id": t.ID, "type": t.Type, "queue": t.Queue, "status": t.Status, "state": t.State, "reason": t.Reason,
			"priority": t.Priority, "payload": data(t.Payload, t.ContentType), "content_type": t.ContentType, "result": data(t.Result,
				t.ResultContentType), "result_content_type": t.ResultContentType,
			"attempts": t.Attempts, "max_attempts": t.MaxAttempts, "failures": t.Failures, "crashes": t.Crashes, "releases": t.Releases,
			"snoozes": t.Snoozes, "attempt_log": log, "progress": t.Progress, "worker": t.Worker, "idempotency_key": t.IdempotencyKey,
			"key": t.Key, "tags": t.Tags, "headers": t.Headers, "cost": t.Cost, "waits_for": t.WaitsFor, "group_id": t.GroupID,
			"then": then},
		nil
}

func goFollower(f *pawltype.Follower) any {
	if f == nil {
		return nil
	}
	return map[string]any{"type": f.Type, "queue": f.Queue, "state": f.State, "task_id": f.TaskID, "reason": f.Reason}
}

func (f *goDriver) createGroup(ctx context.Context, with map[string]any) (any, error) {
	spec, err := read[struct {
		Name       string   `json:"name"`
		Tasks      []goSpec `json:"tasks"`
		OnComplete *goSpec  `json:"on_complete"`
		OnSuccess  *goSpec  `json:"on_success"`
		OnDeath    *goSpec  `json:"on_death"`
		Open       bool     `json:"open"`
		RequestID  string   `json:"request_id"`
	}](with)
	if err != nil {
		return nil, err
	}
	out := pawl.GroupSpec{Name: spec.Name, Open: spec.Open, RequestID: spec.RequestID}
	for _, s := range spec.Tasks {
		i, e := s.item()
		out.Tasks, err = append(out.Tasks, i), errors.Join(err, e)
	}
	for from, to := range map[*goSpec]**pawl.Item{spec.OnComplete: &out.OnComplete, spec.OnSuccess: &out.OnSuccess,
		spec.OnDeath: &out.OnDeath} {
		if from != nil {
			i, e := from.item()
			*to, err = &i, errors.Join(err, e)
		}
	}
	if err != nil {
		return nil, err
	}
	made, err := f.client.EnqueueGroup(ctx, out)
	if err != nil {
		return nil, err
	}
	tasks, err := goMany(made.Tasks, nil)
	return map[string]any{"group_id": made.ID, "duplicate": made.Duplicate, "tasks": tasks}, err
}

func goGroup(g *pawltype.Group, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"group_id": g.ID, "name": g.Name, "state": g.State, "open": g.Open, "counts": g.Counts,
		"on_complete": goFollower(g.OnComplete), "on_success": goFollower(g.OnSuccess), "on_death": goFollower(g.OnDeath)}, nil
}

func goMembers(members iter.Seq2[*pawltype.GroupMember, error]) (any, error) {
	out := []any{}
	for m, err := range members {
		if err != nil {
			return nil, err
		}
		out = append(out, map[string]any{"task_id": m.TaskID, "type": m.Type, "queue": m.Queue, "state": m.State, "refused": m.Refused,
			"result": data(m.Result, m.ResultContentType)})
	}
	return out, nil
}

// work runs a pawl.Worker.
func (f *goDriver) work(ctx context.Context, w workerSpec, handle func(handling) ending) error {
	mux := pawl.NewMux()
	for _, typ := range w.types {
		mux.HandleFunc(typ, func(ctx context.Context, c *pawl.Claim) error { return goEnd(c, handle(&goRun{ctx, c})) })
	}
	cfg := pawl.WorkerConfig{Name: w.name, Concurrency: w.concurrency, DrainTimeout: w.drainTimeout, Logger: f.log}
	if w.drainTimeout == 0 {
		cfg.DrainTimeout = -1
	}
	switch queues := w.queues.(type) {
	case []any:
		names := pawl.Strict{}
		for _, q := range queues {
			names = append(names, fmt.Sprint(q))
		}
		cfg.Queues = names
	case map[string]any:
		weights := pawl.Weighted{}
		for q, weight := range queues {
			n, _ := weight.(float64)
			weights[q] = int(n)
		}
		cfg.Queues = weights
	}
	return pawl.NewWorker(f.client, mux, cfg).Run(ctx)
}

type goRun struct {
	ctx context.Context
	c   *pawl.Claim
}

func (r *goRun) claim() map[string]any {
	c := r.c
	out := map[string]any{"task_id": c.ID, "type": c.Type, "queue": c.Queue, "payload": data(c.Payload, c.ContentType),
		"content_type": c.ContentType, "priority": c.Priority, "attempt": c.Attempt, "max_attempts": c.MaxAttempts, "fence": c.Fence,
		"headers": c.Headers, "key": c.Key, "tags": c.Tags, "idempotency_key": c.IdempotencyKey, "group_id": c.GroupID}
	if c.Parent != nil {
		out["parent"] = map[string]any{"task_id": c.Parent.TaskID, "group_id": c.Parent.GroupID}
	}
	m, _ := asJSON(out).(map[string]any)
	return m
}

func (r *goRun) parent() (out any, err error) { return out, r.c.ParentResult(&out) }

func (r *goRun) progress(percent float64, message string) error {
	return r.c.Progress(r.ctx, percent, message)
}

func (r *goRun) checkpoint(v any) error {
	err := r.c.Checkpoint(r.ctx, v)
	if err != nil && r.ctx.Err() != nil { // told to stop meanwhile
		err = context.Cause(r.ctx)
	}
	return goInterruption(err)
}

func (r *goRun) lastCheckpoint() (out any, err error) {
	_, err = r.c.LastCheckpoint(&out)
	return out, err
}

func (r *goRun) step(name string, fn func() (any, error)) (any, error) {
	return pawl.Step(r.ctx, r.c, name, func(context.Context) (any, error) { return fn() })
}

func (r *goRun) once(key string, fn func() (any, error)) (any, error) {
	return pawl.Once(r.ctx, r.c, key, func(context.Context) (any, error) { return fn() })
}

func (r *goRun) interrupted() error {
	<-r.ctx.Done()
	return goInterruption(context.Cause(r.ctx))
}

// goInterruption returns why a handler was stopped, in the words of stories. It wraps the error, for the worker to see.
func goInterruption(err error) error {
	for why, cause := range map[interruption]error{"cancelled": pawl.ErrCancelled, "draining": pawl.ErrDraining,
		"timed_out": context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return errors.Join(why, err)
		}
	}
	return err
}

func goEnd(c *pawl.Claim, e ending) error {
	err := e.err
	if err == nil {
		err = errors.New(e.message)
	}
	switch e.kind {
	case "returns":
		if e.contentType != "" {
			raw, err := base64.StdEncoding.DecodeString(fmt.Sprint(e.result))
			c.SetRawResult(e.contentType, raw)
			return err
		}
		if e.hasResult {
			return c.SetResult(e.result)
		}
		return nil
	case "dead":
		return pawl.DeadLetter(err)
	case "discards":
		return pawl.Discard(err)
	case "poisons":
		return pawl.Poison(err)
	case "snoozes":
		return pawl.Snooze(e.delay)
	case "fails":
		if e.delay > 0 {
			return pawl.RetryIn(e.delay, err)
		}
	}
	return err
}
