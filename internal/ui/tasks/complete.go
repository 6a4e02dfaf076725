package tasks

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

// Limits of a completion, for which somebody waits while typing.
const (
	completeTime  = time.Second
	maxSuggested  = 10
	maxOfEach     = 4   // of each kind, for a word without a field, which may be a name of several kinds
	completeTasks = 100 // newest tasks that are searched for types, tags and keys
	completeJSON  = 20  // newest tasks whose payloads are searched for fields
	leastWord     = 2   // characters that a word needs before names are looked up
)

// suggestion is a completion of a word.
type suggestion struct {
	Text string `json:"text"`
	Note string `json:"note,omitempty"`
	More bool   `json:"more,omitempty"` // a value follows
}

// completion lists the completions of a filter's last word.
type completion struct {
	Word  string       `json:"word"` // as typed
	Items []suggestion `json:"items"`
}

// filterFields are the fields of the filter language, with the separator.
var filterFields = []suggestion{
	{"queue:", "in this queue", true}, {"state:", "in any of these states", true}, {"type:", "of this type", true},
	{"tag:", "with this tag", true}, {"key:", "with this key", true}, {"worker:", "last held by this worker", true},
	{"error:", "part of the last error", true}, {"after:", "created after", true}, {"before:", "created before", true},
	{"payload.", "a field of the payload", true}, {"fingerprint:", "of a group of dead letters", true},
	{"operation:", "changed by this operation", true},
}

// serveCompletion answers with completions of the text up to the cursor, as JSON. It leaves out what it can't look up.
func serveCompletion(req *web.Request) error {
	ctx, cancel := context.WithTimeout(req.Ctx, completeTime)
	defer cancel()
	answer := completion{Items: []suggestion{}}
	if text := req.Query("q"); len(text) <= maxFilterText {
		answer = completer{req, ctx}.complete(text)
	}
	h := req.Writer.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	return json.NewEncoder(req.Writer).Encode(answer)
}

// completer completes a filter with what the visitor may see.
type completer struct {
	req *web.Request
	ctx context.Context
}

func (c completer) complete(text string) completion {
	before, word := lastWord(text)
	out := completion{Word: word, Items: []suggestion{}}
	field, value, ok := cutField(word)
	switch path, isPath := payloadPath(field); {
	case isPath && ok:
		out.Items = append(out.Items, c.payloadValues(before, field, path, value)...)
	case isPath:
		out.Items = append(out.Items, c.payloadPaths(before, path)...)
	case ok:
		out.Items = append(out.Items, c.values(before, field, value)...)
	default:
		out.Items = append(out.Items, c.words(before, word)...)
	}
	out.Items = out.Items[:min(len(out.Items), maxSuggested)]
	return out
}

// lastWord cuts off the condition being typed: everything after the last space outside quotes.
func lastWord(text string) (before, word string) {
	start, quoted, escaped := 0, false, false
	for i, c := range text {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case !quoted && unicode.IsSpace(c):
			start = i + len(string(c))
		}
	}
	return text[:start], text[start:]
}

// cutField splits a condition at its colon. A colon after \ is part of a path.
func cutField(word string) (field, value string, ok bool) {
	for i := 0; i < len(word); i++ {
		switch word[i] {
		case '\\':
			i++
		case ':':
			return word[:i], unquoteValue(word[i+1:]), true
		}
	}
	return word, "", false
}

// unquoteValue returns a value as far as it has been typed.
func unquoteValue(s string) string {
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(strings.TrimSuffix(s[1:], `"`))
}

// payloadPath returns the path of a payload field; ok is false for other fields.
func payloadPath(field string) (path string, ok bool) {
	for _, prefix := range []string{"payload.", "args."} {
		if path, ok := strings.CutPrefix(field, prefix); ok {
			return path, true
		}
	}
	return "", false
}

// words completes a word without a field to fields and to names of queues and types. If nothing has been typed yet, saved views come first.
func (c completer) words(before, word string) (all []suggestion) {
	if before == "" && word == "" {
		for _, w := range ownViews(c.req) {
			all = append(all, suggestion{Text: w.Filter, Note: w.Name})
		}
		all = all[:min(len(all), maxOfEach)]
	}
	for _, f := range filterFields {
		if strings.HasPrefix(f.Text, strings.ToLower(word)) {
			all = append(all, f)
		}
	}
	if len(word) < leastWord {
		return all
	}
	for _, field := range []string{"queue", "type"} {
		some := c.values(before, field, word)
		all = append(all, some[:min(len(some), maxOfEach)]...)
	}
	return all
}

// values completes a condition's value.
func (c completer) values(before, field, typed string) (all []suggestion) {
	near := c.near(before)
	var names []string
	switch field {
	case "state":
		return stateValues(typed)
	case "after", "before", "created_after", "created_before":
		names = []string{"1h", "24h", "7d", c.req.Now.UTC().Format(time.DateOnly)}
	case "queue":
		names = c.queueNames(typed)
	case "type":
		names = append(c.recent(near, 0, func(t *pawltype.Task) []string { return []string{t.Type} }),
			c.workerNames(func(w *admin.Worker) []string { return w.Types })...)
	case "worker":
		names = append(c.workerNames(func(w *admin.Worker) []string { return []string{w.Name} }),
			c.recent(near, 0, func(t *pawltype.Task) []string { return []string{t.Worker} })...)
	case "tag":
		names = c.recent(near, 0, func(t *pawltype.Task) []string { return t.Tags })
	case "key":
		names = c.recent(near, 0, func(t *pawltype.Task) []string { return []string{t.Key} })
	case "operation":
		return c.operations(typed)
	}
	for _, name := range matching(names, typed) {
		all = append(all, suggestion{Text: termsText([]term{{Field: field, Value: name}})})
	}
	return all
}

// near returns what the rest of the filter says about queue and type, so that names come from similar tasks.
func (c completer) near(before string) (f admin.Filter) {
	if typed, _, err := parseFilter(before, c.req.Now); err == nil {
		f.Queue, f.Type = typed.Queue, typed.Type
	}
	return f
}

// stateValues completes the last one of a list of states.
func stateValues(typed string) (all []suggestion) {
	done, last := "", typed
	if at := strings.LastIndexByte(typed, ','); at >= 0 {
		done, last = typed[:at+1], typed[at+1:]
	}
	chosen := strings.Split(done, ",")
	for _, s := range allStates {
		if strings.HasPrefix(string(s), strings.ToLower(last)) && !slices.Contains(chosen, string(s)) {
			all = append(all, suggestion{Text: "state:" + done + string(s)})
		}
	}
	return all
}

// matching returns the distinct names that begin with what is typed, followed by those that contain it elsewhere.
func matching(names []string, typed string) (all []string) {
	typed = strings.ToLower(typed)
	var rest []string
	for _, name := range names {
		switch low := strings.ToLower(name); {
		case name == "" || slices.Contains(all, name) || slices.Contains(rest, name):
		case strings.HasPrefix(low, typed):
			all = append(all, name)
		case strings.Contains(low, typed):
			rest = append(rest, name)
		}
	}
	return append(all, rest...)
}

func (c completer) queueNames(typed string) (names []string) {
	page, err := c.req.Admin().Queues().ListPage(c.ctx, admin.QueueFilter{Pattern: "*" + strings.Trim(typed, "*") + "*"},
		pawltype.PageRequest{Limit: 2 * maxSuggested})
	if err != nil {
		return nil
	}
	for _, q := range page.Items {
		names = append(names, q.Name)
	}
	return names
}

func (c completer) workerNames(of func(*admin.Worker) []string) (names []string) {
	page, err := c.req.Admin().Workers().ListPage(c.ctx, admin.WorkerFilter{}, pawltype.PageRequest{Limit: completeTasks})
	if err != nil {
		return nil
	}
	for _, w := range page.Items {
		names = append(names, of(w)...)
	}
	return names
}

// recent returns names from the newest tasks. payloads is the number of payloads to read; 0: none.
func (c completer) recent(near admin.Filter, payloads int, of func(*pawltype.Task) []string) (names []string) {
	page := pawltype.PageRequest{Limit: completeTasks}
	if payloads > 0 {
		page.Limit, page.WithPayload = payloads, true
	}
	tasks, err := c.req.Admin().Tasks().ListPage(c.ctx, near, page)
	if err != nil {
		return nil
	}
	for _, t := range tasks.Items {
		names = append(names, of(t)...)
	}
	return names
}

// operations completes the ids of the latest operations.
func (c completer) operations(typed string) (all []suggestion) {
	page, err := c.req.Admin().Operations().ListPage(c.ctx, pawltype.PageRequest{Limit: maxSuggested})
	if err != nil {
		return nil
	}
	for _, o := range page.Items {
		if strings.HasPrefix(o.ID, typed) {
			all = append(all, suggestion{Text: "operation:" + o.ID, Note: strings.ReplaceAll(string(o.Action), "_", " ")})
		}
	}
	return all
}
