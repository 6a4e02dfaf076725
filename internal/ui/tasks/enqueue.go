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
	if kept := req.Hidden("request_id"); kept != "" { // resubmitting after an error repeats the same request
		id = kept
	}
	f := &form.Form{Title: "Enqueue a task", Wide: true, Button: "Enqueue", Back: "/tasks",
		Text: "An accepted task is on stable storage.", Fields: []form.Field{{Name: "request_id", Kind: "hidden", Value: id}}}
	f.Fields = append(f.Fields, templateFields("", new(asked(req)))...)
	f.Fields = slices.Insert(f.Fields, len(f.Fields)-moreFields,
		form.Field{Name: "run_at", Label: "Due", Kind: "text", Placeholder: "now",
			Hint: "A time such as 2026-01-31T12:00:00Z, or a delay such as 10m."},
		form.Field{Name: "idempotency_key", Label: "Idempotency key", Kind: "text",
			Hint: "A second enqueue with the same key and queue returns the first task."})
	return f, nil
}

// asked returns the task that a link to the form proposes.
func asked(req *web.Request) admin.ScheduledTask {
	return admin.ScheduledTask{Queue: req.Query("queue"), Type: req.Query("type")}
}

func doEnqueue(req *web.Request) (web.Done, error) {
	f, err := enqueueForm(req)
	if err != nil {
		return web.Done{}, err
	}
	r := req.Edits(f)
	t := readTemplate(r, "", asked(req))
	t.At, t.IdempotencyKey = r.Time("run_at"), r.Text("idempotency_key")
	opts := allOptions(&t)
	if id := r.Text("request_id"); id != "" {
		opts = append(opts, pawl.RequestID(id))
	}
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	ref, err := req.Client.Enqueue(req.Ctx, argsOf(&t), opts...)
	if err != nil {
		return web.Done{}, err
	}
	message := "Enqueued."
	if ref.Duplicate {
		message = "Nothing was added: this task has the same key, or the form was sent before."
	}
	return web.Done{Message: message, Next: "/tasks/" + ref.ID}, nil
}
