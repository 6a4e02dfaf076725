package engine_test

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/engine/once"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// TestStories runs the stories in testdata/stories. After every step the tables are checked.
//
// Tasks are named t1, t2 … in order of creation. A verb on a task uses the token of its latest claim, or with fence=N of an earlier one.
func TestStories(t *testing.T) { tellStories(t) }

func tellStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &story{World: engine.NewWorld(t), tokens: map[string][]task.Token{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.step(d) + s.breakerChanges()
			if err := s.Check(); err != nil {
				t.Errorf("%s: after %s: %v", d.Pos, d.Cmd, err)
			}
			return strings.TrimRight(out, "\n") + "\n"
		})
	})
}

type story struct {
	*engine.World
	tasks   []task.ID
	tokens  map[string][]task.Token // by task, in the order of the fences
	asks    *explain.Workers        // claims seen by the leader; nil: one waits for everything
	workers task.QueueWorkers       // as the nodes know them

	versions   uint64      // of schedules
	by         task.Author // the operator; zero: none
	groupIDs   []task.ID
	operations []task.ID
}

func (s *story) step(d *datadriven.TestData) string {
	switch d.Cmd {
	case "enqueue":
		return s.enqueueStep(d)
	case "claim":
		return s.claimStep(d)
	case "ack", "fail", "release", "give-back", "extend":
		return s.settleStep(d)
	case "cancel", "retry", "run-now", "discard", "update":
		return s.operateStep(d)
	case "queue":
		return s.queueStep(d)
	case "slots":
		return s.slotsStep(d)
	case "share":
		return s.shareStep(d)
	case "woken":
		var names []string
		for _, w := range s.Last.Woken {
			names = append(names, w.Queue)
		}
		return strings.Join(names, " ")
	case "delete-queue":
		_, err := engine.Run(s.World, func(r *engine.Round) (struct{}, error) {
			return struct{}{}, engine.DropQueue(r, "default", d.CmdArgs[0].Key, math.MaxUint64)
		})
		return answer(err, "deleted")
	case "close-breaker":
		return s.closeBreakerStep(d)
	case "once":
		return s.onceStep(d)
	case "purge":
		return s.purgeStep(d)
	case "as", "audit":
		return s.auditStep(d)
	case "wait":
		from := s.Now
		s.Pass(duration(d.CmdArgs[0].Key))
		return fmt.Sprintf("%s later", s.Now.Sub(from))
	case "new-leader":
		s.BecomeLeader()
		return "leading"
	case "new-epoch":
		s.Epoch = uint64(number(d.CmdArgs[0].Key))
		s.BecomeLeader()
		return "leading"
	case "down":
		s.Now = s.Now.Add(duration(d.CmdArgs[0].Key))
		s.BecomeLeader()
		return "leading"
	case "show":
		return s.show(d.CmdArgs[0].Key)
	case "list":
		return s.list(d)
	case "requests":
		n := 0
		lo, hi := schema.TableBounds("default", schema.TableRequest)
		s.Store.Scan(lo, hi, func(_, _ []byte) bool { n++; return true })
		return fmt.Sprintf("%d remembered", n)
	case "to-archive", "archive":
		return s.archive(d.Cmd == "archive")
	case "groups":
		return s.groups(d)
	case "schedule", "unschedule", "pause-schedule", "resume-schedule", "trigger", "history", "outbox", "deliver":
		return s.scheduleStep(d)
	case "group", "add", "close", "cancel-group", "show-group", "members", "groups-made":
		return s.groupStep(d)
	case "operation", "step", "pause-operation", "resume-operation", "abort-operation", "show-operation":
		return s.operationStep(d)
	case "explain", "explain-queue":
		return s.explainStep(d)
	case "asks":
		return s.asksStep(d)
	case "workers":
		return s.workersStep(d)
	}
	return "unknown command " + d.Cmd
}

func (s *story) enqueueStep(d *datadriven.TestData) string {
	spec := task.Spec{Type: "job", Queue: arg(d, "queue"), Key: arg(d, "key"), IdempotencyKey: arg(d, "idempotency-key"),
		Payload: []byte(arg(d, "payload")), Delay: duration(arg(d, "delay")), ExpiresIn: duration(arg(d, "expires-in")),
		ExpiresAlways: arg(d, "expires-always") != "", Timeout: duration(arg(d, "timeout")), MaxAttempts: number(arg(d, "max-attempts")),
		Cost: number(arg(d, "cost")), Routed: byRouter, IdempotencyTTL: duration(arg(d, "ttl"))}
	if v := arg(d, "routed"); v != "" {
		spec.Routed = uint64(number(v))
	}
	if v := arg(d, "type"); v != "" {
		spec.Type = v
	}
	if v := arg(d, "retention"); v != "" {
		keep := duration(v)
		spec.Retention = &keep
	}
	spec.Then = thenOf(arg(d, "then"))
	if v := arg(d, "unique"); v != "" {
		spec.Unique = &task.Unique{Key: strings.TrimPrefix(v, "content"), States: task.Unfinished}
		spec.Unique.OnConflict, _ = task.ParseOnConflict(arg(d, "on-conflict"))
		for _, name := range list(d, "states") {
			state, _ := task.ParseState(name)
			spec.Unique.States |= task.StatesOf(state)
		}
	}
	if v := arg(d, "retry"); v != "" {
		spec.Retry = &task.Retry{Initial: duration(v), Factor: 2, Max: time.Hour}
	}
	spec.Headers = headersOf(arg(d, "headers"))
	spec.Priority, _ = task.ParsePriority(arg(d, "priority"))
	if v := arg(d, "request"); v != "" {
		n, at, _ := strings.Cut(v, "@") // when the producer named it, since 1970
		spec.RequestID = task.NewID(1, duration(at).Milliseconds(), uint64(number(n)))
	}
	if v := arg(d, "request-v4"); v != "" {
		spec.RequestID = task.ID{15: byte(number(v))}
	}
	var lines []string
	for range max(number(arg(d, "n")), 1) {
		a, err := s.Enqueue(spec)
		if err == nil && !slices.Contains(s.tasks, a.ID) {
			s.tasks = append(s.tasks, a.ID)
		}
		dup := ""
		if a.Duplicate {
			dup = " (duplicate)"
		}
		lines = append(lines, answer(err, "%s %s%s", s.name(a.ID), a.State, dup))
	}
	if len(lines) > 4 {
		return lines[0] + " … " + lines[len(lines)-1]
	}
	return strings.Join(lines, "\n")
}

func (s *story) claimStep(d *datadriven.TestData) string {
	c := engine.ClaimRequest{Max: number(arg(d, "max")), MaxBytes: number(arg(d, "max-bytes")), Lease: duration(arg(d, "lease")),
		Worker: arg(d, "worker"), ClaimKey: arg(d, "claim-key"), Types: list(d, "types"), Runs: arg(d, "runs") != "",
		Yields: arg(d, "yields") != ""}
	for _, q := range list(d, "queues") {
		name, weight, weighted := strings.Cut(q, "=")
		c.Weighted = weighted
		c.Queues = append(c.Queues, engine.Share{name, number(weight)})
	}
	if c.Queues == nil {
		c.Queues = []engine.Share{{Queue: "default"}}
	}
	got := s.Claim(c)
	if len(got) == 0 {
		return "nothing"
	}
	var b strings.Builder
	for _, t := range got {
		name := s.know(t.ID)
		if tokens := s.tokens[name]; len(tokens) == 0 || t.Exec.Fence > tokens[len(tokens)-1].Fence {
			s.tokens[name] = append(tokens, t.Token)
		}
		if arg(d, "brief") != "" {
			fmt.Fprintf(&b, "%s ", name)
			continue
		}
		fmt.Fprintf(&b, "%s %s/%s attempt %d of %d, fence %d, until +%s", name, t.Queue, t.Type, t.Exec.Attempt(), t.LastAttempt,
			t.Exec.Fence, t.Exec.Claim.Until.Sub(s.Now))
		if len(t.Checkpoint) > 0 {
			fmt.Fprintf(&b, ", checkpoint %q", t.Checkpoint)
		}
		b.WriteString(s.behind(t.Envelope))
		if d.HasArg("headers") {
			for _, name := range schema.SortedKeys(t.Headers) {
				fmt.Fprintf(&b, ", %s: %s", name, t.Headers[name])
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// headersOf parses name:value+name:value.
func headersOf(s string) map[string]string {
	if s == "" {
		return nil
	}
	headers := map[string]string{}
	for _, h := range strings.Split(s, "+") {
		name, value, _ := strings.Cut(h, ":")
		headers[name] = value
	}
	return headers
}

func (s *story) settleStep(d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	tokens := s.tokens[name]
	hold := engine.Hold{Namespace: "default", ID: s.id(name)}
	switch fence := number(arg(d, "fence")); {
	case arg(d, "token") == "foreign":
		hold.Token = task.Token{Epoch: 1, Fence: 1, Nonce: 42}
	case fence > 0:
		hold.Token = tokens[fence-1]
	default:
		hold.Token = tokens[len(tokens)-1]
	}
	if arg(d, "token") == "next" {
		hold.Token.Fence++
	}
	switch d.Cmd {
	case "extend":
		e := engine.Extension{Lease: duration(arg(d, "lease"))}
		if v := arg(d, "checkpoint"); v != "" {
			checkpoint := []byte(v)
			e.Checkpoint = &checkpoint
		}
		if v := arg(d, "progress"); v != "" {
			e.Progress = &engine.Progress{Percent: float64(number(v))}
		}
		e.Exact = d.HasArg("exact")
		until, err := engine.Run(s.World, func(r *engine.Round) (time.Duration, error) {
			until, err := engine.Extend(r, hold, e)
			return until.Sub(s.Now), err
		})
		return answer(err, "until +%s", until)
	}
	out, err := engine.Run(s.World, func(r *engine.Round) (engine.Settled, error) {
		switch d.Cmd {
		case "ack":
			if d.HasArg("late") {
				return engine.AckLate(r, hold, schema.Result{})
			}
			return engine.Ack(r, hold, schema.Result{Data: []byte(arg(d, "result"))})
		case "give-back":
			return engine.GiveBack(r, hold)
		case "release":
			if d.HasArg("late") {
				return engine.ReleaseLate(r, hold, duration(arg(d, "delay")))
			}
			return engine.Release(r, hold, duration(arg(d, "delay")))
		}
		f := engine.FailRequest{Failure: schema.Failure{Message: arg(d, "error")},
			Action: engine.FailAction(slices.Index([]string{"", "dead", "discard", "poison"}, arg(d, "outcome")))}
		if v := arg(d, "retry-in"); v != "" {
			in := duration(v)
			f.RetryIn = &in
		}
		return engine.Fail(r, hold, f)
	})
	next := ""
	if out.NextRunAt > s.Now {
		next = fmt.Sprintf(", next run in %s", out.NextRunAt.Sub(s.Now).Round(time.Second))
	}
	return answer(err, "%s%s%s", out.State, next, s.effects())
}

// effects shows the effects of the last round besides its answer.
func (s *story) effects() (out string) {
	for _, l := range s.Last.Lost {
		out += fmt.Sprintf("; %s lost at fence %d: %s", s.name(l.ID), l.Token.Fence, l.Reason)
	}
	for _, dead := range s.Last.Dead {
		out += fmt.Sprintf("; dead letter %s: %s, %q", s.name(dead.ID), dead.Exec.Reason, dead.Failure.Message)
	}
	return out
}

func (s *story) operateStep(d *datadriven.TestData) string {
	id := s.id(d.CmdArgs[0].Key)
	_, err := engine.Run(s.World, func(r *engine.Round) (struct{}, error) {
		do, action := s.operate(r, d, id)
		return struct{}{}, actions.OnTask(r, s.by, action, "default", id, do)
	})
	if err != nil {
		return answer(err, "")
	}
	v, err := query.Show(s.Store, "default", id)
	if err != nil {
		return answer(err, "")
	}
	return v.Exec.State.String() + s.effects()
}

// operate is an operator's verb on a task.
func (s *story) operate(r *engine.Round, d *datadriven.TestData, id task.ID) (do func() error, action task.Action) {
	switch d.Cmd {
	case "cancel":
		return func() error { return engine.Cancel(r, "default", id) }, task.TaskCancelled
	case "retry":
		return func() error { return engine.Retry(r, "default", id) }, task.TaskRetried
	case "run-now":
		return func() error { return engine.RunNow(r, "default", id) }, task.TaskRunNow
	case "discard":
		return func() error {
			x, err := r.Exec("default", id)
			if err != nil {
				return err
			}
			return engine.Discard(r, "default", id, x.EndedAt)
		}, task.TaskDiscarded
	}
	e := engine.Edit{MaxAttempts: number(arg(d, "max-attempts"))}
	e.Priority, _ = task.ParsePriority(arg(d, "priority"))
	if v := arg(d, "run-in"); v != "" {
		at := s.Now.Add(duration(v)).Time()
		e.RunAt = &at
	}
	if v := arg(d, "payload"); v != "" {
		payload := []byte(v)
		e.Payload = &payload
	}
	return func() error { return engine.Update(r, "default", id, e) }, task.TaskEdited
}

// queueStep creates or changes a queue if it is given settings, and shows it.
func (s *story) queueStep(d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	if len(d.CmdArgs) > 1 {
		set := task.DefaultSettings()
		for i, w := range list(d, "weights") {
			set.Weights[i] = number(w)
		}
		set.MaxLength = int64(number(arg(d, "max-length")))
		set.Rules = rules(d, "")
		set.PerKey.Rules = rules(d, "key-")
		if vip := rules(d, "vip-"); vip != (task.Rules{}) || d.HasArg("vip-weight") {
			set.Keys = map[string]task.KeyRules{"vip": {Rules: vip, Weight: number(arg(d, "vip-weight"))}}
		}
		if v := arg(d, "lease"); v != "" {
			set.Lease = duration(v)
		}
		if v := arg(d, "max-attempts"); v != "" {
			set.MaxAttempts = number(v)
		}
		set.KeyOrder = task.KeyOrder(arg(d, "key-order"))
		breakerRules(d, &set)
		config := task.QueueConfig{Settings: set, Paused: arg(d, "paused") != "", PausedReason: arg(d, "reason"), PausedAt: s.Now.Time()}
		for _, typ := range list(d, "hold-types") {
			config.Holds = append(config.Holds, task.Hold{Type: typ, Reason: arg(d, "reason"), At: s.Now.Time()})
		}
		for _, key := range list(d, "hold-keys") {
			config.Holds = append(config.Holds, task.Hold{Key: key, Reason: arg(d, "reason"), At: s.Now.Time()})
		}
		s.Configure(name, config)
	}
	i, err := engine.Run(s.World, func(r *engine.Round) (engine.QueueInfo, error) { return engine.DescribeQueue(r, "default", name) })
	if since := query.OldestReady(s.Store, "default", name); since != 0 {
		i.OldestReady = s.Now.Sub(since)
	}
	return answer(err, "scheduled %d, ready %v, claimed %d, retrying %d, held %d, dead %d, poisoned %d, oldest %s%s",
		i.Scheduled, i.Ready, i.Claimed, i.Retrying, i.Held, i.Dead, i.Poisoned, i.OldestReady, s.breakersOf(i))
}

// rules parses the rules of a queue, or with a prefix those of keys: a rate is written 5/10s.
func rules(d *datadriven.TestData, prefix string) (r task.Rules) {
	r.MaxRunning = number(arg(d, prefix+"max-running"))
	if limit, period, ok := strings.Cut(arg(d, prefix+"rate"), "/"); ok {
		r.Rate = task.Rate{Limit: number(limit), Period: duration(period), Burst: number(arg(d, prefix+"burst"))}
	}
	return r
}

// shareStep sets the shard's share of the namespace's quotas, or of a queue's limits, if given, and shows what is used of it.
func (s *story) shareStep(d *datadriven.TestData) string {
	share := task.Share{Version: s.Index + 1, Amounts: task.Unlimited}
	for i, name := range []string{"backlog", "bytes", "running"} {
		if d.HasArg(name) {
			*share.Each()[i] = int64(number(arg(d, name)))
		}
	}
	sets := d.HasArg("backlog") || d.HasArg("bytes") || d.HasArg("running")
	if d.HasArg("version") {
		share.Version = uint64(number(arg(d, "version"))) // #nosec G115 -- not negative
	}
	i, err := engine.Run(s.World, func(r *engine.Round) (task.Space, error) {
		of := task.SpaceName{Namespace: "default", Queue: arg(d, "queue")}
		if of.Queue != "" {
			share.Moved = math.MaxUint64
		}
		if sets {
			return engine.PutShare(r, of, share), nil
		}
		return engine.Space(r, of), nil
	})
	return answer(err, "backlog %s, bytes %s, running %s; ready %d, queues %d, refused %v", ofShare(i.Use.Backlog, i.Share.Backlog),
		ofShare(i.Use.Bytes, i.Share.Bytes), ofShare(i.Use.Running, i.Share.Running), i.Ready, i.Queues, i.Refused)
}

func ofShare(used, most int64) string {
	if most == task.NoLimit {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%d of %d", used, most)
}

// slotsStep moves the slots of keys away, or all slots of a queue, and those of others back, forgotten by the shards
// that had them; or it shows how long the queue's keys, or once keys, must still be looked up here.
func (s *story) slotsStep(d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	if d.HasArg("keys") {
		until, err := query.KeysUntil(s.Store, "default", name)
		return answer(err, "keys for %s", max(until, s.Now).Sub(s.Now))
	}
	if d.HasArg("once") {
		until, err := once.LastEnd(s.Store, "default", name, task.AllSlots)
		return answer(err, "once keys for %s", max(until, s.Now).Sub(s.Now))
	}
	var gone task.SlotSet
	for _, key := range list(d, "gone") {
		gone |= 1 << task.KeySlot(key)
	}
	if arg(d, "gone") == "all" {
		gone = task.AllSlots
	}
	s.CloseSlots(name, gone)
	if d.HasArg("forgotten") {
		s.ForgetMoves(name)
	}
	return fmt.Sprintf("%d of %d slots are here", task.SlotCount-gone.Len(), task.SlotCount)
}

func (s *story) show(name string) string {
	v, err := query.Show(s.Store, "default", s.id(name))
	if err != nil {
		return answer(err, "")
	}
	x := v.Exec
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s (%s) %s %s/%s, max attempts %d, failures %d, crashes %d, releases %d, snoozes %d\n", s.name(v.ID), x.State,
		x.State.Status(), x.Reason, v.Queue, v.Type, v.MaxAttempts(), x.Failures, x.Crashes, x.Releases, x.Snoozes)
	if u := x.Unique; u != nil {
		fmt.Fprintf(&b, "  unique %q while %s, else %s", u.Key, u.States, u.OnConflict)
		if v.WaitsFor != (task.ID{}) {
			fmt.Fprintf(&b, ", waits for %s", s.name(v.WaitsFor))
		}
		b.WriteByte('\n')
	}
	if v.MovedFrom != (task.ID{}) {
		fmt.Fprintf(&b, "  moved from %s\n", s.name(v.MovedFrom))
	}
	if x.MovedTo != (task.ID{}) {
		fmt.Fprintf(&b, "  moved to %s\n", s.name(x.MovedTo))
	}
	if len(v.Payload)+len(v.Result.Data) > 0 {
		fmt.Fprintf(&b, "  payload %q, result %q\n", v.Payload, v.Result.Data)
	}
	b.WriteString(s.followers(v))
	for _, a := range v.Attempts {
		fmt.Fprintf(&b, "  attempt %d, fence %d, %q, %s after %s, waited %s: %s %s\n", a.Number, a.Fence, a.Worker, a.Outcome,
			a.EndedAt.Sub(a.StartedAt), a.Waited, a.Then, a.Failure.Message)
	}
	return b.String()
}

func (s *story) list(d *datadriven.TestData) string {
	f := query.Filter{Queue: arg(d, "queue"), Type: arg(d, "type"), Key: arg(d, "key"), Error: arg(d, "error"), Text: arg(d, "q")}
	for _, name := range list(d, "states") {
		state, _ := task.ParseState(name)
		f.States = append(f.States, state)
	}
	limit := max(number(arg(d, "limit")), 1)
	var names []string
	var cursor []byte
	for {
		p, err := query.List(s.Store, "default", f, cursor, limit)
		if err != nil {
			return answer(err, "")
		}
		for _, v := range p.Tasks {
			names = append(names, s.name(v.ID))
		}
		if cursor = p.Next; cursor == nil {
			return strings.Join(names, " ") + "\n"
		}
	}
}

// archive shows the dead letters that wait for the archive, and removes them as if they had been archived.
func (s *story) archive(written bool) string {
	views := query.ToArchive(s.Store, "default", 100)
	if len(views) == 0 {
		return "nothing"
	}
	var names []string
	for _, v := range views {
		names = append(names, s.name(v.ID))
		if written {
			s.Round(func(r *engine.Round) { engine.ForgetArchived(r, "default", v.ID, v.Exec.EndedAt) })
		}
	}
	return strings.Join(names, " ")
}

func (s *story) groups(d *datadriven.TestData) string {
	queue, within := "", task.Scope{}
	for _, a := range d.CmdArgs {
		if a.Key == "within" {
			within.Queues = a.Vals
		} else {
			queue = a.Key
		}
	}
	groups, partial := query.GroupDead(s.Store, "default", queue, within, task.Dead, s.Now)
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "%d %s %q, newest %s", g.Count, g.Type, g.Message, s.name(g.Sample))
		if queue == "" {
			fmt.Fprintf(&b, ", in %d, most %s", len(g.Queues), g.Most())
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "partial %t", partial)
	return b.String()
}

func (s *story) id(name string) task.ID {
	n := number(strings.TrimPrefix(name, "t"))
	if n < 1 || n > len(s.tasks) {
		return task.ID{0xff}
	}
	return s.tasks[n-1]
}

func (s *story) name(id task.ID) string { return "t" + strconv.Itoa(slices.Index(s.tasks, id)+1) }

func answer(err error, format string, args ...any) string {
	if err == nil {
		return fmt.Sprintf(format, args...)
	}
	var e *task.Error
	if errors.As(err, &e) {
		message := uuids.ReplaceAllString(e.Message, "ID")
		if e.Holder != "" {
			message += "; held by " + e.Holder
		}
		if e.Reason != "" {
			return fmt.Sprintf("refused: %s/%s: %s", e.Code, e.Reason, message)
		}
		return fmt.Sprintf("refused: %s: %s", e.Code, message)
	}
	return "error: " + err.Error()
}

func arg(d *datadriven.TestData, key string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			if len(a.Vals) == 0 {
				return "yes"
			}
			return strings.Join(a.Vals, ",")
		}
	}
	return ""
}

func list(d *datadriven.TestData, key string) []string {
	v := arg(d, key)
	if v == "" {
		return nil
	}
	parts := strings.Split(v, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

func duration(s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

func number(s string) int {
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}
