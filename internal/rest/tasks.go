package rest

import (
	"net/http"
	"net/url"
	"strings"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var taskRoutes = []Route{
	{"POST", "/api/v1/tasks", "ProducerService/Enqueue", enqueue},
	{"POST", "/api/v1/tasks/batch", "ProducerService/EnqueueBatch", enqueueBatch},
	{"GET", "/api/v1/tasks", "ProducerService/ListTasks", listTasks},
	{"GET", "/api/v1/tasks/{id}", "ProducerService/GetTask", getTask},
	{"PATCH", "/api/v1/tasks/{id}", "ProducerService/UpdateTask", updateTask},
	{"DELETE", "/api/v1/tasks/{id}", "ProducerService/CancelTask", cancelTask},
}

// Headers that say the same as fields of a task.
const (
	headerIdempotencyKey = "Idempotency-Key"
	headerRequestID      = "Pawl-Request-Id"
)

func enqueue(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	s := specReader{spec: &pawlv1.TaskSpec{}}
	if err := x.fields(s.field); err != nil {
		return err
	}
	spec, err := s.done()
	if err != nil {
		return err
	}
	if err := x.fromHeader(&spec.IdempotencyKey, headerIdempotencyKey, "idempotency_key"); err != nil {
		return err
	}
	if err := x.fromHeader(&spec.RequestId, headerRequestID, "request_id"); err != nil {
		return err
	}
	got, err := x.API.Producer.Enqueue(x.ctx, &pawlv1.EnqueueRequest{Task: spec})
	if err != nil {
		return err
	}
	x.status = http.StatusAccepted
	x.enqueued(got.GetTask())
	return nil
}

// fromHeader takes a field from a header, unless the body says something else.
func (x *exchange) fromHeader(to *string, header, field string) error {
	switch v := x.r.Header.Get(header); {
	case v == "":
	case *to != "" && *to != v:
		return task.Invalid(field, "%q differs from the header %s", task.Cut(*to, 64), header)
	default:
		*to = v
	}
	return nil
}

// enqueueBatch refuses bad tasks by themselves, also those that it can't read.
func enqueueBatch(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	m := mixed[*pawlv1.TaskSpec]{field: "tasks", most: x.Batch}
	err := x.fields(func(r *jsonReader, name string) error {
		if name != "tasks" {
			return unknown("", name)
		}
		return m.read(r, readSpec)
	})
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return err
	}
	var results []*pawlv1.EnqueueResult
	if len(m.good) > 0 {
		got, err := x.API.Producer.EnqueueBatch(x.ctx, &pawlv1.EnqueueBatchRequest{Tasks: m.good})
		if err != nil {
			return err
		}
		results = got.GetResults()
	}
	x.batchAnswer(&m, results)
	return nil
}

// readSpec reads one task of a batch.
func readSpec(r *jsonReader) (*pawlv1.TaskSpec, error) {
	s := specReader{spec: &pawlv1.TaskSpec{}}
	if err := r.fields("", func(name string) error { return s.field(r, name) }); err != nil {
		return nil, err
	}
	return s.done()
}

// batchAnswer writes what became of each task of a batch: of those that could be read in results, of the others why they could not.
func (x *exchange) batchAnswer(m *mixed[*pawlv1.TaskSpec], results []*pawlv1.EnqueueResult) {
	x.open('{')
	x.within("results", '[')
	m.each(func(n int, refused *pawlv1.Error) {
		if refused == nil {
			refused = results[n].GetError()
		}
		if refused == nil {
			x.enqueued(results[n].GetTask())
			return
		}
		x.open('{')
		x.itemError(refused)
		x.close('}')
	})
	x.close(']')
	x.close('}')
}

// mixed reads the items of a batch, of which some may be unreadable: those are refused by themselves.
type mixed[T any] struct {
	field   string
	most    int
	good    []T
	refused []*pawlv1.Error // of each item; nil for the good ones
}

func (m *mixed[T]) read(r *jsonReader, item func(*jsonReader) (T, error)) error {
	return r.items(m.field, func(i int) error {
		if i == m.most {
			return task.Invalid(m.field, "more than %d items", m.most)
		}
		depth := r.json.StackDepth()
		v, err := item(r)
		if err != nil && r.malformed == nil {
			m.refused = append(m.refused, contract.ErrorProto(m.refusal(err)))
			return r.skip(depth, int64(i))
		}
		if err != nil {
			return err
		}
		m.good, m.refused = append(m.good, v), append(m.refused, nil)
		return nil
	})
}

func (m *mixed[T]) refusal(err error) *task.Error {
	if e, ok := task.AsError(err); ok {
		return e
	}
	e, _ := task.AsError(task.Invalid(m.field, "%v", err))
	return e
}

func (m *mixed[T]) check() error {
	if len(m.refused) == 0 {
		return task.Invalid(m.field, "is needed, with 1 to %d items", m.most)
	}
	return nil
}

// each goes over the items in their order, giving the number of a good one among the good, or the refusal.
func (m *mixed[T]) each(answer func(n int, refused *pawlv1.Error)) {
	n := 0
	for _, refused := range m.refused {
		answer(n, refused)
		if refused == nil {
			n++
		}
	}
}

func getTask(x *exchange) error {
	q, err := x.query("wait", "consistency")
	if err != nil {
		return err
	}
	req := &pawlv1.GetTaskRequest{TaskId: x.r.PathValue("id")}
	switch c := q.Get("consistency"); c {
	case "", "linearizable":
	case "stale":
		req.Consistency = pawlv1.Consistency_CONSISTENCY_STALE
	default:
		return task.NoneOf("consistency", c, []string{"linearizable", "stale"})
	}
	if q.Has("wait") {
		if req.Wait, err = spanText("wait", q.Get("wait")); err != nil {
			return err
		}
		x.patience(req.Wait.AsDuration())
	}
	got, err := x.API.Producer.GetTask(x.ctx, req)
	if err != nil {
		return err
	}
	if got.Age != nil {
		x.w.Header().Set(headerAge, got.Age.AsDuration().String())
	}
	x.task(got.GetTask())
	return nil
}

func cancelTask(x *exchange) error {
	q, err := x.query("reason")
	if err != nil {
		return err
	}
	got, err := x.API.Producer.CancelTask(x.ctx, &pawlv1.CancelTaskRequest{TaskId: x.r.PathValue("id"), Reason: q.Get("reason")})
	if err != nil {
		return err
	}
	x.task(got.GetTask())
	return nil
}

func updateTask(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	req := &pawlv1.UpdateTaskRequest{TaskId: x.r.PathValue("id")}
	payload, err := x.readEdit(req)
	if err != nil {
		return err
	}
	if payload != nil { // what it stands for depends on the task's content type
		got, err := x.API.Producer.GetTask(x.ctx, &pawlv1.GetTaskRequest{TaskId: req.GetTaskId()})
		if err != nil {
			return err
		}
		if req.Payload, err = dataOf("payload", payload, got.GetTask().GetContentType()); err != nil {
			return err
		}
	}
	got, err := x.API.Producer.UpdateTask(x.ctx, req)
	if err != nil {
		return err
	}
	x.task(got.GetTask())
	return nil
}

// readEdit reads what is to change of a task. The payload is given as it stands there; nil: it stays as it is.
func (x *exchange) readEdit(req *pawlv1.UpdateTaskRequest) (payload []byte, err error) {
	err = x.fields(func(r *jsonReader, name string) (err error) {
		switch name {
		case "run_at":
			req.RunAt, err = r.time(name)
		case "priority":
			req.Priority, err = r.priority(name)
		case "payload":
			payload, err = r.any()
		case "max_attempts":
			req.MaxAttempts, err = r.int32(name, 1, contract.MaxAttempts)
		case task.FieldIfETag:
			req.IfEtag, err = r.str(name)
		default:
			err = unknown("", name)
		}
		return err
	})
	return payload, err
}

func listTasks(x *exchange) error {
	q, err := x.query(append([]string{"queue", "limit", "cursor", "fields"}, filterNames...)...)
	if err != nil {
		return err
	}
	req := &pawlv1.ListTasksRequest{Cursor: q.Get("cursor")}
	if req.Limit, err = limitText(q); err != nil {
		return err
	}
	if req.Filter, err = filterText(q); err != nil {
		return err
	}
	if f := q.Get("fields"); f == "payload" {
		req.WithPayload = true
	} else if f != "" {
		return task.Invalid("fields", "%q is not payload", task.Cut(f, 64))
	}
	got, err := x.API.Producer.ListTasks(x.ctx, req)
	if err != nil {
		return err
	}
	x.tasks(got)
	return nil
}

// filterNames are the parameters of a filter besides queue, which the path may hold.
var filterNames = []string{"state", "type", "tag", "key", "worker", "error", "fingerprint", "operation", "created_after", "created_before", "q", "payload"}

// filterText reads a filter from the parameters of a path.
func filterText(q url.Values) (f *pawlv1.Filter, err error) {
	f = &pawlv1.Filter{Queue: q.Get("queue"), Type: q.Get("type"), Tag: q.Get("tag"), Key: q.Get("key"), Worker: q.Get("worker"),
		Error: q.Get("error"), Fingerprint: q.Get("fingerprint"), Operation: q.Get("operation"), Q: q.Get("q")}
	for _, names := range q["state"] {
		for name := range strings.SplitSeq(names, ",") {
			s, err := stateText("state", name)
			if err != nil {
				return nil, err
			}
			f.States = append(f.States, s)
		}
	}
	if f.Payload, err = payloadFields(q["payload"]); err != nil {
		return nil, err
	}
	if q.Has("created_after") {
		if f.CreatedAfter, err = timeText("created_after", q.Get("created_after")); err != nil {
			return nil, err
		}
	}
	if q.Has("created_before") {
		f.CreatedBefore, err = timeText("created_before", q.Get("created_before"))
	}
	return f, err
}

// payloadFields reads conditions on fields of the payload: customer.id:42. The first colon without a \ before it ends the path.
func payloadFields(conditions []string) (fields []*pawlv1.PayloadField, err error) {
	for _, c := range conditions {
		end := 0
		for end < len(c) && c[end] != ':' {
			if c[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(c) {
			return nil, task.Invalid("payload", "%q is not a path and a value such as customer.id:42", task.Cut(c, 64))
		}
		fields = append(fields, &pawlv1.PayloadField{Path: c[:end], Value: c[end+1:]})
	}
	return fields, nil
}

func stateText(field, name string) (pawlv1.State, error) {
	s, ok := task.ParseState(name)
	if !ok {
		return 0, task.Invalid(field, "%q is not a state", task.Cut(name, 64))
	}
	return pawlv1.State(s), nil
}
