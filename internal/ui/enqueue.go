package ui

import (
	"slices"

	"github.com/google/uuid"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

var enqueueActions = []action{{path: "/enqueue", nav: "/enqueue", form: enqueueForm, do: doEnqueue}}

func enqueueForm(v *visit) (*form, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	id := request.String()
	if kept := v.value("request_id"); kept != "" { // resubmitting after an error repeats the same request
		id = kept
	}
	f := &form{Title: "Enqueue a task", Wide: true, Button: "Enqueue", Back: "/tasks",
		Text: "An accepted task is on stable storage.", Fields: []field{{Name: "request_id", Kind: "hidden", Value: id}}}
	f.Fields = append(f.Fields, templateFields("", &admin.ScheduledTask{Queue: v.query("queue"), Type: v.query("type")})...)
	f.Fields = slices.Insert(f.Fields, len(f.Fields)-moreFields,
		field{Name: "run_at", Label: "Due", Kind: "text", Placeholder: "now", Hint: "A time such as 2026-01-31T12:00:00Z, or a delay such as 10m."},
		field{Name: "idempotency_key", Label: "Idempotency key", Kind: "text", Hint: "A second enqueue with the same key and queue returns the first task."})
	return f, nil
}

func doEnqueue(v *visit) (done, error) {
	r := &reader{v: v}
	args, opts := r.template("")
	if at := r.time("run_at"); !at.IsZero() {
		opts = append(opts, pawl.At(at))
	}
	if key := r.text("idempotency_key"); key != "" {
		opts = append(opts, pawl.IdempotencyKey(key))
	}
	if unique := r.unique(""); unique != nil {
		opts = append(opts, pawl.Unique(*unique))
	}
	opts = append(opts, pawl.RequestID(r.text("request_id")))
	if r.err != nil {
		return done{}, r.err
	}
	ref, err := v.client.Enqueue(v.ctx, args, opts...)
	if err != nil {
		return done{}, err
	}
	said := "Enqueued."
	if ref.Duplicate {
		said = "A task with this key already exists."
	}
	return done{Said: said, Next: "/tasks/" + ref.ID}, nil
}
