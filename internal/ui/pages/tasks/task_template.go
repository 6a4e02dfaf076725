package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

// templateFields are the fields of a task's options that enqueuing and scheduling have in common. In a schedule their names begin with "task.". The
// last moreFields of them are collapsed.
func templateFields(in string, t *admin.ScheduledTask) []form.Field {
	attempts := form.NumberText(int64(t.MaxAttempts))
	payload := form.Field{Name: in + "payload", Label: "Payload", Kind: "json", Placeholder: `{"to": "a@example.com"}`, Value: indented(t.Payload)}
	if !isJSON(t.ContentType) {
		payload.Kind, payload.Value = "note", "The payload is "+t.ContentType+" and stays as it is; the editor takes only JSON. Use pawl schedule apply to change it."
	}
	return append([]form.Field{
		{Name: in + "type", Label: "Type", Kind: "text", Required: true, Placeholder: "mail.welcome", Value: t.Type, Hint: "Names the handler."},
		{Name: in + "queue", Label: "Queue", Kind: "text", Placeholder: "default", Value: t.Queue},
		{Name: in + "priority", Label: "Priority", Kind: "choice", Options: form.Choices("", "normal", "high", "low"), Value: string(t.Priority)},
		payload,
		{Name: in + "key", Label: "Key", Kind: "text", Value: t.Key, Hint: "Groups tasks for fairness and limits, for example by tenant."},
		{Name: in + "tags", Label: "Tags", Kind: "text", Value: strings.Join(t.Tags, ", "), Hint: "Separated by commas."},
		{Name: in + "max_attempts", Label: "Max attempts", Kind: "number", Placeholder: "the queue's", Value: attempts},
		{Name: in + "timeout", Label: "Run timeout", Kind: "text", Placeholder: "the queue's", Value: form.DurationText(t.Timeout)},
		{Name: in + "expires_in", Label: "Expires in", Kind: "text", Placeholder: "never", Value: form.DurationText(t.ExpiresIn), Hint: "The task is discarded if it has not started by then."},
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
		{Fold: "More", Name: in + "retry.initial", Label: "First retry after", Kind: "text", Placeholder: "the queue's", Value: form.DurationText(retry.Initial), Hint: "If you set one of these four, the others default to 30s, 2, 30m and 0.25."},
		{Name: in + "retry.factor", Label: "Backoff factor", Kind: "text", Value: factor},
		{Name: in + "retry.max", Label: "Longest delay", Kind: "text", Value: form.DurationText(retry.Max)},
		{Name: in + "retry.jitter", Label: "Jitter", Kind: "text", Value: jitter, Hint: "From 0 to 1: the share of a delay that is random."},
		{Name: in + "retention", Label: "Retention", Kind: "text", Placeholder: "the queue's", Value: retention},
		{Name: in + "unique.on_conflict", Label: "If the unique key is taken", Kind: "choice", Value: conflict,
			Options: []form.Option{{Value: "", Label: "no unique key"}, {Value: "keep", Label: "keep the existing task"}, {Value: "replace", Label: "replace the existing task if it waits"}, {Value: "keep_last", Label: "keep the existing task with this payload"}, {Value: "reject", Label: "refuse this task"}}},
		{Name: in + "unique.key", Label: "Unique key", Kind: "text", Placeholder: "type and payload", Value: unique.Key},
		{Name: in + "headers", Label: "Headers", Kind: "area", Value: headersText(t.Headers), Placeholder: "tenant: 7", Hint: "One per line, as name: value."},
	}
}

func headersText(headers map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lines = append(lines, name+": "+headers[name])
	}
	return strings.Join(lines, "\n")
}

// isJSON reports whether a payload of this content type is JSON.
func isJSON(contentType string) bool { return contentType == "" || contentType == "application/json" }

// readTemplate reads the fields of templateFields, which showed before. A payload that was not edited keeps its bytes.
func readTemplate(r *form.Reader, in string, before *admin.ScheduledTask) (pawl.RawTask, []pawl.Option) {
	args := pawl.RawTask{Type: r.Required(in + "type"), ContentType: before.ContentType}
	switch text := r.Text(in + "payload"); {
	case !isJSON(before.ContentType), text == strings.TrimSpace(indented(before.Payload)):
		args.Payload = before.Payload
	case text != "":
		args.Payload = []byte(text)
		if wrong := notJSON(args.Payload); wrong != "" {
			r.Fail(problem.BadField(in+"payload", "%s", wrong))
		}
	}
	var opts []pawl.Option
	set := func(is bool, o pawl.Option) {
		if is {
			opts = append(opts, o)
		}
	}
	queue, priority, key := r.Text(in+"queue"), r.Text(in+"priority"), r.Text(in+"key")
	attempts, timeout, expires := r.Count(in+"max_attempts"), r.Duration(in+"timeout"), r.Duration(in+"expires_in")
	set(queue != "", pawl.Queue(queue))
	set(priority != "", pawl.Priority(pawltype.Priority(priority)))
	set(key != "", pawl.Key(key))
	set(attempts > 0, pawl.MaxAttempts(attempts))
	set(timeout > 0, pawl.Timeout(timeout))
	set(expires > 0, pawl.ExpiresIn(expires))
	for _, tag := range strings.Split(r.Text(in+"tags"), ",") {
		tag = strings.TrimSpace(tag)
		set(tag != "", pawl.Tags(tag))
	}
	if retry := r.RetryPolicy(in + "retry."); retry != (pawltype.RetryPolicy{}) {
		opts = append(opts, pawl.Retry(retry))
	}
	set(r.Text(in+"retention") != "", pawl.Retention(r.Duration(in+"retention")))
	for name, value := range readHeaders(r, in+"headers") {
		opts = append(opts, pawl.Header(name, value))
	}
	return args, opts
}

// readUnique reads a unique key; nil: none. With only a key given, a conflict keeps the existing task.
func readUnique(r *form.Reader, in string) *pawltype.UniqueOpts {
	u := &pawltype.UniqueOpts{Key: r.Text(in + "unique.key"), OnConflict: pawltype.OnConflict(r.Text(in + "unique.on_conflict"))}
	if u.Key == "" && u.OnConflict == "" {
		return nil
	}
	return u
}

// readHeaders parses lines of names and values.
func readHeaders(r *form.Reader, name string) map[string]string {
	text := r.Text(name)
	if text == "" {
		return nil
	}
	all := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); !ok || key == "" {
			r.Fail(problem.BadField(name, "%q is not a name, a colon and a value", format.Clip(line, 60)))
			return nil
		}
		if _, twice := all[key]; twice {
			r.Fail(problem.BadField(name, "%q is given twice", format.Clip(key, 60)))
		}
		all[key] = strings.TrimSpace(value)
	}
	return all
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
