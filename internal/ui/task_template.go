package ui

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// templateFields are the fields of a task's options that enqueuing and scheduling have in common. In a schedule their names begin with "task.". The
// last moreFields of them are collapsed.
func templateFields(in string, t *admin.ScheduledTask) []field {
	attempts := numberText(int64(t.MaxAttempts))
	return append([]field{
		{Name: in + "type", Label: "Type", Kind: "text", Required: true, Placeholder: "mail.welcome", Value: t.Type, Hint: "Names the handler."},
		{Name: in + "queue", Label: "Queue", Kind: "text", Placeholder: "default", Value: t.Queue},
		{Name: in + "priority", Label: "Priority", Kind: "choice", Options: choices("", "normal", "high", "low"), Value: string(t.Priority)},
		{Name: in + "payload", Label: "Payload", Kind: "json", Placeholder: `{"to": "a@example.com"}`, Value: indented(t.Payload)},
		{Name: in + "key", Label: "Key", Kind: "text", Value: t.Key, Hint: "Groups tasks for fairness and limits, for example by tenant."},
		{Name: in + "tags", Label: "Tags", Kind: "text", Value: strings.Join(t.Tags, ", "), Hint: "Separated by commas."},
		{Name: in + "max_attempts", Label: "Max attempts", Kind: "number", Placeholder: "the queue's", Value: attempts},
		{Name: in + "timeout", Label: "Run timeout", Kind: "text", Placeholder: "the queue's", Value: fieldDuration(t.Timeout)},
		{Name: in + "expires_in", Label: "Expires in", Kind: "text", Placeholder: "never", Value: fieldDuration(t.ExpiresIn), Hint: "The task is discarded if it has not started by then."},
	}, foldedFields(in, t)...)
}

// moreFields is the number of foldedFields.
const moreFields = 8

// foldedFields are the fields that few tasks need.
func foldedFields(in string, t *admin.ScheduledTask) []field {
	retry, retention, unique := pawltype.RetryPolicy{}, "", pawltype.UniqueOpts{}
	if t.Retry != nil {
		retry = *t.Retry
	}
	if t.Retention != nil {
		retention = fieldDuration(*t.Retention)
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
	factor, jitter := retryTexts(retry)
	return []field{
		{Fold: "More", Name: in + "retry.initial", Label: "First retry after", Kind: "text", Placeholder: "the queue's", Value: fieldDuration(retry.Initial), Hint: "If you set one of these four, the others default to 30s, 2, 30m and 0.25."},
		{Name: in + "retry.factor", Label: "Backoff factor", Kind: "text", Value: factor},
		{Name: in + "retry.max", Label: "Longest delay", Kind: "text", Value: fieldDuration(retry.Max)},
		{Name: in + "retry.jitter", Label: "Jitter", Kind: "text", Value: jitter, Hint: "From 0 to 1: the share of a delay that is random."},
		{Name: in + "retention", Label: "Retention", Kind: "text", Placeholder: "the queue's", Value: retention},
		{Name: in + "unique.on_conflict", Label: "If the unique key is taken", Kind: "choice", Value: conflict,
			Options: []option{{"", "no unique key"}, {"keep", "keep the existing task"}, {"replace", "replace the existing task if it waits"}, {"keep_last", "keep the existing task with this payload"}, {"reject", "refuse this task"}}},
		{Name: in + "unique.key", Label: "Unique key", Kind: "text", Placeholder: "type and payload", Value: unique.Key},
		{Name: in + "headers", Label: "Headers", Kind: "area", Value: headersText(t.Headers), Placeholder: "tenant: 7", Hint: "One per line, as name: value."},
	}
}

// retryTexts formats the factor and the jitter of a retry policy for form fields.
func retryTexts(p pawltype.RetryPolicy) (factor, jitter string) {
	if p.Factor > 0 {
		factor = strconv.FormatFloat(p.Factor, 'g', -1, 64)
	}
	switch {
	case p.Jitter > 0:
		jitter = strconv.FormatFloat(p.Jitter, 'g', -1, 64)
	case p.Jitter == pawltype.NoJitter:
		jitter = "0"
	}
	return factor, jitter
}

func headersText(headers map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lines = append(lines, name+": "+headers[name])
	}
	return strings.Join(lines, "\n")
}

// template reads the fields of templateFields.
func (r *reader) template(in string) (pawl.RawTask, []pawl.Option) {
	args := pawl.RawTask{Type: r.needed(in + "type")}
	if text := r.text(in + "payload"); text != "" {
		args.Payload = []byte(text)
		if wrong := notJSON(args.Payload); wrong != "" {
			r.fail(badField(in+"payload", "%s", wrong))
		}
	}
	var opts []pawl.Option
	set := func(is bool, o pawl.Option) {
		if is {
			opts = append(opts, o)
		}
	}
	queue, priority, key := r.text(in+"queue"), r.text(in+"priority"), r.text(in+"key")
	attempts, timeout, expires := r.count(in+"max_attempts"), r.duration(in+"timeout"), r.duration(in+"expires_in")
	set(queue != "", pawl.Queue(queue))
	set(priority != "", pawl.Priority(pawltype.Priority(priority)))
	set(key != "", pawl.Key(key))
	set(attempts > 0, pawl.MaxAttempts(attempts))
	set(timeout > 0, pawl.Timeout(timeout))
	set(expires > 0, pawl.ExpiresIn(expires))
	for _, tag := range strings.Split(r.text(in+"tags"), ",") {
		tag = strings.TrimSpace(tag)
		set(tag != "", pawl.Tags(tag))
	}
	if retry := r.retry(in + "retry."); retry != (pawltype.RetryPolicy{}) {
		opts = append(opts, pawl.Retry(retry))
	}
	set(r.text(in+"retention") != "", pawl.Retention(r.duration(in+"retention")))
	for name, value := range r.headers(in + "headers") {
		opts = append(opts, pawl.Header(name, value))
	}
	return args, opts
}

// retry reads a retry policy; empty fields are 0.
func (r *reader) retry(in string) pawltype.RetryPolicy {
	p := pawltype.RetryPolicy{Initial: r.retrySpan(in + "initial"), Factor: r.share(in + "factor"), Max: r.retrySpan(in + "max"), Jitter: r.share(in + "jitter")}
	if r.text(in+"jitter") != "" && p.Jitter == 0 {
		p.Jitter = pawltype.NoJitter
	}
	return p
}

// retrySpan parses a duration for which 0 and "" differ.
func (r *reader) retrySpan(name string) time.Duration {
	d := r.duration(name)
	if d == 0 && r.text(name) != "" {
		return pawltype.NoWait
	}
	return d
}

// unique reads a unique key; nil: none. With only a key given, a conflict keeps the existing task.
func (r *reader) unique(in string) *pawltype.UniqueOpts {
	u := &pawltype.UniqueOpts{Key: r.text(in + "unique.key"), OnConflict: pawltype.OnConflict(r.text(in + "unique.on_conflict"))}
	if u.Key == "" && u.OnConflict == "" {
		return nil
	}
	return u
}

// headers parses lines of names and values.
func (r *reader) headers(name string) map[string]string {
	text := r.text(name)
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
			r.fail(badField(name, "%q is not a name, a colon and a value", format.Clip(line, 60)))
			return nil
		}
		if _, twice := all[key]; twice {
			r.fail(badField(name, "%q is given twice", format.Clip(key, 60)))
		}
		all[key] = strings.TrimSpace(value)
	}
	return all
}
