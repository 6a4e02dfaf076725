package ui

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/admin"
)

var queueSettingsActions = []action{
	{path: "/queues/{queue}/settings", nav: "/queues", form: settingsForm, do: doSettings},
	{path: "/new-queue", nav: "/queues", form: newQueueForm, do: doNewQueue},
}

// settingsFacts are the settings of a queue in words.
func settingsFacts(s *admin.QueueSettings) []fact {
	order := "strict: high before normal before low"
	if w := s.Weights; w != nil {
		order = fmt.Sprintf("weights %d : %d : %d", w.High, w.Normal, w.Low)
	}
	r := s.Retry
	jitter := ""
	if r.Jitter > 0 {
		jitter = fmt.Sprintf(", up to %.0f%% jitter", r.Jitter*100)
	}
	return []fact{
		{"Priorities", order},
		{"Order of keys", keyOrderText(s.KeyOrder)},
		{"Attempts", number(s.MaxAttempts)},
		{"Retry", fmt.Sprintf("%s × %g up to %s%s", spanText(max(r.Initial, 0)), r.Factor, spanText(max(r.Max, 0)), jitter)},
		{"Lease", spanText(s.Lease)},
		{"Run timeout", orNone(s.Timeout > 0, spanText(s.Timeout))},
		{"Succeeded tasks kept for", spanText(s.Retention.Succeeded)},
		{"Dead letters kept for", spanText(s.Retention.Dead)},
		{"Needs attention", "when a task is ready for more than " + spanText(s.MaxWait)},
		{"Max length", orNone(s.MaxLength > 0, number(s.MaxLength))},
		{"At most running", orNone(s.MaxRunning > 0, number(s.MaxRunning))},
		{"Rate", orNone(s.Rate.Limit > 0, rateText(s.Rate))},
		{"Each key", orNone(s.PerKey != admin.QueueLimits{}, limitsText(s.PerKey))},
		{"Breaker", breakerText(s.Breaker)},
	}
}

// keyOrderText says in which order the tasks of a key run.
func keyOrderText(o admin.KeyOrder) string {
	if o == admin.KeyOrderStrict {
		return "strict: the tasks of a key run one after the other"
	}
	return "none"
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
		return "none"
	}
	return fmt.Sprintf("opens at %d%% of %d in %s", b.FailureRate, b.MinAttempts, spanText(b.Window))
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
	return &form{Title: "New queue", Button: "Make the queue", Back: "/queues",
		Text:   "A queue is also made by its first task. Here you can make it before, and then say how it is to be.",
		Fields: []field{{Name: "queue", Label: "Name", Kind: "text", Required: true, Placeholder: "mail", Hint: "Letters, digits and . _ - :"}, reasonField()}}, nil
}

func doNewQueue(v *visit) (done, error) {
	name := v.value("queue")
	if name == "" {
		return done{}, badField("queue", "is needed")
	}
	q, err := v.admin().WithReason(v.value("reason")).Queues().PutIfVersion(v.ctx, name, 0, admin.QueueSettings{})
	if err != nil {
		return done{}, err
	}
	return done{Said: "Queue " + q.Name + " is there.", Next: "/queues/" + q.Name}, nil
}

func settingsForm(v *visit) (*form, error) {
	q, err := v.queue()
	if err != nil {
		return nil, err
	}
	s := q.Settings
	f := &form{Title: "Settings of " + q.Name, Wide: true, Button: "Save", Back: "/queues/" + q.Name, Version: strconv.FormatInt(q.Version, 10),
		Text: "An empty field takes the default. Durations are such as 30s, 1h30m or 14d. What others change meanwhile is shown before anything is saved."}
	f.Fields = append(f.Fields, runFields(&s)...)
	f.Fields = append(f.Fields, limitFields(&s)...)
	f.Fields = append(f.Fields, keepFields(&s)...)
	f.Fields = append(f.Fields, breakerFields(&s)...)
	f.Fields = append(f.Fields, reasonField())
	f.Fields[len(f.Fields)-1].Heading = "Why"
	return f, nil
}

// numberText is a number as a field holds it; "" for 0.
func numberText(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func runFields(s *admin.QueueSettings) []field {
	weights := ""
	if w := s.Weights; w != nil {
		weights = fmt.Sprintf("%d:%d:%d", w.High, w.Normal, w.Low)
	}
	factor, jitter := retryTexts(s.Retry)
	return []field{
		{Heading: "Runs", Name: "max_attempts", Label: "Attempts", Kind: "number", Value: numberText(int64(s.MaxAttempts)), Placeholder: "5"},
		{Name: "lease", Label: "Lease", Kind: "text", Value: fieldSpan(s.Lease), Placeholder: "30s", Hint: "How long a worker that vanished is waited for."},
		{Name: "timeout", Label: "Run timeout", Kind: "text", Value: fieldSpan(s.Timeout), Placeholder: "none"},
		{Name: "retry.initial", Label: "First retry after", Kind: "text", Value: fieldSpan(s.Retry.Initial), Placeholder: "30s"},
		{Name: "retry.factor", Label: "Then times", Kind: "text", Value: factor, Placeholder: "2"},
		{Name: "retry.max", Label: "Up to", Kind: "text", Value: fieldSpan(s.Retry.Max), Placeholder: "30m"},
		{Name: "retry.jitter", Label: "Jitter", Kind: "text", Value: jitter, Placeholder: "0.25", Hint: "A share from 0 to 1."},
		{Name: "weights", Label: "Weights of priorities", Kind: "text", Value: weights, Placeholder: "strict order", Hint: "high:normal:low, such as 6:3:1"},
		{Name: "key_order", Label: "Order of keys", Kind: "choice", Value: string(s.KeyOrder), Options: choices("none", string(admin.KeyOrderStrict)),
			Hint: "Strict: the tasks of a key that are enqueued from now on run one after the other."},
	}
}

func limitFields(s *admin.QueueSettings) []field {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		keys = append(keys, keyLine(key, s.Keys[key]))
	}
	rate := "Such as 50/s, or 100/1m burst 20."
	return []field{
		{Heading: "Limits", Name: "max_length", Label: "Waiting tasks at most", Kind: "number", Value: numberText(s.MaxLength), Placeholder: "no limit"},
		{Name: "max_wait", Label: "Attention after a wait of", Kind: "text", Value: fieldSpan(s.MaxWait), Placeholder: "5m"},
		{Name: "max_running", Label: "Running at once", Kind: "number", Value: numberText(int64(s.MaxRunning)), Placeholder: "no limit"},
		{Name: "rate", Label: "Rate", Kind: "text", Value: rateText(s.Rate), Placeholder: "no limit", Hint: rate},
		{Name: "per_key.max_running", Label: "Of each key: running at once", Kind: "number", Value: numberText(int64(s.PerKey.MaxRunning)), Placeholder: "no limit"},
		{Name: "per_key.rate", Label: "Of each key: rate", Kind: "text", Value: rateText(s.PerKey.Rate), Placeholder: "no limit", Hint: rate},
		{Name: "keys", Label: "Single keys", Kind: "area", Value: strings.Join(keys, "\n"), Placeholder: `"tenant-7" running 2 rate 10/1s weight 3`,
			Hint: "One a line: the key in quotes, then running, rate and weight, as far as they are set."},
	}
}

func keepFields(s *admin.QueueSettings) []field {
	return []field{
		{Heading: "Kept after the end", Name: "retention.succeeded", Label: "Succeeded", Kind: "text", Value: fieldSpan(s.Retention.Succeeded), Placeholder: "24h"},
		{Name: "retention.discarded", Label: "Discarded", Kind: "text", Value: fieldSpan(s.Retention.Discarded), Placeholder: "24h"},
		{Name: "retention.cancelled", Label: "Cancelled", Kind: "text", Value: fieldSpan(s.Retention.Cancelled), Placeholder: "24h"},
		{Name: "retention.dead", Label: "Dead", Kind: "text", Value: fieldSpan(s.Retention.Dead), Placeholder: "14d"},
		{Name: "retention.poisoned", Label: "Poisoned", Kind: "text", Value: fieldSpan(s.Retention.Poisoned), Placeholder: "14d"},
	}
}

func breakerFields(s *admin.QueueSettings) []field {
	b, on := admin.Breaker{}, ""
	if s.Breaker != nil {
		b, on = *s.Breaker, "yes"
	}
	return []field{
		{Heading: "Circuit breaker of each type", Name: "breaker", Label: "Use one", Kind: "tick", Value: on},
		{Name: "breaker.failure_rate", Label: "Opens at percent failed", Kind: "number", Value: numberText(int64(b.FailureRate)), Placeholder: "50"},
		{Name: "breaker.min_attempts", Label: "Of at least attempts", Kind: "number", Value: numberText(int64(b.MinAttempts)), Placeholder: "20"},
		{Name: "breaker.window", Label: "Within", Kind: "text", Value: fieldSpan(b.Window), Placeholder: "1m"},
		{Name: "breaker.hold", Label: "Stays open for", Kind: "text", Value: fieldSpan(b.Hold), Placeholder: "30s"},
		{Name: "breaker.max_hold", Label: "Up to", Kind: "text", Value: fieldSpan(b.MaxHold), Placeholder: "10m"},
		{Name: "breaker.probes", Label: "Probes that close it", Kind: "number", Value: numberText(int64(b.Probes)), Placeholder: "3"},
	}
}

func doSettings(v *visit) (done, error) {
	q, err := v.queue()
	if err != nil {
		return done{}, err
	}
	s, err := v.settings(q.Settings.Breakers) // rules of single types are not on the form, and stay
	if err != nil {
		return done{}, err
	}
	of, err := v.version()
	if err != nil {
		return done{}, err
	}
	version, err := strconv.ParseInt(of, 10, 64)
	if err != nil {
		return done{}, badField(versionField, "%q is none of the settings of a queue", clip(of, 40))
	}
	if _, err := v.admin().WithReason(v.value("reason")).Queues().PutIfVersion(v.ctx, q.Name, version, s); err != nil {
		return done{}, err
	}
	return v.queueDone("Saved."), nil
}

// settings reads the settings of a queue from a form.
func (v *visit) settings(breakers map[string]admin.Breaker) (s admin.QueueSettings, err error) {
	r := &reader{v: v}
	s = admin.QueueSettings{
		MaxAttempts: r.count("max_attempts"), Lease: r.span("lease"), Timeout: r.span("timeout"), MaxLength: r.whole("max_length"), MaxWait: r.span("max_wait"),
		Retry: r.retry("retry."),
		Retention: admin.Retention{Succeeded: r.span("retention.succeeded"), Discarded: r.span("retention.discarded"), Cancelled: r.span("retention.cancelled"),
			Dead: r.span("retention.dead"), Poisoned: r.span("retention.poisoned")},
		QueueLimits: admin.QueueLimits{MaxRunning: r.count("max_running"), Rate: r.rate("rate")},
		PerKey:      admin.QueueLimits{MaxRunning: r.count("per_key.max_running"), Rate: r.rate("per_key.rate")},
		Keys:        r.keys("keys"),
		Weights:     r.weights("weights"),
		KeyOrder:    admin.KeyOrder(r.text("key_order")),
		Breakers:    breakers,
	}
	if r.text("breaker") != "" {
		s.Breaker = &admin.Breaker{FailureRate: r.count("breaker.failure_rate"), MinAttempts: r.count("breaker.min_attempts"), Window: r.span("breaker.window"),
			Hold: r.span("breaker.hold"), MaxHold: r.span("breaker.max_hold"), Probes: r.count("breaker.probes")}
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
		r.fail(badField(name, "%q is not three numbers such as 6:3:1", clip(s, 40)))
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
			r.fail(badField(name, "%q is there twice", clip(key, 60)))
		}
		all[key] = rules
	}
	return all
}

// parseKeyLine reads `"tenant-7" running 2 rate 10/1s burst 5 weight 3`.
func parseKeyLine(line string) (key string, rules admin.KeyLimits, err error) {
	quoted, err := strconv.QuotedPrefix(line)
	if err != nil {
		return "", rules, fmt.Errorf("%q does not begin with a key in quotes", clip(line, 60))
	}
	if key, err = strconv.Unquote(quoted); err != nil {
		return "", rules, fmt.Errorf("%q is not a key in quotes", clip(quoted, 60))
	}
	words := strings.Fields(line[len(quoted):])
	for i := 0; i < len(words); i += 2 {
		if i+1 == len(words) {
			return key, rules, fmt.Errorf("%q: nothing stands behind %s", clip(line, 60), clip(words[i], 20))
		}
		if err := setKeyRule(&rules, words[i], words[i+1]); err != nil {
			return key, rules, fmt.Errorf("%q: %w", clip(line, 60), err)
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
		return fmt.Errorf("%s is none of running, rate, burst and weight", clip(word, 20))
	}
	if err != nil {
		return fmt.Errorf("%s: %q is not one", word, clip(value, 20))
	}
	return nil
}
