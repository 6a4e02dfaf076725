package tasks

import (
	"slices"

	"github.com/google/uuid"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/web"
)

var enqueueActions = []web.Action{{Path: "/enqueue", Nav: "/enqueue", Form: enqueueForm, Do: doEnqueue}}

func enqueueForm(req *web.Request) (*form.Form, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	id := request.String()
	if kept := req.Value("request_id"); kept != "" { // resubmitting after an error repeats the same request
		id = kept
	}
	f := &form.Form{Title: "Enqueue a task", Wide: true, Button: "Enqueue", Back: "/tasks",
		Text: "An accepted task is on stable storage.", Fields: []form.Field{{Name: "request_id", Kind: "hidden", Value: id}}}
	f.Fields = append(f.Fields, templateFields("", &admin.ScheduledTask{Queue: req.Query("queue"), Type: req.Query("type")})...)
	f.Fields = slices.Insert(f.Fields, len(f.Fields)-moreFields,
		form.Field{Name: "run_at", Label: "Due", Kind: "text", Placeholder: "now", Hint: "A time such as 2026-01-31T12:00:00Z, or a delay such as 10m."},
		form.Field{Name: "idempotency_key", Label: "Idempotency key", Kind: "text", Hint: "A second enqueue with the same key and queue returns the first task."})
	return f, nil
}

func doEnqueue(req *web.Request) (web.Done, error) {
	r := req.Reader()
	args, opts := readTemplate(r, "", &admin.ScheduledTask{})
	if at := r.Time("run_at"); !at.IsZero() {
		opts = append(opts, pawl.At(at))
	}
	if key := r.Text("idempotency_key"); key != "" {
		opts = append(opts, pawl.IdempotencyKey(key))
	}
	if unique := readUnique(r, ""); unique != nil {
		opts = append(opts, pawl.Unique(*unique))
	}
	if id := r.Text("request_id"); id != "" {
		opts = append(opts, pawl.RequestID(id))
	}
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	ref, err := req.Client.Enqueue(req.Ctx, args, opts...)
	if err != nil {
		return web.Done{}, err
	}
	message := "Enqueued."
	if ref.Duplicate {
		message = "A task with this key already exists."
	}
	return web.Done{Message: message, Next: "/tasks/" + ref.ID}, nil
}
