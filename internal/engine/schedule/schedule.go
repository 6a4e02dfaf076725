package schedule

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/cron"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Policy implements schedules.
var Policy = engine.Policy{
	Delivered: delivered, Check: check,
	Due: map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnTick: tick, schema.OnDeletion: forgetDeletion},
}

// A schedule lives in one shard, its home, wherever its task's queue moves. Its plan is the definition, written when
// operators change it. Its progress is the state, written at each tick, in the log entry that creates the tick's task
// and adds it to the history. So no tick is lost, and none creates two tasks.

// plan is the definition of a schedule.
type plan struct {
	task.Schedule
	id        task.ID // unique even among successive schedules of the same name
	version   uint64
	createdAt store.Time
	updatedAt store.Time
}

// progress is the state of a schedule.
type progress struct {
	id        task.ID    // of its plan
	began     store.Time // the start of intervals
	planned   store.Time // the next tick; 0: there is none
	fires     store.Time // planned plus jitter; 0: there is none, or it is paused
	onTime    store.Time // when the last tick fired that was not missed
	catchUpTo store.Time // missed ticks up to here are fired one by one
	seq       uint64     // of the newest entry in the history
	paused    store.Time // since when; 0: it is not paused
	reason    string     // of the pause
	by        string     // who paused it
}

// View describes a schedule.
type View struct {
	task.Schedule
	ID        task.ID
	CreatedAt store.Time
	UpdatedAt store.Time
	Next      store.Time   // when the next tick fires; 0: never, or it is paused
	Planned   store.Time   // the next tick, without its jitter
	Coming    []store.Time // up to comingTicks after it; not in lists
	PausedAt  store.Time   // 0: it is not paused
	Reason    string       // of the pause
	PausedBy  string       // "": unknown
	Last      *schema.Tick // the newest entry of its history; nil: it has none
}

// PutCall describes how to put a schedule.
type PutCall struct {
	Schedule task.Schedule // with defaults filled in
	ID       task.ID       // of the schedule if it is new; of this shard
	Version  uint64        // from the system shard
	Create   bool          // refuse if a different one exists
	DryRun   bool          // change nothing
	IfETag   string        // the tag of the version on which the change is based; "": any
}

// ETag returns the tag of what Put can change.
func (v *View) ETag() string { return v.Edited().ETag() }

// checkETag returns an error if the schedule has changed since the version on which the call is based. Old is nil if there is none.
func (put *PutCall) checkETag(old *plan) error {
	switch {
	case put.IfETag == "", old != nil && old.Equal(&put.Schedule):
		return nil
	case old == nil:
		return task.Changed("the schedule no longer exists")
	}
	return old.Edited().Check(put.IfETag)
}

// Change is the effect of putting a schedule.
type Change string

// Effects of putting a schedule.
const (
	Created   Change = "created"
	Updated   Change = "updated"
	Unchanged Change = "unchanged"
)

// PutDone is the answer to putting a schedule.
type PutDone struct {
	Change Change
	Before *View // nil: there was none
	After  *View
}

// ErrRaced means that a later call has overtaken this one and changed or deleted the schedule. The router tries again
// with a newer version; no caller sees this error.
var ErrRaced error = &task.Error{Code: task.CodeUnavailable, Reason: "schedule_raced", RetryAfter: 100 * time.Millisecond,
	Message: "the schedule was changed by another call at the same time"}

// CheckSpec returns an error that names field, value and rule if a schedule with defaults filled in is invalid.
func CheckSpec(s *task.Schedule, l task.Limits) error {
	if err := s.Check(l); err != nil {
		return err
	}
	if _, err := whenOf(s); err != nil {
		return err
	}
	if err := cron.Check(s.Cron); err != nil {
		return task.Invalid("cron", "%q: %v", task.Cut(s.Cron, 64), err)
	}
	return nil
}

// Words describes in English when a schedule is due, in its time zone.
func Words(s *task.Schedule) string {
	w, err := whenOf(s)
	if err != nil { // it was validated when it was put
		return ""
	}
	return w.Words()
}

// whenOf parses the rule of a schedule.
func whenOf(s *task.Schedule) (w cron.When, err error) {
	if s.Every != 0 {
		if w, err = cron.Every(s.Every); err != nil {
			return w, task.Invalid("every", "%v", err)
		}
		return w, nil
	}
	if err := cron.CheckZone(s.TimeZone); err != nil {
		return w, task.Invalid("time_zone", "%v", err)
	}
	if w, err = cron.Parse(s.Cron, s.TimeZone); err != nil {
		return w, task.Invalid("cron", "%q: %v", task.Cut(s.Cron, 64), err)
	}
	return w, nil
}

// rule returns the rule of a plan, which was validated when it was put.
func (p *plan) rule() cron.When {
	return schema.Must(whenOf(&p.Schedule))
}

// Put creates or replaces a schedule, or for a dry run reports what that would do. If its times do not change, neither
// does its next tick. A paused schedule stays paused.
//
// Errors: invalid_argument; conflict if Create is set and a different one exists; ErrRaced; that of IfETag.
func Put(r *engine.Round, ns string, put PutCall) (done PutDone, err error) {
	s := &put.Schedule
	if err := CheckSpec(s, r.Leader().Limits()); err != nil {
		return done, err
	}
	old, c, exists := schedule(r, ns, s.Name)
	switch {
	case put.DryRun:
	case exists && old.version == put.Version: // a repeat of this call
		return old.wasPut(viewAhead(r, ns, old, c)), nil
	case exists && old.version > put.Version || readDeletion(r, ns, s.Name).version >= put.Version:
		return done, ErrRaced
	}
	if exists {
		done.Before = viewAhead(r, ns, old, c)
	}
	if exists && put.Create && !old.Equal(s) {
		return done, &task.Error{Code: task.CodeConflict, Field: "name", Message: fmt.Sprintf("name: another schedule %q exists", s.Name)}
	}
	if err := put.checkETag(old); err != nil {
		return done, err
	}
	p := &plan{Schedule: *s, id: put.ID, version: put.Version, createdAt: r.Now(), updatedAt: r.Now()}
	done.Change = Created
	if exists {
		p.id, p.createdAt, done.Change = old.id, old.createdAt, Updated
		p.updatedAt = max(p.updatedAt, p.createdAt+1) // calls of one round have one time: see wasPut
		if old.Equal(s) {
			done.Change, done.After = Unchanged, done.Before
			return done, nil
		}
	}
	next := &progress{id: p.id}
	if exists {
		kept := *c
		next = &kept
	}
	if !exists || old.Cron != s.Cron || old.Every != s.Every || old.TimeZone != s.TimeZone || old.Jitter != s.Jitter {
		if exists && !put.DryRun {
			decideDue(r, ns, old, next)
		}
		next.began, next.catchUpTo = r.Now().Add(time.Second-1)/1e6*1e6, 0 // rounded up to a second, so that no interval is cut short
		next.planNext(p, p.rule(), r.Now())
		if next.paused != 0 {
			next.fires = 0
		}
	}
	done.After = viewAhead(r, ns, p, next)
	if put.DryRun {
		return done, nil
	}
	r.Tx().Set(schema.NameKey(ns, schema.TablePlan, s.Name), p.encode())
	setProgress(r, ns, s.Name, c, next)
	return done, nil
}

// decideDue decides the ticks that are due by a rule that is about to change: those whose jitter is not over fire now.
// If there are very many, the newest count as missed.
func decideDue(r *engine.Round, ns string, p *plan, c *progress) {
	w := p.rule()
	for range ticksInPass {
		if c.paused != 0 || c.planned == 0 || c.planned > r.Now() {
			break
		}
		tickDue(r, ns, p, c, w)
	}
	reason := SkippedMissed
	if c.paused != 0 {
		reason = SkippedPaused
	}
	if c.planned != 0 {
		skip(r, ns, p, c, w, c.planned, r.Now(), reason)
	}
}

// wasPut answers a call that is repeated because its first answer was lost.
func (p *plan) wasPut(now *View) PutDone {
	done := PutDone{Change: Updated, After: now}
	if p.createdAt == p.updatedAt {
		done.Change = Created
	}
	return done
}

// planNext sets the next tick: the first one after a time.
func (c *progress) planNext(p *plan, w cron.When, after store.Time) {
	c.planned, c.fires = 0, 0
	if next := w.Next(c.began.Time(), after.Time()); !next.IsZero() {
		c.planned = store.TimeOf(next)
		c.fires = c.planned.Add(p.jitterOf(c.planned))
	}
}

// jitterOf returns how much later than planned a tick fires.
func (p *plan) jitterOf(planned store.Time) time.Duration {
	return time.Duration(task.Chance(p.id, uint64(planned)) * float64(p.Jitter)).Truncate(time.Millisecond)
}

// setProgress writes the progress of a schedule, and the deadline of its next tick.
func setProgress(r *engine.Round, ns, name string, from, to *progress) {
	if from != nil && from.fires != 0 && from.fires != to.fires {
		r.Tx().Delete(schema.DeadlineKey(from.fires, schema.OnTick, ns, []byte(name)))
	}
	if to.fires != 0 {
		r.SetDeadline(to.fires, schema.OnTick, ns, []byte(name))
	}
	r.Tx().Set(schema.NameKey(ns, schema.TableProgress, name), to.encode())
}

// schedule reads a schedule.
func schedule(r *engine.Round, ns, name string) (*plan, *progress, bool) {
	return readSchedule(r.Tx(), ns, name)
}

func readSchedule(from store.Reader, ns, name string) (*plan, *progress, bool) {
	row, ok := from.Get(schema.NameKey(ns, schema.TablePlan, name))
	if !ok {
		return nil, nil, false
	}
	p, c := decodeSchedule(from, ns, row)
	return p, c, true
}

// decodeSchedule decodes the row of a plan, and reads its progress.
func decodeSchedule(from store.Reader, ns string, row []byte) (*plan, *progress) {
	p := schema.Must(decodePlan(row))
	row, ok := from.Get(schema.NameKey(ns, schema.TableProgress, p.Name))
	if !ok {
		schema.Damaged(fmt.Errorf("schedule %q has no course", p.Name))
	}
	return p, schema.Must(decodeProgress(row))
}

// readDeletion reads the record of a recently deleted schedule of this name; the zero value: there is none.
func readDeletion(r *engine.Round, ns, name string) deletion {
	d, _ := schema.Read(r.Tx(), schema.NameKey(ns, schema.TableDeletion, name), decodeDeletion)
	return d
}

// deletionKept is how long a deleted schedule is remembered: longer than an earlier call can be on its way.
const deletionKept = time.Hour

// Delete removes a schedule with its history, and reports whether there was one. Tasks of its ticks stay. Calls with an
// earlier version can't recreate the schedule, even if they arrive later.
func Delete(r *engine.Round, ns, name string, version uint64) (existed bool, err error) {
	p, c, exists := schedule(r, ns, name)
	if exists && p.version >= version {
		return false, ErrRaced
	}
	before := readDeletion(r, ns, name)
	if before.version == version { // a repeat of this call
		return before.existed, nil
	}
	if before.version < version {
		if before.until != 0 {
			r.Tx().Delete(schema.DeadlineKey(before.until, schema.OnDeletion, ns, []byte(name)))
		}
		g := deletion{version: version, existed: exists, until: r.Now().Add(deletionKept)}
		r.Tx().Set(schema.NameKey(ns, schema.TableDeletion, name), g.encode())
		r.SetDeadline(g.until, schema.OnDeletion, ns, []byte(name))
	}
	if !exists {
		return false, nil
	}
	if c.fires != 0 {
		r.Tx().Delete(schema.DeadlineKey(c.fires, schema.OnTick, ns, []byte(name)))
	}
	for seq := oldestTick(c.seq); seq <= c.seq; seq++ {
		r.Tx().Delete(schema.TickKey(ns, name, seq))
	}
	r.Tx().Delete(schema.NameKey(ns, schema.TablePlan, name))
	r.Tx().Delete(schema.NameKey(ns, schema.TableProgress, name))
	return true, nil
}

// forgetDeletion deletes the record of a deleted schedule.
func forgetDeletion(r *engine.Round, d schema.Deadline) {
	if name := string(d.Rest); readDeletion(r, d.Namespace, name).until == d.At {
		r.Tx().Delete(schema.NameKey(d.Namespace, schema.TableDeletion, name))
	}
}

// Pause stops a schedule: its ticks create no tasks until it is resumed.
func Pause(r *engine.Round, ns, name, reason, by string) (*View, error) {
	p, c, ok := schedule(r, ns, name)
	if !ok {
		return nil, task.NotFound("schedule", name)
	}
	if c.paused == 0 || c.reason != reason {
		to := *c
		if to.paused == 0 {
			to.paused = r.Now()
		}
		to.reason, to.by, to.fires, to.catchUpTo = reason, by, 0, 0
		setProgress(r, ns, name, c, &to)
		c = &to
	}
	return viewAhead(r, ns, p, c), nil
}

// Resume makes ticks fire again. Those of the time of the pause are recorded as skipped, with those that were due
// before it and had not fired.
func Resume(r *engine.Round, ns, name string) (*View, error) {
	p, c, ok := schedule(r, ns, name)
	if !ok {
		return nil, task.NotFound("schedule", name)
	}
	if c.paused != 0 {
		to, w := *c, p.rule()
		if c.planned != 0 {
			skip(r, ns, p, &to, w, c.planned, r.Now(), SkippedPaused)
		}
		to.paused, to.reason, to.by = 0, "", ""
		to.planNext(p, w, r.Now())
		setProgress(r, ns, name, c, &to)
		c = &to
	}
	return viewAhead(r, ns, p, c), nil
}

// Show reads a schedule.
func Show(from store.Reader, ns, name string) (*View, error) {
	p, c, ok := readSchedule(from, ns, name)
	if !ok {
		return nil, task.NotFound("schedule", name)
	}
	return view(from, ns, p, c).ahead(p, c), nil
}

// comingTicks is how many ticks after the next one are shown.
const comingTicks = 4

// ahead adds the ticks after the next one.
func (v *View) ahead(p *plan, c *progress) *View {
	w := p.rule()
	for at := v.Planned.Time(); v.Planned != 0 && len(v.Coming) < comingTicks; {
		if at = w.Next(c.began.Time(), at); at.IsZero() {
			break
		}
		v.Coming = append(v.Coming, store.TimeOf(at))
	}
	return v
}

// Page is a page of a list. It may end early, but is empty only at the end.
type Page struct {
	Schedules []*View
	More      bool
}

// List reads up to limit schedules after a name, sorted by name, or roughly 8 MiB of them. Schedules whose tasks are
// outside the scope are skipped.
func List(from store.Reader, ns string, s task.Scope, behind string, limit int) (page Page) {
	lo, hi := schema.TableBounds(ns, schema.TablePlan)
	if behind != "" {
		lo = append(schema.NameKey(ns, schema.TablePlan, behind), 0)
	}
	m := schema.Count(from)
	m.Scan(lo, hi, func(_, row []byte) bool {
		if page.More = len(page.Schedules) == limit || m.Full() && len(page.Schedules) > 0; page.More {
			return false
		}
		if p, c := decodeSchedule(m, ns, row); s.Sees(p.Task.Queue) {
			page.Schedules = append(page.Schedules, view(m, ns, p, c))
		}
		return true
	})
	return page
}

func viewAhead(r *engine.Round, ns string, p *plan, c *progress) *View {
	return view(r.Tx(), ns, p, c).ahead(p, c)
}

func view(from store.Reader, ns string, p *plan, c *progress) *View {
	v := &View{Schedule: p.Schedule, ID: p.id, CreatedAt: p.createdAt, UpdatedAt: p.updatedAt, Next: c.fires,
		PausedAt: c.paused, Reason: c.reason, PausedBy: c.by}
	if c.paused == 0 {
		v.Planned = c.planned
	}
	if row, ok := from.Get(schema.TickKey(ns, p.Name, c.seq)); ok {
		t := schema.Must(decodeTick(c.seq, row))
		v.Last = t
	}
	return v
}

// Within returns a not-found error for a schedule whose tasks are outside a scope, but none if the schedule does not exist.
func Within(r *engine.Round, s task.Scope, ns, name string) error {
	if s.All() {
		return nil
	}
	if p, _, ok := schedule(r, ns, name); ok && !s.Sees(p.Task.Queue) {
		return task.NotFound("schedule", name)
	}
	return nil
}
