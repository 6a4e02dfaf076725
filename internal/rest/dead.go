package rest

import (
	"math"
	"strconv"
	"strings"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var deadRoutes = []Route{
	{"GET", "/api/v1/queues/{queue}/dead", "OperatorService/ListDead", func(x *exchange) error { return listDead(x, false) }},
	{"GET", "/api/v1/queues/{queue}/poisoned", "OperatorService/ListPoisoned", func(x *exchange) error { return listDead(x, true) }},
	{"GET", "/api/v1/dead", "OperatorService/GroupDead", func(x *exchange) error { return groupAllDead(x, false) }},
	{"GET", "/api/v1/poisoned", "OperatorService/GroupDead", func(x *exchange) error { return groupAllDead(x, true) }},
	{"POST", "/api/v1/queues/{queue}/dead/replay", "OperatorService/ReplayDead", func(x *exchange) error { return replay(x, false) }},
	{"POST", "/api/v1/queues/{queue}/poisoned/replay", "OperatorService/ReplayDead", func(x *exchange) error { return replay(x, true) }},
	{"POST", "/api/v1/queues/{queue}/dead/discard", "OperatorService/DiscardDead", func(x *exchange) error { return discard(x, false) }},
	{"POST", "/api/v1/queues/{queue}/poisoned/discard", "OperatorService/DiscardDead", func(x *exchange) error { return discard(x, true) }},
	{"GET", "/api/v1/archive", "OperatorService/ListArchive", listArchive},
	{"POST", "/api/v1/archive/restore", "OperatorService/RestoreArchive", restoreArchive},
}

func listDead(x *exchange, poisoned bool) error {
	q, err := x.query(append([]string{"limit", "cursor", "group_by"}, filterNames...)...)
	if err != nil {
		return err
	}
	queue := x.r.PathValue("queue")
	switch by := q.Get("group_by"); {
	case by == "error" && len(q) > 1:
		return task.Invalid("group_by", "counts all dead letters of the queue: it takes no other parameter")
	case by == "error":
		return groupDead(x, queue, poisoned)
	case q.Has("group_by"):
		return task.Invalid("group_by", "%q is not error", task.Cut(by, 64))
	}
	f, err := filterText(q)
	if err != nil {
		return err
	}
	f.Queue = queue
	limit, err := limitText(q)
	if err != nil {
		return err
	}
	if poisoned {
		got, err := x.API.Operator.ListPoisoned(x.ctx, &pawlv1.ListPoisonedRequest{Filter: f, Cursor: q.Get("cursor"), Limit: limit})
		if err == nil {
			x.tasks(got)
		}
		return err
	}
	got, err := x.API.Operator.ListDead(x.ctx, &pawlv1.ListDeadRequest{Filter: f, Cursor: q.Get("cursor"), Limit: limit})
	if err == nil {
		x.tasks(got)
	}
	return err
}

// groupAllDead is that of all queues. There is no list of them: tasks are listed by GET /api/v1/tasks.
func groupAllDead(x *exchange, poisoned bool) error {
	q, err := x.query("group_by")
	if err != nil {
		return err
	}
	if by := q.Get("group_by"); by != "error" {
		return task.Invalid("group_by", "%q is not error, by which alone dead letters of all queues are counted", task.Cut(by, 64))
	}
	return groupDead(x, "", poisoned)
}

func groupDead(x *exchange, queue string, poisoned bool) error {
	got, err := x.API.Operator.GroupDead(x.ctx, &pawlv1.GroupDeadRequest{Queue: queue, Poisoned: poisoned})
	if err != nil {
		return err
	}
	x.open('{')
	x.within("groups", '[')
	for _, d := range got.GetGroups() {
		x.open('{')
		x.str("fingerprint", d.GetFingerprint())
		x.str("type", d.GetType())
		x.str("message", d.GetMessage())
		x.num("count", d.GetCount())
		x.time("first_at", d.GetFirstAt())
		x.time("last_at", d.GetLastAt())
		x.str("sample_task_id", d.GetSampleTaskId())
		x.num("queues", int64(d.GetQueues()))
		x.str("queue", d.GetQueue())
		x.nums("trend", d.GetTrend())
		x.close('}')
	}
	x.close(']')
	x.boolean("partial", got.GetPartial())
	x.close('}')
	return nil
}

// bulkFields are what a bulk call on dead letters says of which it means, and why.
type bulkFields struct {
	taskIDs []string
	filter  *pawlv1.Filter
	max     int64
	dryRun  bool
	reason  string
}

// selected reads one field of a bulk call.
func (r *jsonReader) selected(s *bulkFields, name string) (err error) {
	switch name {
	case "task_ids":
		s.taskIDs, err = r.strs(name, contract.MaxSelected)
	case "filter":
		s.filter, err = r.filter(name)
	case "max":
		s.max, err = r.integer(name, 1, math.MaxInt64)
	case "dry_run":
		err = r.boolean(&s.dryRun, name)
	case "reason":
		err = r.setStr(&s.reason, name)
	default:
		err = unknown("", name)
	}
	return err
}

func replay(x *exchange, poisoned bool) error {
	var s bulkFields
	var rate float64
	err := x.alone(func(r *jsonReader, name string) (err error) {
		if name == "rate" {
			rate, err = r.rate(name)
			return err
		}
		return r.selected(&s, name)
	})
	if err != nil {
		return err
	}
	x.patience(bulkTime)
	got, err := x.API.Operator.ReplayDead(x.ctx, &pawlv1.ReplayDeadRequest{Queue: x.r.PathValue("queue"), Poisoned: poisoned,
		TaskIds: s.taskIDs, Filter: s.filter, Max: s.max, Rate: rate, DryRun: s.dryRun, Reason: s.reason})
	if err != nil {
		return err
	}
	x.bulkAnswer(got.GetMatched(), "replayed", got.GetReplayed())
	return nil
}

func discard(x *exchange, poisoned bool) error {
	var s bulkFields
	if err := x.alone(func(r *jsonReader, name string) error { return r.selected(&s, name) }); err != nil {
		return err
	}
	x.patience(bulkTime)
	got, err := x.API.Operator.DiscardDead(x.ctx, &pawlv1.DiscardDeadRequest{Queue: x.r.PathValue("queue"), Poisoned: poisoned,
		TaskIds: s.taskIDs, Filter: s.filter, Max: s.max, DryRun: s.dryRun, Reason: s.reason})
	if err != nil {
		return err
	}
	x.bulkAnswer(got.GetMatched(), "discarded", got.GetDiscarded())
	return nil
}

func (x *exchange) bulkAnswer(matched int64, done string, n int64) {
	x.open('{')
	x.num("matched", matched)
	x.num(done, n)
	x.close('}')
}

// maxConditions is more than a filter may have on fields of the payload: the gateway says so of nine.
const maxConditions = 9

// filter reads a filter in a body: the same names as in a query.
func (r *jsonReader) filter(path string) (*pawlv1.Filter, error) {
	f := &pawlv1.Filter{}
	texts := map[string]*string{"queue": &f.Queue, "type": &f.Type, "tag": &f.Tag, "key": &f.Key, "worker": &f.Worker, "error": &f.Error, "fingerprint": &f.Fingerprint,
		"operation": &f.Operation, "q": &f.Q}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "state":
			f.States, err = r.states(at)
		case "payload":
			var conditions []string
			if conditions, err = r.strs(at, maxConditions); err == nil {
				f.Payload, err = payloadFields(conditions)
			}
		case "created_after":
			f.CreatedAfter, err = r.time(at)
		case "created_before":
			f.CreatedBefore, err = r.time(at)
		default:
			to := texts[name]
			if to == nil {
				return unknown(path, name)
			}
			err = r.setStr(to, at)
		}
		return err
	})
	return f, err
}

// states reads one state or a list of them.
func (r *jsonReader) states(path string) (states []pawlv1.State, err error) {
	one := func() error {
		name, err := r.str(path)
		if err != nil {
			return err
		}
		s, err := stateText(path, name)
		states = append(states, s)
		return err
	}
	if r.json.PeekKind() == '"' {
		err = one()
		return states, err
	}
	err = r.items(path, func(i int) error {
		if i == len(task.States) {
			return task.Invalid(path, "more than %d states", len(task.States))
		}
		return one()
	})
	return states, err
}

// rate reads tasks a second: "50/s", "30/m", "1000/h". Other times, as of 100/10s, are what people write: the command line reads them.
func (r *jsonReader) rate(path string) (float64, error) {
	s, err := r.str(path)
	if err != nil {
		return 0, err
	}
	number, per, _ := strings.Cut(s, "/")
	f, err := strconv.ParseFloat(number, 64)
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[per]
	switch {
	case err != nil || seconds == 0 || !(f > 0):
		return 0, task.Invalid(path, `%q is not a rate such as "50/s", "30/m" or "1000/h": a number above 0, in a second, a minute or an hour`, task.Cut(s, 64))
	case f/seconds > contract.MaxRate:
		return 0, task.Invalid(path, "%q is more than %d/s", task.Cut(s, 64), int(contract.MaxRate))
	}
	return f / seconds, nil
}

func listArchive(x *exchange) error {
	q, err := x.query("queue", "limit", "cursor")
	if err != nil {
		return err
	}
	req := &pawlv1.ListArchiveRequest{Queue: q.Get("queue"), Cursor: q.Get("cursor")}
	if req.Limit, err = limitText(q); err != nil {
		return err
	}
	got, err := x.API.Operator.ListArchive(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.within("items", '[')
	for _, a := range got.GetItems() {
		x.open('{')
		x.str("place", a.GetPlace())
		x.time("archived_at", a.GetArchivedAt())
		x.str("cause", a.GetCause())
		x.name("task")
		x.task(a.GetTask())
		x.close('}')
	}
	x.close(']')
	x.str("next_cursor", got.GetNextCursor())
	x.close('}')
	return nil
}

func restoreArchive(x *exchange) error {
	req := &pawlv1.RestoreArchiveRequest{}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		if name != "places" {
			return unknown("", name)
		}
		req.Places, err = r.strs(name, contract.MaxSelected)
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.API.Operator.RestoreArchive(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.within("results", '[')
	for _, t := range got.GetResults() {
		x.open('{')
		x.str("place", t.GetPlace())
		if t.GetError() != nil {
			x.itemError(t.GetError())
		} else {
			x.str("task_id", t.GetTaskId())
			x.boolean("duplicate", t.GetDuplicate())
		}
		x.close('}')
	}
	x.close(']')
	x.close('}')
	return nil
}
