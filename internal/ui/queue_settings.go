package ui

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

var queueSettingsActions = []action{
	{path: "/queues/{queue}/settings", nav: "/queues", form: settingsForm, do: doSettings},
	{path: "/new-queue", nav: "/queues", form: newQueueForm, do: doNewQueue},
}

// factGroup are facts that belong together.
type factGroup struct {
	Title string
	Facts []fact
}

// settingsGroups describes a queue's settings in words, most frequently changed first.
func settingsGroups(s *admin.QueueSettings) []factGroup {
	order := "strict: high, then normal, then low"
	if w := s.Weights; w != nil {
		order = fmt.Sprintf("weights %d : %d : %d", w.High, w.Normal, w.Low)
	}
	return []factGroup{
		{"Runs", []fact{{"Max attempts", format.Number(s.MaxAttempts)}, {"Retry backoff", retryText(s.Retry)}, {"Run timeout", orNone(s.Timeout > 0, format.Duration(s.Timeout))}, {"Lease", format.Duration(s.Lease)}}},
		{"Limits", []fact{{"Max running", orNone(s.MaxRunning > 0, format.Number(s.MaxRunning))}, {"Rate", orNone(s.Rate.Limit > 0, rateText(s.Rate))},
			{"Max length", orNone(s.MaxLength > 0, format.Number(s.MaxLength))}, {"Each key", orNone(s.PerKey != admin.QueueLimits{}, limitsText(s.PerKey))}}},
		{"Order", []fact{{"Priorities", order}, {"Tasks of a key", keyOrderText(s.KeyOrder)}}},
		{"Alerts", []fact{{"Max wait", format.Duration(s.MaxWait)}, {"Circuit breaker", breakerText(s.Breaker)}}},
		{"Retention", []fact{{"Succeeded", format.Duration(s.Retention.Succeeded)}, {"Dead letters", format.Duration(s.Retention.Dead)}}},
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
		all = append(all, rateText(l.Rate))
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

func newQueueForm(*visit) (*form, error) {
	return &form{Title: "New queue", Button: "Create queue", Back: "/queues",
		Text:   "Enqueueing a task creates its queue. Create one here to set limits and retries first.",
		Fields: []field{{Name: "queue", Label: "Name", Kind: "text", Required: true, Placeholder: "mail", Hint: "Letters, digits and . _ - :"}, reasonField()}}, nil
}

func doNewQueue(v *visit) (done, error) {
	name := v.value("queue")
	if name == "" {
		return done{}, badField("queue", "is required")
	}
	q, err := v.admin().WithReason(v.value("reason")).Queues().PutIfVersion(v.ctx, name, 0, admin.QueueSettings{})
	if err != nil {
		return done{}, err
	}
	return done{Said: "Created queue " + q.Name + ".", Next: "/queues/" + q.Name}, nil
}

func settingsForm(v *visit) (*form, error) {
	q, err := v.queue()
	if err != nil {
		return nil, err
	}
	s := q.Settings
	f := &form{Title: "Settings of " + q.Name, Wide: true, Button: "Save", Back: "/queues/" + q.Name, Version: strconv.FormatInt(q.Version, 10),
		Text: "Empty fields take the default. Write durations as 30s, 1h30m or 14d."}
	f.Fields = slices.Concat(commonFields(&s), retryFields(&s), orderFields(&s), keyFields(&s), keepFields(&s), breakerFields(&s))
	f.Fields = append(f.Fields, field{Heading: "Audit log", Name: "reason", Label: "Reason", Kind: "text", Placeholder: "Why? The audit log keeps it."})
	return f, nil
}

// numberText formats a number for a form field; "" for 0.
func numberText(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// settingsRateHint is the hint of fields for a rate with a burst.
const settingsRateHint = "For example 50/s, or 100/1m burst 20."

// commonFields are the most frequently changed settings.
func commonFields(s *admin.QueueSettings) []field {
	return []field{
		{Name: "max_running", Label: "Max running", Kind: "number", Value: numberText(int64(s.MaxRunning)), Placeholder: "no limit", Hint: "Tasks that run at the same time, over all workers."},
		{Name: "rate", Label: "Rate", Kind: "text", Value: rateText(s.Rate), Placeholder: "no limit", Hint: "How many tasks may start. " + settingsRateHint},
		{Name: "max_attempts", Label: "Max attempts", Kind: "number", Value: numberText(int64(s.MaxAttempts)), Placeholder: "5", Hint: "After that many failures a task becomes a dead letter."},
		{Name: "timeout", Label: "Run timeout", Kind: "text", Value: fieldDuration(s.Timeout), Placeholder: "none", Hint: "How long one attempt may run."},
		{Name: "max_length", Label: "Max length", Kind: "number", Value: numberText(s.MaxLength), Placeholder: "no limit", Hint: "Waiting tasks; more are refused."},
		{Name: "max_wait", Label: "Max wait", Kind: "text", Value: fieldDuration(s.MaxWait), Placeholder: "5m", Hint: "The queue needs attention when a task is ready for longer."},
	}
}

func retryFields(s *admin.QueueSettings) []field {
	factor, jitter := retryTexts(s.Retry)
	return []field{
		{Fold: "Retries and lease", FoldSays: retryText(s.Retry) + "; lease " + format.Duration(s.Lease), Name: "retry.initial", Label: "First retry after", Kind: "text", Value: fieldDuration(s.Retry.Initial), Placeholder: "30s"},
		{Name: "retry.factor", Label: "Backoff factor", Kind: "text", Value: factor, Placeholder: "2", Hint: "Each delay is this many times the one before."},
		{Name: "retry.max", Label: "Longest delay", Kind: "text", Value: fieldDuration(s.Retry.Max), Placeholder: "30m"},
		{Name: "retry.jitter", Label: "Jitter", Kind: "text", Value: jitter, Placeholder: "0.25", Hint: "From 0 to 1: the share of a delay that is random."},
		{Name: "lease", Label: "Lease", Kind: "text", Value: fieldDuration(s.Lease), Placeholder: "30s", Hint: "If a worker disappears, its tasks are retried after this time."},
	}
}

func orderFields(s *admin.QueueSettings) []field {
	weights, says := "", "strict priorities"
	if w := s.Weights; w != nil {
		weights = fmt.Sprintf("%d:%d:%d", w.High, w.Normal, w.Low)
		says = "weights " + weights
	}
	return []field{
		{Fold: "Order", FoldSays: says + "; " + keyOrderText(s.KeyOrder) + " within a key", Name: "weights", Label: "Priority weights", Kind: "text", Value: weights, Placeholder: "strict order", Hint: "high:normal:low, for example 6:3:1. Empty: high before normal before low."},
		{Name: "key_order", Label: "Tasks of a key", Kind: "choice", Value: string(s.KeyOrder), Options: []option{{"", "run in any order"}, {string(admin.KeyOrderStrict), "run one at a time, in order"}},
			Hint: "Applies to tasks enqueued from now on."},
	}
}

func keyFields(s *admin.QueueSettings) []field {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		keys = append(keys, keyLine(key, s.Keys[key]))
	}
	says := orNone(s.PerKey != admin.QueueLimits{}, limitsText(s.PerKey)) + " per key"
	if len(keys) > 0 {
		says += "; " + format.Plural(len(keys), "key") + " with other limits"
	}
	return []field{
		{Fold: "Limits per key", FoldSays: says, Name: "per_key.max_running", Label: "Max running per key", Kind: "number", Value: numberText(int64(s.PerKey.MaxRunning)), Placeholder: "no limit"},
		{Name: "per_key.rate", Label: "Rate per key", Kind: "text", Value: rateText(s.PerKey.Rate), Placeholder: "no limit", Hint: settingsRateHint},
		{Name: "keys", Label: "Keys with their own limits", Kind: "area", Value: strings.Join(keys, "\n"), Placeholder: `"tenant-7" running 2 rate 10/1s weight 3`,
			Hint: "One key per line, in quotes, followed by any of running, rate, burst and weight."},
	}
}

func keepFields(s *admin.QueueSettings) []field {
	return []field{
		{Fold: "Retention", FoldSays: "succeeded " + format.Duration(s.Retention.Succeeded) + ", dead " + format.Duration(s.Retention.Dead), Name: "retention.succeeded", Label: "Succeeded", Kind: "text", Value: fieldDuration(s.Retention.Succeeded), Placeholder: "24h"},
		{Name: "retention.discarded", Label: "Discarded", Kind: "text", Value: fieldDuration(s.Retention.Discarded), Placeholder: "24h"},
		{Name: "retention.cancelled", Label: "Cancelled", Kind: "text", Value: fieldDuration(s.Retention.Cancelled), Placeholder: "24h"},
		{Name: "retention.dead", Label: "Dead", Kind: "text", Value: fieldDuration(s.Retention.Dead), Placeholder: "14d"},
		{Name: "retention.poisoned", Label: "Poisoned", Kind: "text", Value: fieldDuration(s.Retention.Poisoned), Placeholder: "14d"},
	}
}

func breakerFields(s *admin.QueueSettings) []field {
	b, on := admin.Breaker{}, ""
	if s.Breaker != nil {
		b, on = *s.Breaker, "yes"
	}
	return []field{
		{Fold: "Circuit breaker", FoldSays: breakerText(s.Breaker), Name: "breaker", Label: "Use a breaker for each type", Kind: "tick", Value: on},
		{Name: "breaker.failure_rate", Label: "Failure rate, percent", Kind: "number", Value: numberText(int64(b.FailureRate)), Placeholder: "50"},
		{Name: "breaker.min_attempts", Label: "Minimum attempts", Kind: "number", Value: numberText(int64(b.MinAttempts)), Placeholder: "20"},
		{Name: "breaker.window", Label: "Window", Kind: "text", Value: fieldDuration(b.Window), Placeholder: "1m"},
		{Name: "breaker.hold", Label: "Open for", Kind: "text", Value: fieldDuration(b.Hold), Placeholder: "30s"},
		{Name: "breaker.max_hold", Label: "Open for at most", Kind: "text", Value: fieldDuration(b.MaxHold), Placeholder: "10m"},
		{Name: "breaker.probes", Label: "Probes to close", Kind: "number", Value: numberText(int64(b.Probes)), Placeholder: "3"},
	}
}

func doSettings(v *visit) (done, error) {
	q, err := v.queue()
	if err != nil {
		return done{}, err
	}
	s, err := v.settings(q.Settings.Breakers) // the form doesn't have the rules of single types: they are kept
	if err != nil {
		return done{}, err
	}
	of, err := v.version()
	if err != nil {
		return done{}, err
	}
	version, err := strconv.ParseInt(of, 10, 64)
	if err != nil {
		return done{}, badField(versionField, "%q is not a version of queue settings", format.Clip(of, 40))
	}
	if _, err := v.admin().WithReason(v.value("reason")).Queues().PutIfVersion(v.ctx, q.Name, version, s); err != nil {
		return done{}, err
	}
	return v.queueDone("Saved."), nil
}

// settings parses a queue's settings from a form.
func (v *visit) settings(breakers map[string]admin.Breaker) (s admin.QueueSettings, err error) {
	r := &reader{v: v}
	s = admin.QueueSettings{
		MaxAttempts: r.count("max_attempts"), Lease: r.duration("lease"), Timeout: r.duration("timeout"), MaxLength: r.whole("max_length"), MaxWait: r.duration("max_wait"),
		Retry: r.retry("retry."),
		Retention: admin.Retention{Succeeded: r.duration("retention.succeeded"), Discarded: r.duration("retention.discarded"), Cancelled: r.duration("retention.cancelled"),
			Dead: r.duration("retention.dead"), Poisoned: r.duration("retention.poisoned")},
		QueueLimits: admin.QueueLimits{MaxRunning: r.count("max_running"), Rate: r.rate("rate")},
		PerKey:      admin.QueueLimits{MaxRunning: r.count("per_key.max_running"), Rate: r.rate("per_key.rate")},
		Keys:        r.keys("keys"),
		Weights:     r.weights("weights"),
		KeyOrder:    admin.KeyOrder(r.text("key_order")),
		Breakers:    breakers,
	}
	if r.text("breaker") != "" {
		s.Breaker = &admin.Breaker{FailureRate: r.count("breaker.failure_rate"), MinAttempts: r.count("breaker.min_attempts"), Window: r.duration("breaker.window"),
			Hold: r.duration("breaker.hold"), MaxHold: r.duration("breaker.max_hold"), Probes: r.count("breaker.probes")}
	}
	return s, r.err
}

func (r *reader) weights(name string) *admin.PriorityWeights {
	s := r.text(name)
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
		r.fail(badField(name, "%q is not three numbers, for example 6:3:1", format.Clip(s, 40)))
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
		line += " rate " + rateText(rules.Rate)
	}
	if rules.Weight > 0 {
		line += fmt.Sprintf(" weight %d", rules.Weight)
	}
	return line
}

func (r *reader) keys(name string) map[string]admin.KeyLimits {
	text := r.text(name)
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
			r.fail(badField(name, "%v", err))
			return nil
		}
		if _, twice := all[key]; twice {
			r.fail(badField(name, "%q is listed twice", format.Clip(key, 60)))
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
		rules.Rate, err = parseRate(value)
		rules.Rate.Burst = burst
	default:
		return fmt.Errorf("%s is not one of running, rate, burst and weight", format.Clip(word, 20))
	}
	if err != nil {
		return fmt.Errorf("%s: invalid value %q", word, format.Clip(value, 20))
	}
	return nil
}
