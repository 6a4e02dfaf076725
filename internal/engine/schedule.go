package engine

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/cron"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A schedule lives in one shard, its home, whatever becomes of its task's queue. A plan is what operators say of it, written
// when they change it. A course is where it is, written at each tick, in the entry that makes the tick's task and notes it in the
// ledger. So no tick is lost, and none makes two tasks.

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
	seq     uint64     // of the newest entry in the ledger
	paused  store.Time // since when; 0: it is not
	reason  string     // of the pause
	by      string     // who paused it
}

// ScheduleView is everything known of a schedule.
type ScheduleView struct {
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
	Last      *LedgerEntry // the newest entry of its ledger; nil: it has none
}

// SchedulePut is how a schedule is put.
type SchedulePut struct {
	Schedule task.Schedule // filled
	ID       task.ID       // of the schedule if it is new; its shard is this one
	Version  uint64        // from the system shard
	Create   bool          // refuse if there is another one
	DryRun   bool          // change nothing
	IfETag   string        // the tag of what the schedule was made from; "": whatever is there
}

// ETag is the tag of what PutSchedule can change.
func (v *ScheduleView) ETag() string { return v.Edited().ETag() }

// checkETag refuses a put that was made from another schedule than the one there is; old is nil if there is none.
func (put *SchedulePut) checkETag(old *plan) error {
	switch {
	case put.IfETag == "", old != nil && old.Equal(&put.Schedule):
		return nil
	case old == nil:
		return task.Changed("there is no such schedule any more")
	}
	return old.Edited().Check(put.IfETag)
}

// ScheduleChange is what putting a schedule does.
type ScheduleChange string

// What putting a schedule can do.
const (
	ScheduleCreated   ScheduleChange = "created"
	ScheduleUpdated   ScheduleChange = "updated"
	ScheduleUnchanged ScheduleChange = "unchanged"
)

// SchedulePutDone is the answer to putting a schedule.
type SchedulePutDone struct {
	Change ScheduleChange
	Before *ScheduleView // nil: there was none
	After  *ScheduleView
}

// ErrScheduleRaced: the schedule was changed or deleted by a call that came later and was faster. The router comes again with a
// newer version; no caller sees it.
var ErrScheduleRaced error = &task.Error{Code: task.CodeUnavailable, Reason: "schedule_raced", RetryAfter: 100 * time.Millisecond,
	Message: "the schedule was changed by another call at this moment"}

// CheckSchedule refuses a filled schedule outside the rules, naming field, value and rule.
func CheckSchedule(s *task.Schedule, l task.Limits) error {
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

// PutSchedule makes a schedule what a caller says, or tells what that would do. A schedule that keeps its times keeps its next
// tick, and one that is paused stays so.
//
// Errors: invalid_argument; conflict if it is to be created and exists; ErrScheduleRaced.
func PutSchedule(r *Round, ns string, put SchedulePut) (done SchedulePutDone, err error) {
	s := &put.Schedule
	if err := CheckSchedule(s, r.l.limits); err != nil {
		return done, err
	}
	old, c, exists := r.schedule(ns, s.Name)
	switch {
	case put.DryRun:
	case exists && old.version == put.Version: // this call was here before
		return old.wasPut(r.scheduleView(ns, old, c)), nil
	case exists && old.version > put.Version || r.gone(ns, s.Name).version >= put.Version:
		return done, ErrScheduleRaced
	}
	if exists {
		done.Before = r.scheduleView(ns, old, c)
	}
	if exists && put.Create && !old.Equal(s) {
		return done, &task.Error{Code: task.CodeConflict, Field: "name", Message: fmt.Sprintf("name: another schedule %q exists", s.Name)}
	}
	if err := put.checkETag(old); err != nil {
		return done, err
	}
	p := &plan{Schedule: *s, id: put.ID, version: put.Version, createdAt: r.now, updatedAt: r.now}
	done.Change = ScheduleCreated
	if exists {
		p.id, p.createdAt, done.Change = old.id, old.createdAt, ScheduleUpdated
		if old.Equal(s) {
			done.Change, done.After = ScheduleUnchanged, done.Before
			return done, nil
		}
	}
	next := &course{id: p.id}
	if exists {
		kept := *c
		next = &kept
	}
	if !exists || old.Cron != s.Cron || old.Every != s.Every || old.TimeZone != s.TimeZone || old.Jitter != s.Jitter {
		next.began, next.chasing = r.now.Add(time.Second-1)/1e6*1e6, 0 // whole seconds, none of an interval lost
		if next.paused == 0 {
			next.planNext(p, p.rule(), r.now)
		}
	}
	done.After = r.scheduleView(ns, p, next)
	if put.DryRun {
		return done, nil
	}
	r.tx.Set(schema.NameKey(ns, schema.TablePlan, s.Name), p.encode())
	r.setCourse(ns, s.Name, c, next)
	return done, nil
}

// wasPut is the answer to a call that is repeated because its first answer was lost.
func (p *plan) wasPut(now *ScheduleView) SchedulePutDone {
	done := SchedulePutDone{Change: ScheduleUpdated, After: now}
	if p.createdAt == p.updatedAt {
		done.Change = ScheduleCreated
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
	return time.Duration(chance(p.id, uint64(planned)) * float64(p.Jitter)).Truncate(time.Millisecond)
}

// setCourse writes where a schedule is, and when its next tick fires.
func (r *Round) setCourse(ns, name string, from, to *course) {
	if from != nil && from.fires != 0 && from.fires != to.fires {
		r.tx.Delete(schema.DeadlineKey(from.fires, schema.OnTick, ns, []byte(name)))
	}
	if to.fires != 0 {
		r.remind(to.fires, schema.OnTick, ns, []byte(name))
	}
	r.tx.Set(schema.NameKey(ns, schema.TableCourse, name), to.encode())
}

// schedule reads a schedule.
func (r *Round) schedule(ns, name string) (*plan, *course, bool) { return readSchedule(r.tx, ns, name) }

func readSchedule(from store.Reader, ns, name string) (*plan, *course, bool) {
	row, ok := from.Get(schema.NameKey(ns, schema.TablePlan, name))
	if !ok {
		return nil, nil, false
	}
	p, err := decodePlan(row)
	schema.Must(err)
	row, ok = from.Get(schema.NameKey(ns, schema.TableCourse, name))
	if !ok {
		schema.Must(fmt.Errorf("schedule %q has no course", name))
	}
	c, err := decodeCourse(row)
	schema.Must(err)
	return p, c, true
}

// gone tells of a schedule of this name that was deleted not long ago; its zero value: there was none.
func (r *Round) gone(ns, name string) gone {
	row, ok := r.tx.Get(schema.NameKey(ns, schema.TableGone, name))
	if !ok {
		return gone{}
	}
	g, err := decodeGone(row)
	schema.Must(err)
	return g
}

// goneFor is how long a deleted schedule is remembered: longer than any call that came before can be on its way.
const goneFor = time.Hour

// DeleteSchedule removes a schedule with its ledger, and says whether there was one. Tasks of its ticks stay. It keeps calls that
// came before from bringing the schedule back, also if it has not come yet.
func DeleteSchedule(r *Round, ns, name string, version uint64) (existed bool, err error) {
	p, c, exists := r.schedule(ns, name)
	if exists && p.version >= version {
		return false, ErrScheduleRaced
	}
	before := r.gone(ns, name)
	if before.version == version { // this call was here before
		return before.existed, nil
	}
	if before.version < version {
		if before.until != 0 {
			r.tx.Delete(schema.DeadlineKey(before.until, schema.OnGone, ns, []byte(name)))
		}
		g := gone{version: version, existed: exists, until: r.now.Add(goneFor)}
		r.tx.Set(schema.NameKey(ns, schema.TableGone, name), g.encode())
		r.remind(g.until, schema.OnGone, ns, []byte(name))
	}
	if !exists {
		return false, nil
	}
	if c.fires != 0 {
		r.tx.Delete(schema.DeadlineKey(c.fires, schema.OnTick, ns, []byte(name)))
	}
	for seq := oldestTick(c.seq); seq <= c.seq; seq++ {
		r.tx.Delete(schema.TickKey(ns, name, seq))
	}
	r.tx.Delete(schema.NameKey(ns, schema.TablePlan, name))
	r.tx.Delete(schema.NameKey(ns, schema.TableCourse, name))
	return true, nil
}

// endGone forgets that a schedule was deleted.
func (r *Round) endGone(d schema.Deadline) {
	if name := string(d.Rest); r.gone(d.Namespace, name).until == d.At {
		r.tx.Delete(schema.NameKey(d.Namespace, schema.TableGone, name))
	}
}

// PauseSchedule lets a schedule rest: ticks come and go without a task until it is resumed.
func PauseSchedule(r *Round, ns, name, reason, by string) (*ScheduleView, error) {
	p, c, ok := r.schedule(ns, name)
	if !ok {
		return nil, task.NotFound("schedule", name)
	}
	if c.paused == 0 || c.reason != reason {
		to := *c
		if to.paused == 0 {
			to.paused = r.now
		}
		to.reason, to.by, to.planned, to.fires, to.chasing = reason, by, 0, 0, 0
		r.setCourse(ns, name, c, &to)
		c = &to
	}
	return r.scheduleView(ns, p, c), nil
}

// ResumeSchedule lets ticks fire again. Those of the time between are noted as skipped.
func ResumeSchedule(r *Round, ns, name string) (*ScheduleView, error) {
	p, c, ok := r.schedule(ns, name)
	if !ok {
		return nil, task.NotFound("schedule", name)
	}
	if c.paused != 0 {
		to, w := *c, p.rule()
		r.skip(ns, p, &to, w, c.paused, r.now, SkippedPaused)
		to.paused, to.reason, to.by = 0, "", ""
		to.planNext(p, w, r.now)
		r.setCourse(ns, name, c, &to)
		c = &to
	}
	return r.scheduleView(ns, p, c), nil
}

// ShowSchedule reads a schedule.
func ShowSchedule(from store.Reader, ns, name string) (*ScheduleView, error) {
	p, c, ok := readSchedule(from, ns, name)
	if !ok {
		return nil, task.NotFound("schedule", name)
	}
	return scheduleView(from, ns, p, c).ahead(p, c), nil
}

// comingTicks is how many ticks behind the next one are told.
const comingTicks = 4

// ahead adds the ticks behind the next one.
func (v *ScheduleView) ahead(p *plan, c *course) *ScheduleView {
	w := p.rule()
	for at := v.Planned.Time(); v.Planned != 0 && len(v.Coming) < comingTicks; {
		if at = w.Next(c.began.Time(), at); at.IsZero() {
			break
		}
		v.Coming = append(v.Coming, store.TimeOf(at))
	}
	return v
}

// SchedulePage is a page of a list. It may end early, but is empty only at the end.
type SchedulePage struct {
	Schedules []*ScheduleView
	More      bool
}

// ListSchedules reads up to limit schedules behind a name, in the order of their names, or about 8 MiB of them. A scope passes over
// those that make tasks outside of it.
func ListSchedules(from store.Reader, ns string, s task.Scope, behind string, limit int) (page SchedulePage) {
	lo, hi := schema.TableBounds(ns, schema.TablePlan)
	if behind != "" {
		lo = append(schema.NameKey(ns, schema.TablePlan, behind), 0)
	}
	m := &schema.Counted{Reader: from}
	m.Scan(lo, hi, func(k, _ []byte) bool {
		if page.More = len(page.Schedules) == limit || m.Bytes >= schema.PageBytes && len(page.Schedules) > 0; page.More {
			return false
		}
		if p, c, ok := readSchedule(m, ns, string(k[len(ns)+2:len(k)-1])); ok && s.Sees(p.Task.Queue) {
			page.Schedules = append(page.Schedules, scheduleView(m, ns, p, c))
		}
		return true
	})
	return page
}

func (r *Round) scheduleView(ns string, p *plan, c *course) *ScheduleView {
	return scheduleView(r.tx, ns, p, c).ahead(p, c)
}

func scheduleView(from store.Reader, ns string, p *plan, c *course) *ScheduleView {
	v := &ScheduleView{Schedule: p.Schedule, ID: p.id, CreatedAt: p.createdAt, UpdatedAt: p.updatedAt, Next: c.fires, Planned: c.planned,
		PausedAt: c.paused, Reason: c.reason, PausedBy: c.by}
	if row, ok := from.Get(schema.TickKey(ns, p.Name, c.seq)); ok {
		t, err := decodeTick(c.seq, row)
		schema.Must(err)
		v.Last = t
	}
	return v
}

// bornID is the id of a task that is born inside the shard: by a schedule or another task, as its n-th.
func (r *Round) bornID(parent task.ID, n uint64) task.ID {
	return task.NewID(parent.Shard(), int64(r.now)/1000, birth(parent, n))
}

// requestOf names such a task as a request, for the shard that it is sent to.
func requestOf(parent task.ID, n uint64) (id task.ID) {
	binary.BigEndian.PutUint64(id[:8], birth(parent, n))
	binary.BigEndian.PutUint64(id[8:], mix(birth(parent, n)^binary.BigEndian.Uint64(parent[:8])))
	id[6], id[8] = 0x80|id[6]&0x0f, 0x80|id[8]&0x3f // a UUID of version 8
	return id
}

func birth(parent task.ID, n uint64) uint64 {
	return mix(binary.BigEndian.Uint64(parent[8:]) ^ mix(n))
}
