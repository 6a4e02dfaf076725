package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var queueSettingsActions = []web.Action{
	{Path: "/queues/{queue}/settings", Nav: "/queues", Form: settingsForm, Do: doSettings},
	{Path: "/new-queue", Nav: "/queues", Form: newQueueForm, Do: doNewQueue},
}

// factGroup are facts that belong together.
type factGroup struct {
	Title string
	Facts []form.Fact
}

// settingsGroups describes a queue's settings in words, most frequently changed first.
func settingsGroups(s *admin.QueueSettings) []factGroup {
	order := "strict: high, then normal, then low"
	if w := s.Weights; w != nil {
		order = fmt.Sprintf("weights %d : %d : %d", w.High, w.Normal, w.Low)
	}
	return []factGroup{
		{"Runs", []form.Fact{{Name: "Max attempts", Value: format.Number(s.MaxAttempts)}, {Name: "Retry backoff",
			Value: retryText(s.Retry)},
			{Name: "Run timeout", Value: orNone(s.Timeout > 0, format.Duration(s.Timeout))},
			{Name: "Lease", Value: format.Duration(s.Lease)}}},
		{"Limits", []form.Fact{{Name: "Max running", Value: orNone(s.MaxRunning > 0, format.Number(s.MaxRunning))},
			{Name: "Rate", Value: orNone(s.Rate.Limit > 0, form.RateText(s.Rate))}, {Name: "Max length", Value: orNone(s.MaxLength > 0,
				format.Number(s.MaxLength))}, {Name: "Each key", Value: orNone(s.PerKey != admin.QueueLimits{}, limitsText(s.PerKey))}}},
		{"Order", []form.Fact{{Name: "Priorities", Value: order}, {Name: "Tasks of a key", Value: keyOrderText(s.KeyOrder)}}},
		{"Alerts", []form.Fact{{Name: "Max wait", Value: format.Duration(s.MaxWait)}, {Name: "Circuit breaker",
			Value: breakerText(s.Breaker)}}},
		{"Retention", []form.Fact{{Name: "Succeeded", Value: format.Duration(s.Retention.Succeeded)}, {Name: "Dead letters",
			Value: format.Duration(s.Retention.Dead)}}},
	}
}

// retryText describes a retry policy in words.
func retryText(r pawltype.RetryPolicy) string {
	jitter := ""
	if r.Jitter > 0 {
		jitter = fmt.Sprintf(", %.0f%% jitter", r.Jitter*100)
	}
	return fmt.Sprintf("%s × %g, up to %s%s", format.Duration(max(r.Initial, 0)), r.Factor, format.Duration(max(r.Max, 0)), jitter)
}

// keyOrderText describes the order in which the tasks of a key run.
func keyOrderText(o admin.KeyOrder) string {
	if o == admin.KeyOrderStrict {
		return "one at a time, in order"
	}
	return "no order"
}

func orNone(is bool, text string) string {
	if !is {
		return "no limit"
	}
	return text
}

func limitsText(l admin.QueueLimits) string {
	var all []string
	if l.MaxRunning > 0 {
		all = append(all, fmt.Sprintf("%d running", l.MaxRunning))
	}
	if l.Rate.Limit > 0 {
		all = append(all, form.RateText(l.Rate))
	}
	return strings.Join(all, ", ")
}

func breakerText(b *admin.Breaker) string {
	if b == nil || b.Off {
		return "off"
	}
	return fmt.Sprintf("opens at %d%% failures of %d in %s", b.FailureRate, b.MinAttempts, format.Duration(b.Window))
}

func keyRows(s *admin.QueueSettings) (rows []keyRow) {
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		rules := s.Keys[key]
		text := limitsText(rules.QueueLimits)
		if rules.Weight > 1 {
			text += fmt.Sprintf(" weight %d", rules.Weight)
		}
		rows = append(rows, keyRow{key, strings.TrimSpace(text)})
	}
	return rows
}

func newQueueForm(*web.Request) (*form.Form, error) {
	return &form.Form{Title: "New queue", Button: "Create queue", Back: "/queues",
		Text: "Enqueueing a task creates its queue. Create one here to set limits and retries first.",
		Fields: []form.Field{{Name: "queue", Label: "Name", Kind: "text", Required: true, Placeholder: "mail",
			Hint: "Letters, digits and . _ - :"}, form.Reason()}}, nil
}

func doNewQueue(req *web.Request) (web.Done, error) {
	name := req.Value("queue")
	if name == "" {
		return web.Done{}, format.BadField("queue", "is required")
	}
	q, err := req.Admin().WithReason(req.Value("reason")).Queues().PutIfVersion(req.Ctx, name, 0, admin.QueueSettings{})
	if err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Created queue " + q.Name + ".", Next: "/queues/" + q.Name}, nil
}

func settingsForm(req *web.Request) (*form.Form, error) {
	q, err := queueOf(req)
	if err != nil {
		return nil, err
	}
	return settingsFormOf(q), nil
}

func settingsFormOf(q *admin.Queue) *form.Form {
	s := q.Settings
	f := &form.Form{Title: "Settings of " + q.Name, Wide: true, Button: "Save", Back: "/queues/" + q.Name,
		Version: strconv.FormatInt(q.Version, 10), Text: "Empty fields take the default. Write durations as 30s, 1h30m or 14d."}
	f.Fields = slices.Concat(commonFields(&s), retryFields(&s), orderFields(&s), keyFields(&s), keepFields(&s), breakerFields(&s))
	f.Fields = append(f.Fields, form.Field{Heading: "Audit log", Name: "reason", Label: "Reason", Kind: "text",
		Placeholder: "Why? The audit log keeps it."})
	return f
}

// settingsRateHint is the hint of fields for a rate with a burst.
const settingsRateHint = "For example 50/s, or 100/1m burst 20."

// commonFields are the most frequently changed settings.
func commonFields(s *admin.QueueSettings) []form.Field {
	return []form.Field{
		{Name: "max_running", Label: "Max running", Kind: "number", Value: form.NumberText(int64(s.MaxRunning)), Placeholder: "no limit",
			Hint: "Tasks that run at the same time, over all workers."},
		{Name: "rate", Label: "Rate", Kind: "text", Value: form.RateText(s.Rate), Placeholder: "no limit",
			Hint: "How many tasks may start. " +
				settingsRateHint},
		{Name: "max_attempts", Label: "Max attempts", Kind: "number", Value: form.NumberText(int64(s.MaxAttempts)), Placeholder: "5",
			Hint: "After that many failures a task becomes a dead letter."},
		{Name: "timeout", Label: "Run timeout", Kind: "text", Value: form.DurationText(s.Timeout), Placeholder: "none",
			Hint: "How long one attempt may run."},
		{Name: "max_length", Label: "Max length", Kind: "number", Value: form.NumberText(s.MaxLength), Placeholder: "no limit",
			Hint: "Waiting tasks; more are refused."},
		{Name: "max_wait", Label: "Max wait", Kind: "text", Value: form.DurationText(s.MaxWait), Placeholder: "5m",
			Hint: "The queue needs attention when a task is ready for longer."},
	}
}

func retryFields(s *admin.QueueSettings) []form.Field {
	factor, jitter := form.RetryTexts(s.Retry)
	return []form.Field{
		{Fold: "Retries and lease", FoldSummary: retryText(s.Retry) + "; lease " + format.Duration(s.Lease), Name: "retry.initial",
			Label: "First retry after", Kind: "text", Value: form.DurationText(s.Retry.Initial), Placeholder: "30s"},
		{Name: "retry.factor", Label: "Backoff factor", Kind: "text", Value: factor, Placeholder: "2",
			Hint: "Each delay is this many times the one before."},
		{Name: "retry.max", Label: "Longest delay", Kind: "text", Value: form.DurationText(s.Retry.Max), Placeholder: "30m"},
		{Name: "retry.jitter", Label: "Jitter", Kind: "text", Value: jitter, Placeholder: "0.25",
			Hint: "From 0 to 1: the share of a delay that is random."},
		{Name: "lease", Label: "Lease", Kind: "text", Value: form.DurationText(s.Lease), Placeholder: "30s",
			Hint: "If a worker disappears, its tasks are retried after this time."},
	}
}

func orderFields(s *admin.QueueSettings) []form.Field {
	weights, says := "", "strict priorities"
	if w := s.Weights; w != nil {
		weights = fmt.Sprintf("%d:%d:%d", w.High, w.Normal, w.Low)
		says = "weights " + weights
	}
	return []form.Field{
		{Fold: "Order", FoldSummary: says + "; " + keyOrderText(s.KeyOrder) + " within a key", Name: "weights", Label: "Priority weights",
			Kind: "text", Value: weights, Placeholder: "strict order",
			Hint: "high:normal:low, for example 6:3:1. Empty: high before normal before low."},
		{Name: "key_order", Label: "Tasks of a key", Kind: "choice", Value: cmp.Or(string(s.KeyOrder), string(admin.KeyOrderNone)),
			Options: []form.Option{{Value: string(admin.KeyOrderNone), Label: "run in any order"}, {Value: string(admin.KeyOrderStrict),
				Label: "run one at a time, in order"}}, Hint: "Applies to tasks enqueued from now on."},
	}
}

func keyFields(s *admin.QueueSettings) []form.Field {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		keys = append(keys, keyLine(key, s.Keys[key]))
	}
	says := orNone(s.PerKey != admin.QueueLimits{}, limitsText(s.PerKey)) + " per key"
	if len(keys) > 0 {
		says += "; " + format.Plural(len(keys), "key") + " with other limits"
	}
	return []form.Field{
		{Fold: "Limits per key", FoldSummary: says, Name: "per_key.max_running", Label: "Max running per key", Kind: "number",
			Value: form.NumberText(int64(s.PerKey.MaxRunning)), Placeholder: "no limit"},
		{Name: "per_key.rate", Label: "Rate per key", Kind: "text", Value: form.RateText(s.PerKey.Rate), Placeholder: "no limit",
			Hint: settingsRateHint},
		{Name: "keys", Label: "Keys with their own limits", Kind: "area", Value: strings.Join(keys, "\n"),
			Placeholder: `"tenant-7" running 2 rate 10/1s weight 3`,
			Hint:        "One key per line, in quotes, followed by any of running, rate, burst and weight."},
	}
}

func keepFields(s *admin.QueueSettings) []form.Field {
	return []form.Field{
		{Fold: "Retention", FoldSummary: "succeeded " + format.Duration(s.Retention.Succeeded) + ", dead " +
			format.Duration(s.Retention.Dead),
			Name: "retention.succeeded", Label: "Succeeded", Kind: "text", Value: form.DurationText(s.Retention.Succeeded),
			Placeholder: "24h"},
		{Name: "retention.discarded", Label: "Discarded", Kind: "text", Value: form.DurationText(s.Retention.Discarded),
			Placeholder: "24h"},
		{Name: "retention.cancelled", Label: "Cancelled", Kind: "text", Value: form.DurationText(s.Retention.Cancelled),
			Placeholder: "24h"},
		{Name: "retention.dead", Label: "Dead", Kind: "text", Value: form.DurationText(s.Retention.Dead), Placeholder: "14d"},
		{Name: "retention.poisoned", Label: "Poisoned", Kind: "text", Value: form.DurationText(s.Retention.Poisoned), Placeholder: "14d"},
	}
}

func breakerFields(s *admin.QueueSettings) []form.Field {
	b, on := admin.Breaker{}, ""
	if s.Breaker != nil {
		b, on = *s.Breaker, "yes"
	}
	return []form.Field{
		{Fold: "Circuit breaker", FoldSummary: breakerText(s.Breaker), Name: "breaker", Label: "Use a breaker for each type",
			Kind: "tick", Value: on},
		{Name: "breaker.failure_rate", Label: "Failure rate, percent", Kind: "number", Value: form.NumberText(int64(b.FailureRate)),
			Placeholder: "50"},
		{Name: "breaker.min_attempts", Label: "Minimum attempts", Kind: "number", Value: form.NumberText(int64(b.MinAttempts)),
			Placeholder: "20"},
		{Name: "breaker.window", Label: "Window", Kind: "text", Value: form.DurationText(b.Window), Placeholder: "1m"},
		{Name: "breaker.hold", Label: "Open for", Kind: "text", Value: form.DurationText(b.Hold), Placeholder: "30s"},
		{Name: "breaker.max_hold", Label: "Open for at most", Kind: "text", Value: form.DurationText(b.MaxHold), Placeholder: "10m"},
		{Name: "breaker.probes", Label: "Probes to close", Kind: "number", Value: form.NumberText(int64(b.Probes)), Placeholder: "3"},
	}
}

func doSettings(req *web.Request) (web.Done, error) {
	q, err := queueOf(req)
	if err != nil {
		return web.Done{}, err
	}
	s, err := readSettings(req.Edits(settingsFormOf(q)), q.Settings)
	if err != nil {
		return web.Done{}, err
	}
	of, err := req.Version()
	if err != nil {
		return web.Done{}, err
	}
	version, err := strconv.ParseInt(of, 10, 64)
	if err != nil {
		return web.Done{}, format.BadField(form.VersionField, "%q is not a version of queue settings", format.Clip(of, 40))
	}
	if _, err := req.Admin().WithReason(req.Value("reason")).Queues().PutIfVersion(req.Ctx, q.Name, version, s); err != nil {
		return web.Done{}, err
	}
	return queueDone(req, "Saved."), nil
}

// readSettings changes a queue's settings to those of a form. The rest, such as the breakers of single types, stays.
func readSettings(r *form.Reader, s admin.QueueSettings) (admin.QueueSettings, error) {
	form.Set(r, &s.MaxAttempts, r.Count, "max_attempts")
	form.Set(r, &s.Timeout, r.Duration, "timeout")
	form.Set(r, &s.MaxLength, r.Whole, "max_length")
	form.Set(r, &s.MaxWait, r.Duration, "max_wait")
	s.Retry = r.RetryPolicy("retry.", s.Retry)
	form.Set(r, &s.Lease, r.Duration, "lease")
	form.Set(r, &s.Retention.Succeeded, r.Duration, "retention.succeeded")
	form.Set(r, &s.Retention.Discarded, r.Duration, "retention.discarded")
	form.Set(r, &s.Retention.Cancelled, r.Duration, "retention.cancelled")
	form.Set(r, &s.Retention.Dead, r.Duration, "retention.dead")
	form.Set(r, &s.Retention.Poisoned, r.Duration, "retention.poisoned")
	readLimits(r, "", &s.QueueLimits)
	readLimits(r, "per_key.", &s.PerKey)
	form.Set(r, &s.Keys, func(name string) map[string]admin.KeyLimits { return readKeys(r, name) }, "keys")
	form.Set(r, &s.Weights, func(name string) *admin.PriorityWeights { return readWeights(r, name) }, "weights")
	form.Set(r, &s.KeyOrder, func(name string) admin.KeyOrder { return admin.KeyOrder(r.Text(name)) }, "key_order")
	s.Breaker = readBreaker(r, s.Breaker)
	return s, r.Err
}

func readLimits(r *form.Reader, in string, l *admin.QueueLimits) {
	form.Set(r, &l.MaxRunning, r.Count, in+"max_running")
	form.Set(r, &l.Rate, r.RateLimit, in+"rate")
}

// readBreaker reads the breaker for each type, from one whose values are in the form; nil: none.
func readBreaker(r *form.Reader, before *admin.Breaker) *admin.Breaker {
	if r.Text("breaker") == "" {
		return nil
	}
	var b admin.Breaker
	if before != nil {
		b = *before
	}
	form.Set(r, &b.FailureRate, r.Count, "breaker.failure_rate")
	form.Set(r, &b.MinAttempts, r.Count, "breaker.min_attempts")
	form.Set(r, &b.Window, r.Duration, "breaker.window")
	form.Set(r, &b.Hold, r.Duration, "breaker.hold")
	form.Set(r, &b.MaxHold, r.Duration, "breaker.max_hold")
	form.Set(r, &b.Probes, r.Count, "breaker.probes")
	return &b
}

func readWeights(r *form.Reader, name string) *admin.PriorityWeights {
	s := r.Text(name)
	if s == "" {
		return nil
	}
	var w admin.PriorityWeights
	parts := strings.Split(s, ":")
	if len(parts) == 3 {
		for i, to := range []*int{&w.High, &w.Normal, &w.Low} {
			n, err := strconv.Atoi(strings.TrimSpace(parts[i]))
			if err != nil {
				break
			}
			*to = n
		}
	}
	if w.High == 0 || w.Normal == 0 || w.Low == 0 {
		r.Fail(format.BadField(name, "%q is not three numbers, for example 6:3:1", format.Clip(s, 40)))
	}
	return &w
}

// keyLine is the inverse of parseKeyLine.
func keyLine(key string, rules admin.KeyLimits) string {
	line := strconv.Quote(key)
	if rules.MaxRunning > 0 {
		line += fmt.Sprintf(" running %d", rules.MaxRunning)
	}
	if rules.Rate.Limit > 0 {
		line += " rate " + form.RateText(rules.Rate)
	}
	if rules.Weight > 0 {
		line += fmt.Sprintf(" weight %d", rules.Weight)
	}
	return line
}

func readKeys(r *form.Reader, name string) map[string]admin.KeyLimits {
	text := r.Text(name)
	if text == "" {
		return nil
	}
	all := map[string]admin.KeyLimits{}
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, rules, err := parseKeyLine(line)
		if err != nil {
			r.Fail(format.BadField(name, "%v", err))
			return nil
		}
		if _, twice := all[key]; twice {
			r.Fail(format.BadField(name, "%q is listed twice", format.Clip(key, 60)))
		}
		all[key] = rules
	}
	return all
}

// parseKeyLine parses `"tenant-7" running 2 rate 10/1s burst 5 weight 3`.
func parseKeyLine(line string) (key string, rules admin.KeyLimits, err error) {
	quoted, err := strconv.QuotedPrefix(line)
	if err != nil {
		return "", rules, fmt.Errorf("%q does not start with a quoted key", format.Clip(line, 60))
	}
	if key, err = strconv.Unquote(quoted); err != nil {
		return "", rules, fmt.Errorf("%q is not a quoted key", format.Clip(quoted, 60))
	}
	words := strings.Fields(line[len(quoted):])
	for i := 0; i < len(words); i += 2 {
		if i+1 == len(words) {
			return key, rules, fmt.Errorf("%q: %s has no value", format.Clip(line, 60), format.Clip(words[i], 20))
		}
		if err := setKeyRule(&rules, words[i], words[i+1]); err != nil {
			return key, rules, fmt.Errorf("%q: %w", format.Clip(line, 60), err)
		}
	}
	return key, rules, nil
}

func setKeyRule(rules *admin.KeyLimits, word, value string) (err error) {
	switch word {
	case "running":
		rules.MaxRunning, err = strconv.Atoi(value)
	case "weight":
		rules.Weight, err = strconv.Atoi(value)
	case "burst":
		rules.Rate.Burst, err = strconv.Atoi(value)
	case "rate":
		burst := rules.Rate.Burst
		rules.Rate, err = form.ParseRate(value)
		rules.Rate.Burst = burst
	default:
		return fmt.Errorf("%s is not one of running, rate, burst and weight", format.Clip(word, 20))
	}
	if err != nil {
		return fmt.Errorf("%s: invalid value %q", word, format.Clip(value, 20))
	}
	return nil
}
