package conformance

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// refusedFor checks that a change was refused because of its ETag, with this text.
func (w *world) refusedFor(err error, code, says string) {
	w.Helper()
	w.refused(says, err, refusal{Code: code, Field: "if_etag"})
	if got, ok := errors.AsType[*refusal](err); ok && !strings.Contains(got.Text, says) {
		w.Errorf("the refusal says %q, want %q in it", got.Text, says)
	}
}

// TestConcurrentEdits: a change with the ETag that it is based on is refused if the object has changed.
func TestConcurrentEdits(t *testing.T) {
	tellAll(t, []story{
		{name: "a task edited by someone else is not overwritten", tell: func(w *world) {
			id := w.id(spec{Delay: hour, Payload: `{"cents":100}`})
			seen := w.get(id).ETag
			mine := edit{Payload: []byte(`{"cents":150}`), IfETag: seen}
			ok[view](w)(w.api.Update(w.ctx(), id, edit{Payload: []byte(`{"cents":200}`), Priority: "high", IfETag: seen}))
			_, err := w.api.Update(w.ctx(), id, mine)
			w.refusedFor(err, "conflict", "if_etag: priority and payload have changed in the meantime: read it again before you retry")
			is(w, "the payload", w.get(id).Payload, `{"cents":200}`)
			mine.IfETag = w.get(id).ETag
			v := ok[view](w)(w.api.Update(w.ctx(), id, mine))
			is(w, "once it was seen", v.Payload+v.Priority, `{"cents":150}high`)
			is(w, "the tag of the answer", v.ETag, w.get(id).ETag)
		}},
		{name: "an edit whose answer was lost can be repeated", tell: func(w *world) {
			id := w.id(spec{Delay: hour, Payload: `1`})
			change := edit{Payload: []byte(`2`), Priority: "low", MaxAttempts: 9, RunAt: w.at(minute), IfETag: w.get(id).ETag}
			first := ok[view](w)(w.api.Update(w.ctx(), id, change))
			is(w, "the answer again", ok[view](w)(w.api.Update(w.ctx(), id, change)), first)
		}},
		{name: "state changes of a task do not count as edits", tell: func(w *world) {
			id := w.id(spec{Delay: minute})
			seen := w.get(id).ETag
			w.pass(minute)
			is(w, "the tag of one that became ready", w.get(id).ETag, seen)
			is(w, "edited", ok[view](w)(w.api.Update(w.ctx(), id, edit{Priority: "high", IfETag: seen})).Priority, "high")
		}},
		{name: "an invalid ETag is refused", tell: func(w *world) {
			id := w.id(spec{Delay: hour})
			_, err := w.api.Update(w.ctx(), id, edit{Priority: "high", IfETag: "no tag"})
			w.refusedFor(err, "invalid_argument", `if_etag: "no tag" is not an etag: use the etag of a read`)
		}},
		{name: "a schedule edited by someone else is not overwritten", tell: func(w *world) {
			s := schedule{Name: "s", Cron: "0 3 * * *", Task: spec{Type: "job", Payload: "1"}}
			w.schedule(s)
			seen := w.shown("s").ETag
			theirs, mine := s, s
			theirs.Cron, mine.Task.Payload, mine.IfETag = "30 4 * * *", "2", seen
			w.schedule(theirs)
			_, err := w.api.PutSchedule(w.ctx(), mine)
			w.refusedFor(err, "conflict", "if_etag: cron has changed in the meantime: read it again before you retry")
			is(w, "the times", w.shown("s").Cron, "30 4 * * *")
			ok[scheduleInfo](w)(w.api.PauseSchedule(w.ctx(), "s", "")) // which is not an edit
			mine.Cron, mine.IfETag = "30 4 * * *", w.shown("s").ETag
			is(w, "once it was seen", w.schedule(mine).Change, "updated")
			is(w, "the same again", w.schedule(mine).Change, "unchanged")
			must(w.T, w.api.DeleteSchedule(w.ctx(), "s"))
			mine.Owner = "me"
			_, err = w.api.PutSchedule(w.ctx(), mine)
			w.refusedFor(err, "conflict", "if_etag: the schedule no longer exists")
		}},
		{name: "of two changes of a schedule at the same moment with the same ETag, one is made", tell: func(w *world) {
			s := schedule{Name: "s", Cron: "0 3 * * *", Task: spec{Type: "job"}}
			w.schedule(s)
			for i := range 10 {
				var errs [2]error
				var asked [2]schedule
				var calls sync.WaitGroup
				seen := w.shown("s").ETag
				for j := range errs {
					asked[j] = s
					asked[j].Cron, asked[j].IfETag = fmt.Sprintf("%d %d * * *", i, j), seen
					calls.Go(func() { _, errs[j] = w.api.PutSchedule(w.ctx(), asked[j]) })
				}
				calls.Wait()
				made := 0
				if errs[0] != nil {
					made = 1
				}
				must(w.T, errs[made])
				w.refusedFor(errs[1-made], "conflict", "if_etag: cron has changed in the meantime")
				is(w, "the times", w.shown("s").Cron, asked[made].Cron)
			}
		}},
		{name: "of two changes of a schedule at the same moment, both are made", tell: func(w *world) {
			for i := range 10 {
				var got [2]putAnswer
				var calls sync.WaitGroup
				for j := range got {
					calls.Go(func() {
						s := schedule{Name: fmt.Sprint("s", i), Cron: fmt.Sprintf("0 %d * * *", j), Task: spec{Type: "job"}}
						got[j] = ok[putAnswer](w)(w.api.PutSchedule(w.ctx(), s))
					})
				}
				calls.Wait()
				for j := range got {
					is(w, "the answer to each", got[j].After.Cron, fmt.Sprintf("0 %d * * *", j))
				}
				is(w, "one was there before the other", got[0].Change+got[1].Change == "createdupdated" ||
					got[0].Change+got[1].Change == "updatedcreated", true)
			}
		}},
	})
}
