package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// badCall is a call that breaks a rule.
type badCall struct {
	name string
	call func(w *world) error
	want refusal
	says string // part of the text: the value and the rule
}

// refusedCalls checks that each call is refused with a reason, and leaves nothing behind.
func refusedCalls(name string, calls []badCall) story {
	return story{name: name, tell: func(w *world) {
		for _, c := range calls {
			err := c.call(w)
			w.refused(c.name, err, c.want)
			if err != nil && !strings.Contains(err.Error(), c.says) {
				w.Errorf("%s: refused with %q, want %q in it", c.name, err, c.says)
			}
		}
		is(w, "what is stored", len(w.list(filter{})), 0)
		names, _, err := w.api.Queues(w.ctx(), part{})
		must(w.T, err)
		is(w, "the queues", len(names), 0)
	}}
}

// enqueueing is a bad enqueue, alone and in a batch.
func enqueueing(field, says string, s spec) badCall {
	if s.Type == "" && field != "type" {
		s.Type = "job"
	}
	return badCall{fmt.Sprintf("enqueue with bad %s", field), func(w *world) error {
		_, alone := w.api.Enqueue(w.ctx(), s)
		if got, is := errors.AsType[*refusal](alone); is {
			want := *got
			want.Text = ""
			w.refused(field+" in a batch", w.batch([]spec{s})[0].Err, want)
		}
		return alone
	}, refusal{Code: "invalid_argument", Field: field}, says}
}

// started is a time in the bubbles.
var started = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func TestBadTasks(t *testing.T) {
	long := strings.Repeat("x", 257)
	none, much := -second, 366*day
	large := enqueueing("payload", "1048577 bytes, at most 1048576", spec{Payload: `"` + strings.Repeat("x", 1<<20-1) + `"`})
	large.want.Code = "payload_too_large"
	tellAll(t, []story{
		refusedCalls("an invalid task is refused with its field, value and rule", []badCall{
			large,
			enqueueing("type", "type", spec{}),
			enqueueing("type", "257 bytes, at most 256", spec{Type: long}),
			enqueueing("type", "control character", spec{Type: "a\nb"}),
			enqueueing("content_type", "257 bytes, at most 256", spec{ContentType: long, Payload: "x"}),
			enqueueing("queue", "257 bytes, at most 256", spec{Queue: long}),
			enqueueing("queue", `"a/b" has a character other than`, spec{Queue: "a/b"}),
			enqueueing("queue", `".." is not a name`, spec{Queue: ".."}),
			enqueueing("delay", "-1s is not between 0 and 8760h", spec{Delay: -second}),
			enqueueing("delay", "8784h0m0s is not between 0 and 8760h", spec{Delay: 366 * day}),
			enqueueing("run_at", "1969 is not between 1970 and 9999", spec{RunAt: started.AddDate(-31, 0, 0)}),
			enqueueing("idempotency_key", "257 bytes, at most 256", spec{IdempotencyKey: long}),
			enqueueing("idempotency_ttl", "1m0s is given without idempotency_key", spec{IdempotencyTTL: minute}),
			enqueueing("idempotency_ttl", "-1s is not between 0 and 8760h", spec{IdempotencyKey: "k", IdempotencyTTL: -second}),
			enqueueing("request_id", `"42" is not a UUID`, spec{RequestID: "42"}),
			enqueueing("max_attempts", "-1 is not between 1 and 1000", spec{MaxAttempts: -1}),
			enqueueing("max_attempts", "1001 is not between 1 and 1000", spec{MaxAttempts: 1001}),
			enqueueing("retry.initial", "-1s is not between 0 and 8760h", spec{Retry: retry{Initial: -second}}),
			enqueueing("retry.max", "1s is not between initial (30s) and 8760h", spec{Retry: retry{Max: second}}),
			enqueueing("retry.factor", "0.5 is not between 1 and 100", spec{Retry: retry{Factor: 0.5}}),
			enqueueing("retry.jitter", "1.5 is not between 0 and 1", spec{Retry: retry{Jitter: 1.5}}),
			enqueueing("timeout", "-1s is not between 0 and 24h", spec{Timeout: -second}),
			enqueueing("timeout", "25h0m0s is not between 0 and 24h", spec{Timeout: 25 * hour}),
			enqueueing("expires_in", "-1s is not between 0 and 8760h", spec{ExpiresIn: -second}),
			enqueueing("retention", "-1s is not between 0 and 8760h", spec{Retention: &none}),
			enqueueing("retention", "8784h0m0s is not between 0 and 8760h", spec{Retention: &much}),
			enqueueing("key", "257 bytes, at most 256", spec{Key: long}),
			enqueueing("unique.key", "257 bytes, at most 256", spec{Unique: &unique{Key: long}}),
			enqueueing("unique.states", "claimed missing", spec{Unique: &unique{States: []string{"scheduled", "ready", "retrying"}}}),
			enqueueing("unique.states", "dead with on_conflict keep_last",
				spec{Unique: &unique{States: []string{"scheduled", "ready", "claimed", "retrying", "dead"}, OnConflict: "keep_last"}}),
			enqueueing("tags", "33 tags, at most 32", spec{Tags: strings.Split(strings.Repeat("x ", 32)+"x", " ")}),
			enqueueing("tags", "a tag is empty", spec{Tags: []string{""}}),
			enqueueing("headers", `"" is not a name`, spec{Headers: map[string]string{"": "x"}}),
			enqueueing("headers", "bytes, at most 16384", spec{Headers: map[string]string{"a": strings.Repeat("x", 16<<10)}}),
		}),
		{name: "a run_at too far ahead of the shard's time is refused", tell: func(w *world) {
			_, err := w.api.Enqueue(w.ctx(), spec{Type: "job", RunAt: w.at(366 * day)})
			w.refused("enqueue", err, refusal{Code: "invalid_argument", Field: "run_at"})
			is(w, "what is stored", len(w.list(filter{})), 0)
		}},
		ofTheGateway(refusedCalls("unknown enum values are refused", []badCall{
			enqueueing("priority", "high, normal", spec{Priority: "urgent"}),
		})),
	})
}

// bad makes a badCall of a call with an answer.
func bad[T any](field, says string, call func(w *world) (T, error)) badCall {
	return badCall{field + " " + says, func(w *world) error { _, err := call(w); return err },
		refusal{Code: "invalid_argument", Field: field}, says}
}

func claiming(field, says string, c claimCall) badCall {
	if c.Queues == nil && c.Weights == nil && field != "queues" {
		c.Queues = []string{"default"}
	}
	return bad("claim: "+field, says, func(w *world) ([]claim, error) { return w.api.Claim(w.ctx(), c) }).of(field)
}

// of returns the call with the field as the refusal has it.
func (b badCall) of(field string) badCall {
	b.want.Field = field
	return b
}

func putting(field, says string, s settings) badCall {
	return bad("put: "+field, says, func(w *world) (queueInfo, error) { return w.api.PutQueue(w.ctx(), "mail", s) }).of(field)
}

func listing(field, says string, f filter, p part) badCall {
	return bad("list: "+field, says, func(w *world) (page, error) { return w.api.List(w.ctx(), f, p) }).of(field)
}

func TestBadCalls(t *testing.T) {
	long := strings.Repeat("x", 257)
	many := map[string]int{}
	var queues []string
	for i := range 101 {
		many[fmt.Sprint(i)], queues = 1, append(queues, fmt.Sprint(i))
	}
	tellAll(t, []story{
		ofTheGateway(refusedCalls("invalid settings are refused, and no queue is created", []badCall{
			putting("settings.weights.low", "1001 is not between 1 and 1000", settings{Weights: weights{1, 1, 1001}}),
			putting("settings.max_attempts", "1001 is not between 1 and 1000", settings{MaxAttempts: 1001}),
			putting("settings.max_length", "-1 is", settings{MaxLength: -1}),
			putting("settings.max_running", "-1 is", settings{limits: limits{MaxRunning: -1}}),
			putting("settings.rate.limit", "2000000 is not between 1 and 1000000",
				settings{limits: limits{Rate: &rate{Limit: 2_000_000, Period: second, Burst: 1}}}),
			putting("settings.rate.period", "25h0m0s is not between 1s and 24h",
				settings{limits: limits{Rate: &rate{Limit: 1, Period: 25 * hour, Burst: 1}}}),
			putting("settings.breaker.failure_rate", "101 is not between 1 and 100", settings{Breaker: &breaker{FailureRate: 101}}),
			putting("settings.breakers.sms.window", "500ms is not between 1s and 1h",
				settings{Breakers: map[string]breaker{"sms": {Window: second / 2}}}),
			putting("settings.per_key.max_running", "2000000 is not between 0 and 1000000",
				settings{PerKey: &limits{MaxRunning: 2_000_000}}),
			putting("settings.keys.vip.weight", "1001 is not between 1 and 1000",
				settings{Keys: map[string]keyRules{"vip": {Weight: 1001}}}),
			putting("settings.lease", "1ms is not between 1s and 12h", settings{Lease: millisecond}),
			putting("settings.timeout", "25h0m0s is not between 0 and 24h", settings{Timeout: 25 * hour}),
			putting("settings.retry.factor", "101 is not between 1 and 100", settings{Retry: retry{Factor: 101}}),
			putting("settings.key_order", "is not one of", settings{KeyOrder: "loose"}),
			putting("settings.max_wait", "500ms is not between 1s and 8760h", settings{MaxWait: second / 2}),
			putting("settings.retention.dead", "-1s is not between 0 and 8760h", settings{Retention: retention{Dead: -second}}),
		})),
		ofTheGateway(refusedCalls("an invalid claim is refused, and creates no queue", []badCall{
			claiming("queues", "queues", claimCall{}),
			claiming("queues", "100", claimCall{Queues: queues}),
			claiming("queues", "100", claimCall{Weights: many}),
			claiming("queues", `"a" is given twice`, claimCall{Queues: []string{"a", "b", "a"}}),
			claiming("queues", "", claimCall{Queues: []string{"a/b"}}),
			claiming("queues.a", "1001 is not between 1 and 1000", claimCall{Weights: map[string]int{"a": 1001}}),
			claiming("types", "a type is empty", claimCall{Types: []string{"a", ""}}),
			claiming("types", "257 bytes, at most 256", claimCall{Types: []string{long}}),
			claiming("max", "1001 is not between 1 and 1000", claimCall{Max: 1001}),
			claiming("max", "-1 is not between 1 and 1000", claimCall{Max: -1}),
			claiming("max_bytes", "-1 is not between", claimCall{MaxBytes: -1}),
			claiming("lease", "1ms is not between 1s and 12h", claimCall{Lease: millisecond}),
			claiming("lease", "13h0m0s is not between 1s and 12h", claimCall{Lease: 13 * hour}),
			claiming("wait", "1m1s is not between 0 and 1m0s", claimCall{Wait: 61 * second}),
			claiming("worker", "257 bytes, at most 256", claimCall{Worker: long}),
			claiming("claim_key", "257 bytes, at most 256", claimCall{Key: long}),
		})),
		ofTheGateway(refusedCalls("an invalid list call is refused", []badCall{
			listing("limit", "1001", filter{}, part{Limit: 1001}),
			listing("cursor", `"x" was not returned by this call`, filter{}, part{Cursor: "x"}),
			listing("queue", `"a/b" has a character other than`, filter{Queue: "a/b"}, part{}),
			listing("type", "257 bytes, at most 256", filter{Type: long}, part{}),
			listing("fingerprint", "16 digits", filter{Fingerprint: "12"}, part{}),
			listing("payload", `the path "a..b" has an empty key`, filter{Payload: []string{"a..b:1"}}, part{}),
			listing("payload", "9 conditions, at most 8", filter{Payload: strings.Split("a:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1", " ")},
				part{}),
			listing("operation", "not a UUID", filter{Operation: "12"}, part{}),
			listing("error", "1025 bytes, at most 1024", filter{Error: strings.Repeat("x", 1025)}, part{}),
			listing("state", "is not a state", filter{States: []string{"lost"}}, part{}),
		})),
		{gateway: true, name: "an invalid call on a claim is refused, and the claim stays valid", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			for _, b := range []badCall{
				bad("lease", "13h0m0s is not between 1s and 12h", func(w *world) (any, error) {
					return w.api.Extend(w.ctx(), c.hold(),
						extension{Lease: 13 * hour})
				}),
				bad("progress.percent", "101 is not between 0 and 100", func(w *world) (any, error) {
					return w.api.Extend(w.ctx(), c.hold(), extension{Progress: &progress{Percent: 101}})
				}),
				bad("retry_in", "8784h0m0s is not between 0 and 8760h", func(w *world) (any, error) {
					return w.api.Fail(w.ctx(), c.hold(), failing{RetryIn: 366 * day})
				}),
				bad("delay", "8784h0m0s is not between 0 and 8760h", func(w *world) (any, error) {
					return w.api.Release(w.ctx(), c.hold(), 366*day)
				}),
			} {
				err := b.call(w)
				w.refused(b.name, err, b.want)
				if err != nil && !strings.Contains(err.Error(), b.says) {
					w.Errorf("%s: the refusal says %q", b.name, err)
				}
			}
			err := w.api.Ack(w.ctx(), c.hold(), result{Data: `"` + strings.Repeat("x", 1<<20) + `"`})
			w.refused("a large result", err, refusal{Code: "payload_too_large", Field: "result"})
			_, err = w.api.Extend(w.ctx(), c.hold(), extension{Checkpoint: []byte(strings.Repeat("x", 64<<10+1))})
			w.refused("a large checkpoint", err, refusal{Code: "payload_too_large", Field: "checkpoint"})
			w.ack(c)
		}},
	})
}

func TestWrongState(t *testing.T) {
	operations := []struct {
		name string
		call func(w *world, id string) error
		in   string // the states in which it is refused
	}{
		{"cancel", func(w *world, id string) error { _, err := w.api.Cancel(w.ctx(), id); return err },
			"succeeded discarded dead poisoned"},
		{"retry", func(w *world, id string) error { _, err := w.api.Retry(w.ctx(), id); return err }, "scheduled ready claimed succeeded"},
		{"run now", func(w *world, id string) error { _, err := w.api.RunNow(w.ctx(), id); return err },
			"claimed succeeded discarded dead poisoned cancelled"},
		{"discard", func(w *world, id string) error { _, err := w.api.Discard(w.ctx(), id); return err }, "claimed succeeded cancelled"},
		{"update", func(w *world, id string) error {
			_, err := w.api.Update(w.ctx(), id, edit{Priority: "high"})
			return err
		}, "claimed succeeded discarded dead poisoned cancelled"},
	}
	tellAll(t, []story{{name: "a call that the state does not allow is refused with the state", tell: func(w *world) {
		for _, o := range operations {
			for state := range strings.SplitSeq(o.in, " ") {
				id := w.in(state)
				before := w.get(id)
				w.refused(o.name+" in "+state, o.call(w, id), refusal{Code: "wrong_state", State: state})
				is(w, "the task", w.get(id), before)
				ok[int64](w)(w.api.Purge(w.ctx(), "default"))
			}
		}
	}}})
}

// in creates a task in a state.
func (w *world) in(state string) string {
	w.Helper()
	switch state {
	case "scheduled":
		return w.id(spec{Delay: hour})
	case "ready":
		return w.id(spec{})
	case "claimed":
		w.enqueue(spec{})
		return w.claim().ID
	}
	id := w.id(spec{})
	w.end(state)
	return id
}

func TestNotFound(t *testing.T) {
	const (
		unknown   = "00dc6acf-ac00-7001-8def-000000000001" // in the data shard
		elsewhere = "00dc6acf-ac00-7abc-8def-000000000001" // in a shard that doesn't exist
	)
	notFound := refusal{Code: "not_found"}
	tellAll(t, []story{
		{name: "an unknown task is not found", tell: func(w *world) {
			for _, id := range []string{unknown, elsewhere} {
				for name, call := range map[string]func(context.Context, string) (view, error){
					"get": w.api.Get, "cancel": w.api.Cancel, "retry": w.api.Retry, "run now": w.api.RunNow, "discard": w.api.Discard,
					"wait": func(ctx context.Context, id string) (view, error) { return w.api.WaitResult(ctx, id, minute) },
					"update": func(ctx context.Context, id string) (view, error) {
						return w.api.Update(ctx, id, edit{Priority: "high"})
					},
				} {
					_, err := call(w.ctx(), id)
					w.refused(name+" of "+id, err, notFound)
				}
			}
		}},
		{name: "a claim of an unknown task is not found", tell: func(w *world) {
			w.enqueue(spec{})
			token := w.claim().Token
			for _, v := range verbs {
				w.refused(v.name, v.call(w, hold{unknown, token}), notFound)
				w.refused(v.name+" elsewhere", v.call(w, hold{elsewhere, token}), notFound)
			}
		}},
		{name: "an invalid id is refused", tell: func(w *world) {
			noID := refusal{Code: "invalid_argument", Field: "task_id"}
			_, err := w.api.Get(w.ctx(), "42")
			w.refused("get", err, noID)
			_, err = w.api.Cancel(w.ctx(), "42")
			w.refused("cancel", err, noID)
			for _, v := range verbs {
				w.refused(v.name, v.call(w, hold{"42", "x"}), noID)
			}
		}},
		{name: "an unknown queue is not found, and not created", tell: func(w *world) {
			for name, call := range map[string]func() error{
				"get":           func() error { _, err := w.api.Queue(w.ctx(), "mail"); return err },
				"delete":        func() error { return w.api.DeleteQueue(w.ctx(), "mail") },
				"pause":         func() error { _, err := w.api.Pause(w.ctx(), "mail", pause{Reason: ""}); return err },
				"resume":        func() error { _, err := w.api.Resume(w.ctx(), "mail", pause{}); return err },
				"purge":         func() error { _, err := w.api.Purge(w.ctx(), "mail"); return err },
				"close breaker": func() error { _, err := w.api.CloseBreaker(w.ctx(), "mail", "", ""); return err },
				"dead letters":  func() error { _, err := w.api.Dead(w.ctx(), filter{Queue: "mail"}, part{}); return err },
				"poisoned":      func() error { _, err := w.api.Poisoned(w.ctx(), filter{Queue: "mail"}, part{}); return err },
			} {
				w.refused(name, call(), notFound)
			}
			names, _, err := w.api.Queues(w.ctx(), part{})
			must(w.T, err)
			is(w, "the queues", len(names), 0)
		}},
	})
}
