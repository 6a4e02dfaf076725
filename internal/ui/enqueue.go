package ui

import (
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/pawlq/pawl"
)

var enqueueActions = []action{{path: "/enqueue", nav: "/enqueue", form: enqueueForm, do: doEnqueue}}

func enqueueForm(v *visit) (*form, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	id := request.String()
	if kept := v.value("request_id"); kept != "" { // a repeat after an error is the same request
		id = kept
	}
	f := &form{Title: "Enqueue a task", Wide: true, Button: "Enqueue", Back: "/tasks",
		Text: "When it is accepted, it is on stable storage.", Fields: []field{{Name: "request_id", Kind: "hidden", Value: id}}}
	f.Fields = append(f.Fields, templateFields("", &pawl.ScheduledTask{Queue: v.query("queue"), Type: v.query("type")})...)
	f.Fields = append(f.Fields,
		field{Name: "run_at", Label: "Due", Kind: "text", Placeholder: "now", Hint: "A time such as 2026-01-31T12:00:00Z, or from now: 10m"},
		field{Name: "idempotency_key", Label: "Idempotency key", Kind: "text", Hint: "One task per key and queue."})
	return f, nil
}

func doEnqueue(v *visit) (done, error) {
	r := &reader{v: v}
	args, opts := r.template("")
	if at := r.moment("run_at"); !at.IsZero() {
		opts = append(opts, pawl.At(at))
	}
	if key := r.text("idempotency_key"); key != "" {
		opts = append(opts, pawl.IdempotencyKey(key))
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
		said = "This task was there already."
	}
	return done{Said: said, Next: "/tasks/" + ref.ID}, nil
}

// templateFields ask for a task: what an enqueue and a schedule have in common. In a schedule their names begin with "task.".
func templateFields(in string, t *pawl.ScheduledTask) []field {
	attempts := numberText(int64(t.MaxAttempts))
	return []field{
		{Name: in + "type", Label: "Type", Kind: "text", Required: true, Placeholder: "mail.welcome", Value: t.Type, Hint: "Names the handler."},
		{Name: in + "queue", Label: "Queue", Kind: "text", Placeholder: "default", Value: t.Queue},
		{Name: in + "priority", Label: "Priority", Kind: "choice", Options: choices("", "normal", "high", "low"), Value: string(t.Priority)},
		{Name: in + "payload", Label: "Payload", Kind: "json", Placeholder: `{"to": "a@example.com"}`, Value: indented(t.Payload)},
		{Name: in + "key", Label: "Key", Kind: "text", Value: t.Key, Hint: "For fairness and limits: a tenant, an account."},
		{Name: in + "tags", Label: "Tags", Kind: "text", Value: strings.Join(t.Tags, ", "), Hint: "Words with commas between."},
		{Name: in + "max_attempts", Label: "Attempts at most", Kind: "number", Placeholder: "the queue's", Value: attempts},
		{Name: in + "timeout", Label: "Timeout of a run", Kind: "text", Placeholder: "the queue's", Value: fieldSpan(t.Timeout)},
		{Name: in + "expires_in", Label: "Expires in", Kind: "text", Placeholder: "never", Value: fieldSpan(t.ExpiresIn), Hint: "Discarded unless it has started by then."},
	}
}

// template reads what templateFields ask for.
func (r *reader) template(in string) (pawl.RawTask, []pawl.Option) {
	args := pawl.RawTask{Type: r.text(in + "type")}
	if text := r.text(in + "payload"); text != "" {
		args.Payload = []byte(text)
		if !json.Valid(args.Payload) {
			r.fail(badField(in+"payload", "is not JSON"))
		}
	}
	var opts []pawl.Option
	set := func(is bool, o pawl.Option) {
		if is {
			opts = append(opts, o)
		}
	}
	queue, priority, key := r.text(in+"queue"), r.text(in+"priority"), r.text(in+"key")
	attempts, timeout, expires := r.count(in+"max_attempts"), r.span(in+"timeout"), r.span(in+"expires_in")
	set(queue != "", pawl.Queue(queue))
	set(priority != "", pawl.Priority(priority))
	set(key != "", pawl.Key(key))
	set(attempts > 0, pawl.MaxAttempts(attempts))
	set(timeout > 0, pawl.Timeout(timeout))
	set(expires > 0, pawl.ExpiresIn(expires))
	for _, tag := range strings.Split(r.text(in+"tags"), ",") {
		tag = strings.TrimSpace(tag)
		set(tag != "", pawl.Tags(tag))
	}
	return args, opts
}
