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

// Policy makes tasks at the times of schedules.
var Policy = engine.Policy{
	Delivered: delivered, Check: check,
	Due: map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnTick: tick, schema.OnGone: endGone},
}

// A schedule lives in one shard, its home, whatever becomes of its task's queue. A plan is what operators say of it, written
// when they change it. A course is where it is, written at each tick, in the entry that makes the tick's task and notes it in the
// history. So no tick is lost, and none makes two tasks.

// plan is a schedule as it is meant.
type plan struct {
	task.Schedule
	id        task.ID // of this schedule; another of its name has another
	version   uint64
	createdAt store.Time
	updatedAt store.Time
}

// course is where a schedule is.
type course struct {
	id      task.ID    // of its plan
	began   store.Time // what intervals count from
	planned store.Time // the next tick; 0: there is none, or it is paused
	fires   store.Time // planned and its jitter
	chasing store.Time // missed ticks up to here are fired one by one
	seq     uint64     // of the newest entry in the history
	paused  store.Time // since when; 0: it is not
	reason  string     // of the pause
	by      string     // who paused it
}

// View is everything known of a schedule.
type View struct {
	task.Schedule
	ID        task.ID
	CreatedAt store.Time
	UpdatedAt store.Time
	Next      store.Time   // when the next tick fires; 0: never, or not while it is paused
	Planned   store.Time   // the next tick, without its jitter
	Coming    []store.Time // up to comingTicks behind it; not in lists
	PausedAt  store.Time   // 0: it is not paused
	Reason    string       // of the pause
	PausedBy  string       // "": not known
	Last      *schema.Tick // the newest entry of its history; nil: it has none
}

// PutCall is how a schedule is put.
type PutCall struct {
	Schedule task.Schedule // filled
	ID       task.ID       // of the schedule if it is new; its shard is this one
	Version  uint64        // from the system shard
	Create   bool          // refuse if there is another one
	DryRun   bool          // change nothing
	IfETag   string        // the tag of what the schedule was made from; "": whatever is there
}

// ETag is the tag of what PutSchedule can change.
func (v *View) ETag() string { return v.Edited().ETag() }

// checkETag refuses a put that was made from another schedule than the one there is; old is nil if there is none.
func (put *PutCall) checkETag(old *plan) error {
	switch {
	case put.IfETag == "", old != nil && old.Equal(&put.Schedule):
		return nil
	case old == nil:
		return task.Changed("there is no such schedule any more")
	}
	return old.Edited().Check(put.IfETag)
}

// Change is what putting a schedule does.
type Change string

// What putting a schedule can do.
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

// ErrRaced: the schedule was changed or deleted by a call that came later and was faster. The router comes again with a
// newer version; no caller sees it.
var ErrRaced error = &task.Error{Code: task.CodeUnavailable, Reason: "schedule_raced", RetryAfter: 100 * time.Millisecond,
	Message: "the schedule was changed by another call at this moment"}

// CheckSpec refuses a filled schedule outside the rules, naming field, value and rule.
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

// Words says in English when a schedule is due, by the clock of its time zone.
func Words(s *task.Schedule) string {
	w, err := whenOf(s)
	if err != nil { // it was checked when it was put
		return ""
	}
	return w.Words()
}

// whenOf reads the rule of a schedule.
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

// rule is the rule of a plan, which was checked when it was put.
func (p *plan) rule() cron.When {
	w, err := whenOf(&p.Schedule)
	schema.Must(err)
	return w
}

// Put makes a schedule what a caller says, or tells what that would do. A schedule that keeps its times keeps its next
// tick, and one that is paused stays so.
//
// Errors: invalid_argument; conflict if it is to be created and exists; ErrScheduleRaced.
func Put(r *engine.Round, ns string, put PutCall) (done PutDone, err error) {
	s := &put.Schedule
	if err := CheckSpec(s, r.Limits()); err != nil {
		return done, err
	}
	old, c, exists := schedule(r, ns, s.Name)
	switch {
	case put.DryRun:
	case exists && old.version == put.Version: // this call was here before
		return old.wasPut(viewAhead(r, ns, old, c)), nil
	case exists && old.version > put.Version || readGone(r, ns, s.Name).version >= put.Version:
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
		if old.Equal(s) {
			done.Change, done.After = Unchanged, done.Before
			return done, nil
		}
	}
	next := &course{id: p.id}
	if exists {
		kept := *c
		next = &kept
	}
	if !exists || old.Cron != s.Cron || old.Every != s.Every || old.TimeZone != s.TimeZone || old.Jitter != s.Jitter {
		next.began, next.chasing = r.Now().Add(time.Second-1)/1e6*1e6, 0 // whole seconds, none of an interval lost
		if next.paused == 0 {
			next.planNext(p, p.rule(), r.Now())
		}
	}
	done.After = viewAhead(r, ns, p, next)
	if put.DryRun {
		return done, nil
	}
	r.Tx().Set(schema.NameKey(ns, schema.TablePlan, s.Name), p.encode())
	setCourse(r, ns, s.Name, c, next)
	return done, nil
}

// wasPut is the answer to a call that is repeated because its first answer was lost.
func (p *plan) wasPut(now *View) PutDone {
	done := PutDone{Change: Updated, After: now}
	if p.createdAt == p.updatedAt {
		done.Change = Created
	}
	return done
}

// planNext finds the first tick behind a time.
func (c *course) planNext(p *plan, w cron.When, after store.Time) {
	c.planned, c.fires = 0, 0
	if next := w.Next(c.began.Time(), after.Time()); !next.IsZero() {
		c.planned = store.TimeOf(next)
		c.fires = c.planned.Add(p.jitterOf(c.planned))
	}
}

// jitterOf is how much later a tick fires than it is planned.
func (p *plan) jitterOf(planned store.Time) time.Duration {
	return time.Duration(engine.Chance(p.id, uint64(planned)) * float64(p.Jitter)).Truncate(time.Millisecond)
}

// setCourse writes where a schedule is, and when its next tick fires.
func setCourse(r *engine.Round, ns, name string, from, to *course) {
	if from != nil && from.fires != 0 && from.fires != to.fires {
		r.Tx().Delete(schema.DeadlineKey(from.fires, schema.OnTick, ns, []byte(name)))
	}
	if to.fires != 0 {
		r.SetDeadline(to.fires, schema.OnTick, ns, []byte(name))
	}
	r.Tx().Set(schema.NameKey(ns, schema.TableCourse, name), to.encode())
}

// schedule reads a schedule.
func schedule(r *engine.Round, ns, name string) (*plan, *course, bool) {
	return readSchedule(r.Tx(), ns, name)
}

func readSchedule(from store.Reader, ns, name string) (*plan, *course, bool) {
	row, ok := from.Get(schema.NameKey(ns, schema.TablePlan, name))
	if !ok {
		return nil, nil, false
	}
	p, c := decodeSchedule(from, ns, row)
	return p, c, true
}

// decodeSchedule reads the row of a plan, and the course that belongs to it.
func decodeSchedule(from store.Reader, ns string, row []byte) (*plan, *course) {
	p, err := decodePlan(row)
	schema.Must(err)
	row, ok := from.Get(schema.NameKey(ns, schema.TableCourse, p.Name))
	if !ok {
		schema.Must(fmt.Errorf("schedule %q has no course", p.Name))
	}
	c, err := decodeCourse(row)
	schema.Must(err)
	return p, c
}

// readGone tells of a schedule of this name that was deleted not long ago; its zero value: there was none.
func readGone(r *engine.Round, ns, name string) gone {
	row, ok := r.Tx().Get(schema.NameKey(ns, schema.TableGone, name))
	if !ok {
		return gone{}
	}
	g, err := decodeGone(row)
	schema.Must(err)
	return g
}

// goneFor is how long a deleted schedule is remembered: longer than any call that came before can be on its way.
const goneFor = time.Hour

// Delete removes a schedule with its history, and says whether there was one. Tasks of its ticks stay. It keeps calls that
// came before from bringing the schedule back, also if it has not come yet.
func Delete(r *engine.Round, ns, name string, version uint64) (existed bool, err error) {
	p, c, exists := schedule(r, ns, name)
	if exists && p.version >= version {
		return false, ErrRaced
	}
	before := readGone(r, ns, name)
	if before.version == version { // this call was here before
		return before.existed, nil
	}
	if before.version < version {
		if before.until != 0 {
			r.Tx().Delete(schema.DeadlineKey(before.until, schema.OnGone, ns, []byte(name)))
		}
		g := gone{version: version, existed: exists, until: r.Now().Add(goneFor)}
		r.Tx().Set(schema.NameKey(ns, schema.TableGone, name), g.encode())
		r.SetDeadline(g.until, schema.OnGone, ns, []byte(name))
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
	r.Tx().Delete(schema.NameKey(ns, schema.TableCourse, name))
	return true, nil
}

// endGone forgets that a schedule was deleted.
func endGone(r *engine.Round, d schema.Deadline) {
	if name := string(d.Rest); readGone(r, d.Namespace, name).until == d.At {
		r.Tx().Delete(schema.NameKey(d.Namespace, schema.TableGone, name))
	}
}

// Pause lets a schedule rest: ticks come and go without a task until it is resumed.
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
		to.reason, to.by, to.planned, to.fires, to.chasing = reason, by, 0, 0, 0
		setCourse(r, ns, name, c, &to)
		c = &to
	}
	return viewAhead(r, ns, p, c), nil
}

// Resume lets ticks fire again. Those of the time between are noted as skipped.
func Resume(r *engine.Round, ns, name string) (*View, error) {
	p, c, ok := schedule(r, ns, name)
	if !ok {
		return nil, task.NotFound("schedule", name)
	}
	if c.paused != 0 {
		to, w := *c, p.rule()
		skip(r, ns, p, &to, w, c.paused, r.Now(), SkippedPaused)
		to.paused, to.reason, to.by = 0, "", ""
		to.planNext(p, w, r.Now())
		setCourse(r, ns, name, c, &to)
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

// comingTicks is how many ticks behind the next one are told.
const comingTicks = 4

// ahead adds the ticks behind the next one.
func (v *View) ahead(p *plan, c *course) *View {
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

// List reads up to limit schedules behind a name, in the order of their names, or about 8 MiB of them. A scope passes over
// those that make tasks outside of it.
func List(from store.Reader, ns string, s task.Scope, behind string, limit int) (page Page) {
	lo, hi := schema.TableBounds(ns, schema.TablePlan)
	if behind != "" {
		lo = append(schema.NameKey(ns, schema.TablePlan, behind), 0)
	}
	m := &schema.Counted{Reader: from}
	m.Scan(lo, hi, func(_, row []byte) bool {
		if page.More = len(page.Schedules) == limit || m.Bytes >= schema.PageBytes && len(page.Schedules) > 0; page.More {
			return false
		}
		if p, c := decodeSchedule(m, ns, row); s.Sees(p.Task.Queue) {
			page.Schedules = append(page.Schedules, view(m, ns, p, c))
		}
		return true
	})
	return page
}

func viewAhead(r *engine.Round, ns string, p *plan, c *course) *View {
	return view(r.Tx(), ns, p, c).ahead(p, c)
}

func view(from store.Reader, ns string, p *plan, c *course) *View {
	v := &View{Schedule: p.Schedule, ID: p.id, CreatedAt: p.createdAt, UpdatedAt: p.updatedAt, Next: c.fires, Planned: c.planned,
		PausedAt: c.paused, Reason: c.reason, PausedBy: c.by}
	if row, ok := from.Get(schema.TickKey(ns, p.Name, c.seq)); ok {
		t, err := decodeTick(c.seq, row)
		schema.Must(err)
		v.Last = t
	}
	return v
}

// Within refuses a schedule that makes tasks outside a scope; one that does not exist is not refused.
func Within(r *engine.Round, s task.Scope, ns, name string) error {
	if s.All() {
		return nil
	}
	if p, _, ok := schedule(r, ns, name); ok && !s.Sees(p.Task.Queue) {
		return task.NotFound("schedule", name)
	}
	return nil
}
