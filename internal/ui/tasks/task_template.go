package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// templateFields are the fields of a task's options that enqueuing and scheduling have in common. In a schedule their
// names begin with "task.". The last moreFields of them are collapsed.
func templateFields(in string, t *admin.ScheduledTask) []form.Field {
	attempts := form.NumberText(int64(t.MaxAttempts))
	payload := form.Field{Name: in + "payload", Label: "Payload", Kind: "json", Placeholder: `{"to": "a@example.com"}`,
		Value: indented(t.Payload)}
	if !isJSON(t.ContentType) {
		payload.Kind, payload.Value = "note", "The payload is "+t.ContentType+
			" and stays as it is; the editor takes only JSON. Use pawl schedule apply to change it."
	}
	return append([]form.Field{
		{Name: in + "type", Label: "Type", Kind: "text", Required: true, Placeholder: "mail.welcome", Value: t.Type,
			Hint: "Names the handler."},
		{Name: in + "queue", Label: "Queue", Kind: "text", Placeholder: "default", Value: t.Queue},
		{Name: in + "priority", Label: "Priority", Kind: "choice", Options: form.Choices("", "normal", "high", "low"),
			Value: string(t.Priority)},
		payload,
		{Name: in + "key", Label: "Key", Kind: "text", Value: t.Key, Hint: "Groups tasks for fairness and limits, for example by tenant."},
		{Name: in + "tags", Label: "Tags", Kind: "text", Value: form.ListText(t.Tags),
			Hint: "Separated by commas. Quote a tag with a comma."},
		{Name: in + "max_attempts", Label: "Max attempts", Kind: "number", Placeholder: "the queue's", Value: attempts},
		{Name: in + "timeout", Label: "Run timeout", Kind: "text", Placeholder: "the queue's", Value: form.DurationText(t.Timeout)},
		{Name: in + "expires_in", Label: "Expires in", Kind: "text", Placeholder: "never", Value: form.DurationText(t.ExpiresIn),
			Hint: "The task is discarded if it has not started by then."},
	}, foldedFields(in, t)...)
}

// moreFields is the number of foldedFields.
const moreFields = 8

// foldedFields are the fields that few tasks need.
func foldedFields(in string, t *admin.ScheduledTask) []form.Field {
	retry, retention, unique := pawltype.RetryPolicy{}, "", pawltype.UniqueOpts{}
	if t.Retry != nil {
		retry = *t.Retry
	}
	if t.Retention != nil {
		retention = form.DurationText(*t.Retention)
		if *t.Retention == 0 {
			retention = "0s"
		}
	}
	conflict := ""
	if t.Unique != nil {
		unique = *t.Unique
		conflict = string(unique.OnConflict)
		if conflict == "" {
			conflict = string(pawltype.OnConflictKeep)
		}
	}
	factor, jitter := form.RetryTexts(retry)
	return []form.Field{
		{Fold: "More", Name: in + "retry.initial", Label: "First retry after", Kind: "text", Placeholder: "the queue's",
			Value: form.DurationText(retry.Initial), Hint: "If you set one of these four, the others default to 30s, 2, 30m and 0.25."},
		{Name: in + "retry.factor", Label: "Backoff factor", Kind: "text", Value: factor},
		{Name: in + "retry.max", Label: "Longest delay", Kind: "text", Value: form.DurationText(retry.Max)},
		{Name: in + "retry.jitter", Label: "Jitter", Kind: "text", Value: jitter,
			Hint: "From 0 to 1: the share of a delay that is random."},
		{Name: in + "retention", Label: "Retention", Kind: "text", Placeholder: "the queue's", Value: retention},
		{Name: in + "unique.on_conflict", Label: "If the unique key is taken", Kind: "choice", Value: conflict,
			Options: []form.Option{{Value: "", Label: "no unique key"}, {Value: "keep", Label: "keep the existing task"},
				{Value: "replace", Label: "replace the existing task if it waits"},
				{Value: "keep_last", Label: "keep the existing task with " +
					"this payload"}, {Value: "reject", Label: "refuse this task"}}},
		{Name: in + "unique.key", Label: "Unique key", Kind: "text", Placeholder: "type and payload", Value: unique.Key},
		{Name: in + "headers", Label: "Headers", Kind: "area", Value: form.HeadersText(t.Headers), Placeholder: "tenant: 7",
			Hint: `One per line, as name: value. In quotes, spaces at its ends and line breaks (\n) are kept.`},
	}
}

// isJSON reports whether a payload of this content type is JSON.
func isJSON(contentType string) bool { return contentType == "" || contentType == "application/json" }

// readTemplate changes a task to the fields of templateFields, which showed it.
func readTemplate(r *form.Reader, in string, t admin.ScheduledTask) admin.ScheduledTask {
	t.Type = r.Required(in + "type")
	form.Set(r, &t.Queue, r.Text, in+"queue")
	form.Set(r, &t.Priority, func(name string) pawltype.Priority { return pawltype.Priority(r.Text(name)) }, in+"priority")
	form.Set(r, &t.Key, r.Text, in+"key")
	form.Set(r, &t.Tags, r.List, in+"tags")
	form.Set(r, &t.MaxAttempts, r.Count, in+"max_attempts")
	form.Set(r, &t.Timeout, r.Duration, in+"timeout")
	form.Set(r, &t.ExpiresIn, r.Duration, in+"expires_in")
	form.Set(r, &t.Headers, r.Headers, in+"headers")
	if isJSON(t.ContentType) {
		form.Set(r, &t.Payload, func(name string) []byte { return readPayload(r, name) }, in+"payload")
	}
	form.Set(r, &t.Retention, func(name string) *time.Duration {
		if r.Text(name) == "" {
			return nil
		}
		return new(r.Duration(name))
	}, in+"retention")
	var retry pawltype.RetryPolicy
	if t.Retry != nil {
		retry = *t.Retry
	}
	if retry = r.RetryPolicy(in+"retry.", retry); retry != (pawltype.RetryPolicy{}) {
		t.Retry = &retry
	} else if t.Retry != nil && *t.Retry != retry {
		t.Retry = nil
	}
	t.Unique = readUnique(r, in, t.Unique)
	return t
}

// readPayload reads a payload, which stays as it was typed but for spaces at its ends; nil: none.
func readPayload(r *form.Reader, name string) []byte {
	text := []byte(r.Text(name))
	if len(text) == 0 {
		return nil
	}
	if wrong := notJSON(text); wrong != "" {
		r.Fail(format.BadField(name, "%s", wrong))
	}
	return text
}

// readUnique reads a unique key, from one that is in the form; nil: none. With only a key given, a conflict keeps the existing task.
func readUnique(r *form.Reader, in string, before *pawltype.UniqueOpts) *pawltype.UniqueOpts {
	key, conflict := in+"unique.key", in+"unique.on_conflict"
	if none := r.Text(conflict) == ""; none && (r.Text(key) == "" || !r.Touched(key)) {
		return nil
	}
	var u pawltype.UniqueOpts
	if before != nil {
		u = *before
	}
	form.Set(r, &u.Key, r.Text, key)
	form.Set(r, &u.OnConflict, func(name string) pawltype.OnConflict { return pawltype.OnConflict(r.Text(name)) }, conflict)
	return &u
}

// notJSON returns where and why a text is not JSON, at the first error; "": it is JSON.
func notJSON(text []byte) string {
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, new(json.RawMessage)); err == nil {
		return ""
	} else if !errors.As(err, &syntax) {
		return "is not JSON: " + err.Error()
	}
	at := text[:max(min(int(syntax.Offset), len(text))-1, 0)] // up to the invalid character
	if strings.Contains(syntax.Error(), "unexpected end") {
		at = text
	}
	line, column := bytes.Count(at, []byte("\n"))+1, utf8.RuneCount(at[bytes.LastIndexByte(at, '\n')+1:])+1
	return fmt.Sprintf("is not JSON: line %d, column %d: %s", line, column, syntax)
}
