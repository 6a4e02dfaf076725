package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// dataType is a class of the Python SDK and an interface of the TypeScript SDK for the fields of a message.
type dataType struct {
	name, message string // "": the same
	how           how
	// fields are words: NAME=FIELD of the message, in the order of the class. !: it is always set; in a parameter, required. ?: None
	// if it is left out. ~: not in the representation in Python.
	fields string
	// typescript is a field that only TypeScript has: NAME: TYPE = VALUE.
	typescript string
}

// how says what a type is for, and how messages are converted to it.
type how int

const (
	result    how = 1 << iota // by the functions that convert any message
	converted                 // a result, by a function of its own
	parameter
	typescriptOnly
)

var dataTypes = []dataType{
	{"Failure", "TaskError", converted, "message type stack", ""},
	{"Progress", "", converted, "percent message", ""},
	{"Attempt", "", converted, "attempt fence worker started_at ended_at outcome error waited next_run_at", ""},
	{"Parent", "", converted, "task_id group_id result content_type result_omitted", ""},
	{"Follower", "", converted, "type queue state task_id reason", ""},
	{"TaskInfo", "Task", converted, "id=task_id type queue status state reason priority payload content_type result result_content_type " +
		"attempts max_attempts failures crashes releases snoozes fence attempt_log~ progress! checkpoint worker created_at run_at " +
		"claimed_at lease_expires_at ended_at expires_at kept_until idempotency_key key tags headers cost waits_for group_id parent then",
		"ended: boolean = endStates.has(stateWords.word(p.state))"},

	{"GroupCounts", "", converted, "members pending succeeded dead poisoned discarded cancelled refused", ""},
	{"GroupInfo", "Group", converted, "id=group_id name state open counts! created_at ended_at kept_until on_complete on_success on_death",
		""},
	{"GroupMember", "", converted, "task_id type queue state refused result result_content_type result_omitted", ""},
	{"Tick", "", converted, "seq planned_at until count decided_at outcome reason task_id late", ""},
	{"PawlEvent", "Event", converted | typescriptOnly,
		"kind time queue type key task_id state attempt worker reason error name operation_id count cursor", ""},

	{"Retry", "RetryPolicy", parameter, "initial? factor? max? jitter?", ""},
	{"PriorityWeights", "", parameter, "high! normal! low!", ""},
	{"Retention", "", parameter, "succeeded? discarded? cancelled? dead? poisoned?", ""},
	{"Rate", "", parameter, "limit! period! burst", ""},
	{"KeyRules", "", parameter, "max_running rate weight", ""},
	{"Breaker", "", parameter, "off failure_rate window min_attempts hold max_hold probes", ""},
	{"QueueSettings", "", result | parameter, "weights retry max_attempts lease timeout retention max_length max_running rate per_key " +
		"keys max_wait key_order breaker breakers", ""},
	{"Depth", "", result, "scheduled ready claimed retrying held dead poisoned", ""},
	{"Latency", "", result, "count mean_seconds p50_seconds p95_seconds p99_seconds", ""},
	{"Queue", "", result, "queue paused paused_reason paused_by paused_at depth oldest_ready_age_seconds wait run drain_seconds workers " +
		"breakers_open settings! version created_at missing", ""},
	{"PausedSubset", "PauseQueueRequest", parameter | typescriptOnly, "type key", ""},
	{"Filter", "", parameter, "queue states type tag key worker error fingerprint operation created_after created_before q", ""},
	{"DeadGroup", "", result, "fingerprint type message count first_at last_at sample_task_id queues queue", ""},
	{"Operator", "", result, "actor address interface reason", ""},
	{"OperationSpec", "", parameter, "action! filter! to_queue priority max rate canary", ""},
	{"OperationPreview", "", result, "matched is_lower_bound", ""},
	{"FailedTask", "", result, "task_id message", ""},
	{"Operation", "", result, "operation_id spec! state author created_at paused_at ended_at why total matched done skipped failed " +
		"errors waits_for", ""},
	{"RunningTask", "", result, "task_id type queue attempt since lease_expires_at", ""},
	{"Quiet", "QuietWord", result, "reason by at until", ""},
	{"WorkerInfo", "Worker", result, "worker_id worker node connected host pid version types slots running tasks connected_at seen_at " +
		"draining quiet lost_at lost_reason", ""},
	{"Reason", "", result, "code detail change since until queue type key cause error", ""},
	{"Explanation", "ExplainTaskResponse", result, "task_id state queue type key reasons", ""},
	{"EventCounts", "", result, "enqueued claimed succeeded failed crashed dead poisoned discarded cancelled replayed", ""},
	{"FailingType", "", result, "queue type failures last_error last_error_type last_at", ""},
	{"Stats", "", result, "window totals! failure_rate wait run failing missing", ""},
}

// dataDocs has the comments for which an SDK says something else than the contract. The language may follow the name.
var dataDocs = map[string]string{
	"Attempt.outcome": `while running, ""`,
	"Breaker": "A circuit breaker, which holds back tasks of a type that fail too often. Fields that are left out get " +
		"the broker's defaults.",
	"Breaker.off":           "for a single type: it has no breaker",
	"DeadGroup":             "The dead letters that have the same error.",
	"DeadGroup.fingerprint": "of type and last error message",
	"DeadGroup.queues":      "the number of queues that they are in",
	"Explanation": "Why a task is not running, which worker runs it, or how it ended. The first reason is the most " +
		"decisive.",
	"Explanation.state": `"": unknown, because no replica of its shard could be reached`,
	"WorkerInfo.types":  "if there are none, all",
	"Failure":           "The error that a handler reported.",
	"Filter python": "Selects tasks. All fields that are given must match, and none may be empty; Filter() selects all " +
		"tasks.",
	"Filter typescript": "Selects tasks. All fields that are given must match, and none may be empty; {} selects all " +
		"tasks.",
	"Filter.fingerprint":  "from a DeadGroup",
	"Follower.task_id":    "set once it is created; for a duplicate, the other task",
	"GroupCounts.pending": "members that have not ended",
	"GroupCounts.refused": "members that their queues refused",
	"GroupInfo": "What the broker knows about a group. Times are absent if they have not been reached or never will " +
		"be.",
	"GroupMember.state": `its end state; "" until it has ended`,
	"KeyRules":          "The limits of a key, and its weight among other keys.",
	"KeyRules.rate":     `or a text such as "10/1m"; in results, a Rate`,
	"Operation": "What the broker knows about an operation, which affects only tasks that existed when it was " +
		"created.",
	"OperationPreview":                "What an operation would affect.",
	"OperationPreview.is_lower_bound": "counting all of the tasks would have taken too long",
	"OperationSpec.filter":            "an empty one means every task that the action applies to",
	"OperationSpec.priority":          "for set_priority only",
	"OperationSpec.to_queue":          "for move only",
	"Operator.interface":              "one of rest, grpc, ui and sqs",
	"Parent.result_omitted":           "the result was too large to be included: read it from the task",
	"PausedSubset":                    "A part of a queue that is paused separately: the tasks of one type or one key.",
	"PausedSubset.key":                "either this or type",
	"PausedSubset.type":               "either this or key",
	"PawlEvent": "Something that happened. Fields that don't apply to the kind are empty. Events carry no payloads: " +
		"use client.ref(taskId).info().",
	"PawlEvent.kind":           "such as task.dead; reset: earlier events of the shard may be missing, read the state again",
	"Progress":                 "The progress that a handler reported.",
	"Queue":                    "What the broker knows about a queue.",
	"Queue.breakers_open":      "the number of breakers that are not closed",
	"Queue.queue":              "its name",
	"Queue.version python":     "the version of the settings, for put(if_version=...)",
	"Queue.version typescript": "the version of the settings, for put with ifVersion",
	"Queue.workers": "the number of workers that take its tasks, without quiet and draining ones; absent: not " +
		"reported",
	"QueueSettings python":     queueSettingsDoc + "use dataclasses.replace(queue.settings, max_attempts=3) to change one.",
	"QueueSettings typescript": queueSettingsDoc + "use { ...queue.settings, maxAttempts: 3 } to change one.",
	"QueueSettings.breaker":    "for each type",
	"QueueSettings.key_order":  `in results, "" means none`,
	"QueueSettings.rate":       `or a text such as "10/1m"; in results, a Rate`,
	"Rate":                     "A token bucket: it gains limit tokens per period and holds at most burst, by default limit.",
	"Reason":                   "One thing that keeps a task from running, or how it is running or has ended.",
	"Retry": "How long a failed task waits for its next attempt: initial * factor^(n-1), at most max, plus a random " +
		"share of up to jitter of it. Fields that are left out get the broker's defaults.",
	"Stats":                "Counts the events of a time window, and how long tasks waited and ran in it.",
	"TaskInfo":             "What the broker knows about a task. Times are absent if they have not been reached or never will be.",
	"TaskInfo.checkpoint":  "the handler's checkpoint, with the results of its steps",
	"TaskInfo.ended":       "reports whether the task is in one of its end states",
	"TaskInfo.expires_at":  "unless it starts before, it is discarded",
	"TaskInfo.payload":     "left out of lists",
	"TaskInfo.reason":      "why the task is in its end state",
	"Tick.count":           "the number of ticks; 100 means 100 or more",
	"WorkerInfo":           "What the broker knows about a worker.",
	"WorkerInfo.connected": "it has a stream of claims; if not, it claims by single calls, or is lost",
	"WorkerInfo.lost_reason": "disconnected: its stream ended and it did not reconnect; lease_lost: it let a lease " +
		"expire",
}

const queueSettingsDoc = "The settings of a queue. In results, every field has its effective value. A field left out of a put gets the " +
	"broker's default, not its old value: "

// dataField is a field of a dataType.
type dataField struct {
	name, own                   string // own: the name in the message
	field                       protoreflect.FieldDescriptor
	always, optional, concealed bool
	doc                         string
}

func (t *dataType) descriptor() protoreflect.MessageDescriptor {
	return find(cmp.Or(t.message, t.name)).(protoreflect.MessageDescriptor)
}

// parse reads the fields of a type.
func (t *dataType) parse(in *language) (out []dataField) {
	for word := range strings.FieldsSeq(t.fields) {
		name, own, renamed := strings.Cut(strings.TrimRight(word, "!?~"), "=")
		if !renamed {
			own = name
		}
		f := dataField{name: name, own: own, field: t.descriptor().Fields().ByName(protoreflect.Name(own)),
			always: strings.Contains(word, "!"), optional: strings.Contains(word, "?"), concealed: strings.Contains(word, "~")}
		if f.field == nil {
			panic(t.name + " has no field " + own)
		}
		key := t.name + "." + name
		f.doc = cmp.Or(dataDocs[key+" "+in.name], dataDocs[key], in.comments[nameOf(t.descriptor())+"."+camel(f.field)])
		if t.how&parameter == 0 && typeIn(f.field) == "google.protobuf.Duration" {
			f.doc = strings.TrimPrefix(f.doc+", in "+in.durations, ", ")
		}
		if f.always {
			f.doc = strings.TrimPrefix(f.doc, "required")
		}
		if f.field.Enum() != nil && in.name == "python" && !f.field.IsList() {
			all := words(f.field.Enum())
			last := len(all) - 1
			f.doc = strings.TrimSuffix(strings.Join(all[:last], ", ")+" or "+all[last]+"; "+f.doc, "; ")
			f.doc = in.sentence(f.doc, t, false)
		} else {
			f.doc = in.sentence(f.doc, t, true)
		}
		out = append(out, f)
	}
	return out
}

// words returns the words of an enum.
func words(e protoreflect.EnumDescriptor) (out []string) {
	for i := 1; i < e.Values().Len(); i++ {
		out = append(out, word(e.Values().Get(i)))
	}
	return out
}

func word(v protoreflect.EnumValueDescriptor) string {
	unset := v.Parent().(protoreflect.EnumDescriptor).Values().Get(0)
	return strings.ToLower(strings.TrimPrefix(string(v.Name()), strings.TrimSuffix(string(unset.Name()), "UNSPECIFIED")))
}

// language is how an SDK writes names and comments.
type language struct {
	name, durations, absent string
	comments                comments
	field                   func(name string) string
}

// typeDoc returns the comment of a type.
func (l *language) typeDoc(t *dataType) string {
	name := nameOf(t.descriptor())
	doc := strings.TrimPrefix(l.comments[name], name+" ")
	return l.sentence(cmp.Or(dataDocs[t.name+" "+l.name], dataDocs[t.name], strings.TrimPrefix(doc, "is ")), t, true)
}

var (
	unset = regexp.MustCompile(`\b(?i:absent|unset|unspecified)\b`)
	empty = regexp.MustCompile(`\bempty:`)
)

// sentence returns a comment as a sentence, with the names of the language. capital: unless it begins with one of those.
func (l *language) sentence(doc string, t *dataType, capital bool) string {
	if doc == "" {
		return ""
	}
	doc = unit.ReplaceAllStringFunc(doc, func(d string) string {
		m := unit.FindStringSubmatch(d)
		if strings.Contains(doc, `"10/1m"`) {
			return d
		}
		return m[1] + " " + units[m[2]]
	})
	doc = empty.ReplaceAllString(unset.ReplaceAllString(doc, l.absent), `"":`)
	doc = term.ReplaceAllStringFunc(doc, func(name string) string {
		if v, ok := lookUp(name).(protoreflect.EnumValueDescriptor); ok {
			return word(v)
		}
		for w := range strings.FieldsSeq(t.fields) {
			if renamed, of, _ := strings.Cut(strings.TrimRight(w, "!?~"), "="); of == name {
				return l.field(renamed)
			}
		}
		if strings.Contains(name, "_") && t.descriptor().Fields().ByName(protoreflect.Name(name)) != nil {
			return l.field(name)
		}
		return name
	})
	first, _, _ := strings.Cut(doc, " ")
	if capital && !strings.HasPrefix(doc, l.absent) && !slices.Contains(strings.Fields(t.fields), first) {
		doc = strings.ToUpper(doc[:1]) + doc[1:]
	}
	return strings.TrimSuffix(doc, ".") + "."
}
