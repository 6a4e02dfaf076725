package history

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Stories are told one call a second: the n-th is made at second n, and answered from entry n of the log. Times in them
// are seconds.

func sec(n int) int64 { return int64(n) * 1e6 }

// timed sets the times and log positions of records that have none.
func timed(records ...Record) []Record {
	for i := range records {
		r := &records[i]
		if r.CallNS == 0 {
			r.CallNS, r.ReturnNS = int64(i+1)*1e9, int64(i+1)*1e9+1e8
		}
		if r.Index == 0 && r.Code != Unknown {
			r.Shard, r.Index, r.TimeUS = 1, uint64(i+1), sec(i+1)
		}
		if r.Index == noIndex {
			r.Index = 0
		}
		if r.Task == "" {
			r.Task = "t"
		}
		if r.Task == "-" {
			r.Task = ""
		}
		r.Client, r.Seq = 1, i
	}
	return records
}

type change func(r *Record)

func recordOf(op Op, changes []change) Record {
	r := Record{Op: op, Answer: Answer{Code: OK}}
	for _, c := range changes {
		c(&r)
	}
	return r
}

func enqueue(changes ...change) Record {
	return recordOf(Enqueue, append([]change{func(r *Record) { r.RequestID, r.Payload, r.Queue = "r", 7, "q" }}, changes...))
}

// claim sets fence and token to the given number, with a lease until second 100.
func claim(fence int, changes ...change) Record {
	return recordOf(Claim, append([]change{token(fence), func(r *Record) {
		r.Fence, r.Attempt, r.LeaseUntilUS, r.ClaimKey, r.Payload = int64(fence), fence, sec(100), fmt.Sprint("k", fence), 7
	}}, changes...))
}

func call(op Op, changes ...change) Record { return recordOf(op, changes) }

func token(n int) change      { return func(r *Record) { r.Token = fmt.Sprint("token", n) } }
func in(state string) change  { return func(r *Record) { r.State = state } }
func until(s int) change      { return func(r *Record) { r.LeaseUntilUS = sec(s) } }
func due(s int) change        { return func(r *Record) { r.DueUS = sec(s) } }
func delay(s int) change      { return func(r *Record) { r.DelayUS = sec(s) } }
func attempts(n int) change   { return func(r *Record) { r.MaxAttempts = n } }
func try(n int) change        { return func(r *Record) { r.Attempt = n } }
func fence(n int) change      { return func(r *Record) { r.Fence = int64(n) } }
func releases(n int) change   { return func(r *Record) { r.Releases = n } }
func payload(n uint64) change { return func(r *Record) { r.Payload = n } }
func refused(w Reason) change { return func(r *Record) { r.Code, r.Reason = Refused, w } }
func unknown(r *Record)       { r.Answer = Answer{Code: Unknown} }
func duplicate(r *Record)     { r.Duplicate = true }
func falls(f Fall) change     { return func(r *Record) { r.Fall = f } }
func task(id string) change   { return func(r *Record) { r.Task = id } }
func withKey(k string) change { return func(r *Record) { r.ClaimKey = k } }
func asked(id string) change  { return func(r *Record) { r.RequestID = id } }
func at(index, s int) change {
	return func(r *Record) { r.Shard, r.Index, r.TimeUS = 1, uint64(index), sec(s) }
}

// story is calls that a correct broker may answer like this, except for the last one.
type story struct {
	why     string
	records []Record
	o       Options
	before  bool // the calls before the last one are not a story of their own
}

var stories = []story{
	{why: "a duplicate of a task that nobody has enqueued", records: timed(enqueue(duplicate))},
	{why: "made a second time", records: timed(enqueue(), enqueue())},
	{why: "answered as a duplicate of a task with another payload", records: timed(enqueue(), enqueue(duplicate, payload(8)))},
	{why: "the duplicate is not in that state", records: timed(enqueue(), enqueue(duplicate, in("claimed")))},
	{why: "ready at once, and is due later", records: timed(enqueue(delay(5), in("ready")))},
	{why: "given before it was enqueued", records: timed(claim(1), enqueue()), before: true},
	{why: "given after its end", records: timed(enqueue(), call(Cancel), claim(1))},
	{why: "given after its end", records: timed(enqueue(), claim(1), call(Fail, token(1), falls(FallPoison), in("poisoned")), claim(2))},
	{why: "given while another claim was live", records: timed(enqueue(), claim(1), claim(2))},
	{why: "given while another claim was live", records: timed(enqueue(), claim(1, until(4)), call(Extend, token(1), until(9)),
		call(Get, in("claimed"), fence(1)), claim(2))},
	{why: "given before it was due", records: timed(enqueue(delay(5)), claim(1))},
	{why: "given before it was due", records: timed(enqueue(), claim(1), call(Fail, token(1), in("retrying"), due(20)), claim(2))},
	{why: "given before it was due", records: timed(enqueue(), claim(1), call(Release, token(1), delay(9), in("scheduled")),
		claim(2, try(1)))},
	{why: "the fence is not the next one", records: timed(enqueue(), claim(1), call(Release, token(1)), claim(2, fence(1), try(1)))},
	{why: "the attempt is not the next one", records: timed(enqueue(), claim(1), call(Release, token(1)), claim(2, try(2)))},
	{why: "the attempt is not the next one", records: timed(enqueue(), claim(1), call(Fail, token(1), in("ready")), claim(2, try(1)))},
	{why: "the attempt is not the next one", records: timed(enqueue(), claim(1, until(3)), claim(2, try(3)))},
	{why: "given with another payload", records: timed(enqueue(), claim(1, payload(8)))},
	{why: "given with a lease that was over", records: timed(enqueue(), claim(1, until(1)))},
	{why: "given again after its last attempt", records: timed(enqueue(attempts(1)), claim(1, until(3)), claim(2))},
	{why: "given again after its claim was over", records: timed(enqueue(), claim(1), call(Release, token(1)), claim(1))},
	{why: "given again with another fence", records: timed(enqueue(), claim(1), claim(1, fence(2))), before: true},
	{why: "one claim given to two claim keys", records: timed(enqueue(), claim(1), claim(1, withKey("x")))},
	{why: "given again with another attempt", records: timed(enqueue(), claim(1), claim(1, try(2)))},
	{why: "given again with another payload", records: timed(enqueue(), claim(1), claim(1, payload(8)))},
	{why: "acked, and answered with another state", records: timed(enqueue(), claim(1), call(Ack, token(1), in("ready")))},
	{why: "released to another state", records: timed(enqueue(), claim(1), call(Release, token(1), in("retrying")))},
	{why: "an extension made the lease shorter", records: timed(enqueue(), claim(1), call(Extend, token(1), until(50)))},
	{why: "repeated, and answered with another state than at first", records: timed(enqueue(), claim(1),
		call(Fail, token(1), in("retrying")), call(Fail, token(1), in("dead")))},
	{why: "repeated, and answered with an earlier due time than at first",
		records: timed(enqueue(), claim(1), call(Fail, token(1), in("retrying"), due(20)), call(Fail, token(1), in("retrying"), due(10)))},
	{why: "a second token succeeded", records: timed(enqueue(), claim(1), call(Ack, token(1)), call(Ack, token(2)))},
	{why: "accepted, and the token is not that of the current claim", records: timed(enqueue(), claim(1, until(3)), claim(2),
		call(Ack, token(1)))},
	{why: "accepted, and the token is not that of the current claim", records: timed(enqueue(), claim(1), call(Fail, token(1), in("ready")),
		call(Release, token(1)))},
	{why: "accepted, and the token is not that of the current claim", records: timed(enqueue(), claim(1, until(3)),
		call(Ack, token(1), refused(Expired)), call(Ack, token(1)))},
	{why: "its attempts and its end do not fit together", records: timed(enqueue(attempts(1)), claim(1),
		call(Fail, token(1), in("retrying")))},
	{why: "its attempts and its end do not fit together", records: timed(enqueue(attempts(2)), claim(1), call(Fail, token(1), in("dead")))},
	{why: "its attempts and its end do not fit together", records: timed(enqueue(attempts(1)), claim(1), call(Fail, token(1), in("dead")),
		call(Retry, in("ready")), claim(2), call(Fail, token(2), in("retrying")))},
	{why: "failed, and answered with a state that does not follow", records: timed(enqueue(), claim(1),
		call(Fail, token(1), in("poisoned")))},
	{why: "cancelled before it was enqueued", records: timed(call(Cancel), enqueue()), before: true},
	{why: "cancelled after another end", records: timed(enqueue(), claim(1), call(Ack, token(1)), call(Cancel))},
	{why: "replayed, and had not ended, or had succeeded", records: timed(enqueue(), call(Retry))},
	{why: "replayed, and had not ended, or had succeeded", records: timed(enqueue(), claim(1), call(Retry))},
	{why: "made ready, and did not wait", records: timed(enqueue(), claim(1), call(RunNow))},
	{why: "discarded, and neither waited nor was a dead letter", records: timed(enqueue(), claim(1), call(Discard))},
	{why: "read before it was enqueued", records: timed(call(Get, in("ready")), enqueue()), before: true},
	{why: "ready before it was due", records: timed(enqueue(delay(50)), call(Get, in("ready")))},
	{why: "it can't be in that state", records: timed(enqueue(), call(Get, in("claimed")))},
	{why: "it can't be in that state", records: timed(enqueue(), claim(1), call(Get, in("ready"), fence(1)))},
	{why: "read with a fence that is not the number of its claims", records: timed(enqueue(), claim(1),
		call(Get, in("claimed"), fence(0)))},
	{why: "read with an attempt that is not the last one", records: timed(enqueue(), claim(1), call(Get, in("claimed"), fence(1), try(2)))},
	{why: "read with another payload", records: timed(enqueue(), call(Get, in("ready"), payload(8)))},
	{why: "read with a lease that ends earlier than was promised", records: timed(enqueue(), claim(1), call(Get, in("claimed"),
		fence(1), until(99)))},
	{why: "an operation that the checker does not know", records: timed(enqueue(), call("sing"))},
	{why: "not found, and was enqueued", records: timed(enqueue(), call(Cancel, refused(NotFound)))},
	{why: "not found, and was enqueued", records: timed(enqueue(), claim(1), call(Ack, token(1), refused(NotFound)))},
	{why: "refused, and the claim was live", records: timed(enqueue(), claim(1), call(Ack, token(1), refused(Expired)))},
	{why: "refused, and the claim was live", records: timed(enqueue(), claim(1), call(Ack, token(1), refused(Completed)))},
	{why: "called stale, and the task never gave that token", records: timed(enqueue(), call(Ack, token(9), refused(Expired)))},
	{why: "refused, and only repeated what ended the attempt", records: timed(enqueue(), claim(1), call(Ack, token(1)),
		call(Ack, token(1), refused(Completed)))},
	{why: "refused, and only repeated what ended the attempt", records: timed(enqueue(), claim(1), call(Fail, token(1), in("ready")),
		claim(2), call(Fail, token(1), refused(Completed)))},
	{why: "stale for a reason that is not so", records: timed(enqueue(), claim(1), call(Cancel), call(Ack, token(1), refused(Reclaimed)))},
	{why: "stale for a reason that is not so", records: timed(enqueue(), claim(1, until(3)), claim(2),
		call(Ack, token(1), refused(Expired)))},
	{why: "refused, and the lease was not over", records: timed(enqueue(), claim(1), call(Extend, token(1), refused(WrongState),
		in("claimed")))},
	{why: "refused for a state that the task can't be in", records: timed(enqueue(), call(Cancel, refused(WrongState), in("succeeded")))},
	{why: "refused for a state that the task can't be in", records: timed(enqueue(), claim(1), call(Ack, token(1)),
		call(Cancel, refused(WrongState), in("dead")))},

	{why: "one request, two tasks", records: timed(enqueue(), enqueue(task("u")))},
	{why: "refused as a conflict, and nobody asked for anything else", records: timed(enqueue(), enqueue(task("-"), refused(Conflict)))},
	{why: "it is not there at the end", records: timed(enqueue()), o: Options{Final: []Record{}}, before: true},
	{why: "it has not ended", records: timed(enqueue()), o: Options{Drained: true, Final: timed(call(Get, in("ready"), at(9, 9)))},
		before: true},
	{why: "its lease was over long ago", records: timed(enqueue(), claim(1, until(3))), before: true,
		o: Options{Overdue: time.Second, Final: timed(call(Get, in("claimed"), fence(1), until(3), at(9, 9)))}},
	{why: "it was due long ago", records: timed(enqueue(delay(3))), before: true,
		o: Options{Overdue: time.Second, Final: timed(call(Get, in("scheduled"), due(4), at(9, 9)))}},
	{why: "dead, and not listed as a dead letter", records: timed(enqueue(), claim(1), call(Fail, token(1), falls(FallDead))), before: true,
		o: Options{DeadLetters: []string{}, Final: timed(call(Get, in("dead"), fence(1), at(9, 9)))}},
	{why: "listed as a dead letter, and is not dead", records: timed(enqueue()), before: true,
		o: Options{DeadLetters: []string{"t"}, Final: timed(call(Get, in("ready"), at(9, 9)))}},
	{why: "listed as a dead letter more than once", records: timed(enqueue(), claim(1), call(Fail, token(1), falls(FallDead))),
		before: true, o: Options{DeadLetters: []string{"t", "t"}, Final: timed(call(Get, in("dead"), fence(1), at(9, 9)))}},
	{why: "listed as a dead letter, and is not there", records: timed(enqueue()), before: true,
		o: Options{DeadLetters: []string{"u"}, Final: timed(call(Get, in("ready"), at(9, 9)))}},
	{why: "nobody tried to enqueue it", records: timed(enqueue(), claim(1, task("u")))},
	{why: "more tasks than requests", records: timed(enqueue(unknown, task("-")), call(Get, task("t"), in("ready"), payload(7),
		func(r *Record) { r.Queue = "q" }),
		call(Get, task("u"), in("ready"), payload(7), func(r *Record) { r.Queue = "q" }))},
	{why: "a fence was given to nobody", records: timed(enqueue(), claim(2, try(1)))},
	{why: "a fence was given to nobody", records: timed(enqueue(), enqueue(task("u"), other), claim(1, task("u"), withKey("x"), until(5),
		lasts(1)), claim(2))},
	{why: "a fence was given to nobody", records: timed(enqueue(), claim(1), call(Release, token(1)),
		call(Get, in("ready"), fence(1), try(1),
			releases(1)), claim(3, try(1)))},
	{why: "answered with a state older than one that it had reported", records: timed(enqueue(), enqueue(task("u"), asked("s"), at(9, 9)),
		call(Get, in("ready"), at(2, 9)))},
	{why: "changed an entry of the log that it had reported", records: timed(enqueue(), enqueue(task("u"), asked("s"), at(1, 1)))},
	{why: "one entry of the log has two times", records: func() []Record {
		two := timed(enqueue(), enqueue(task("u"), asked("s"), at(1, 2)))
		two[1].CallNS, two[1].ReturnNS = two[0].CallNS, two[0].ReturnNS
		return two
	}()},
	{why: "shard time fell", records: timed(enqueue(at(1, 5)), enqueue(task("u"), asked("s"), at(2, 4)))},
	{why: "shard time is far from the wall clock", records: timed(enqueue()), o: Options{Began: time.UnixMicro(sec(5)),
		ClockBound: time.Second}, before: true},
}

// TestStories: each story violates a rule, and does not without its last call.
func TestStories(t *testing.T) {
	shown := map[string]bool{}
	for i, s := range stories {
		t.Run(fmt.Sprint(i, " ", s.why), func(t *testing.T) {
			shown[s.why] = true
			s.o.Sample = -1
			if r := Check(s.records, s.o); !slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Why == s.why }) {
				t.Errorf("got report %s", r)
			}
			if last := len(s.records) - 1; !s.before && last > 0 {
				if r := Check(s.records[:last], Options{}); !r.OK() {
					t.Errorf("without the last call the report is %s", r)
				}
			}
		})
	}
	for _, why := range faults(t) {
		if !shown[why] && !slices.Contains(ofSearches, why) {
			t.Errorf("no story covers the fault %q", why)
		}
	}
}

// ofSearches are the faults that only a search reports. TestSearchByTheLog covers them.
var ofSearches = []string{"its time was over", "the log has it earlier", "no order of the answers makes sense"}

// faults returns the texts of all faults in the code.
func faults(t *testing.T) (all []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`fault\{[A-Z]\w+, "([^"]+)"\}`)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(b), -1) {
			all = append(all, m[1])
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d faults were found in the code", len(all))
	}
	return all
}

// TestMayBe: histories that look wrong, but are legal.
func TestMayBe(t *testing.T) {
	for name, records := range map[string][]Record{
		"ack after the lease's end, not taken back yet": timed(enqueue(), claim(1, until(3)), call(Get, in("claimed"),
			fence(1)), call(Ack, token(1))),
		"a crash uses an attempt":                 timed(enqueue(), claim(1, until(3)), claim(2)),
		"a lease lost without a leader uses none": timed(enqueue(), claim(1, until(3)), claim(2, try(1))),
		"a release uses none":                     timed(enqueue(), claim(1), call(Release, token(1)), claim(2, try(1))),
		"dead for a lost lease": timed(enqueue(attempts(1)), claim(1, until(3)),
			call(Get, in("dead"), fence(1), try(1))),
		"ack repeated": timed(enqueue(), claim(1), call(Ack, token(1)), call(Ack, token(1))),
		"fail repeated after the next claim": timed(enqueue(), claim(1), call(Fail, token(1), in("ready")),
			claim(2), call(Fail, token(1), in("ready"))),
		"cancel repeated": timed(enqueue(), call(Cancel), call(Cancel)),
		"a new life after a replay": timed(enqueue(attempts(1)), claim(1),
			call(Fail, token(1), in("dead")), call(Retry), claim(2), call(Fail, token(2), in("dead"))),
		"run before it was due":       timed(enqueue(delay(90)), call(RunNow), claim(1)),
		"claim repeated with its key": timed(enqueue(), claim(1), claim(1)),
		"stale after cancel, also for a lost lease": timed(enqueue(), claim(1, until(3)), call(Get, in("ready"), fence(1)),
			call(Cancel), call(Ack, token(1), refused(Cancelled))),
		"a token that was never given":   timed(enqueue(), call(Ack, token(9), refused(NotFound))),
		"enqueue and claim in one entry": timed(claim(1, at(5, 5), overlap), enqueue(at(5, 5), overlap)),
		"unanswered ack took effect": timed(enqueue(), claim(1), call(Ack, token(1), unknown),
			call(Get, in("succeeded"), fence(1))),
		"unanswered ack took effect later": timed(enqueue(), claim(1), call(Ack, token(1), unknown),
			call(Get, in("claimed"), fence(1)), call(Get, in("succeeded"), fence(1))),
		"unanswered ack never took effect": timed(enqueue(), claim(1, until(5)), call(Ack, token(1), unknown),
			call(Get, in("claimed"), fence(1)), claim(2)),
		"unanswered enqueue made the task": timed(enqueue(unknown, task("-")), claim(1)),
		"unanswered claim took a fence": timed(enqueue(), call(Claim, unknown, task("-"), withKey("x")),
			claim(2, try(1))),
		"a claim that took longer than its lease took another task before": timed(enqueue(), enqueue(task("u"), other),
			claim(1, task("u"), withKey("x"), until(5), lasts(2)), claim(2)),
		"given back by the broker before anybody was told": timed(enqueue(), claim(2, try(1)), call(Ack, token(2)),
			call(Get, in("succeeded"), fence(2), try(1), releases(1))),
		"given back by the broker, after its holder put it off": timed(enqueue(), claim(1), call(Release, token(1), delay(1)),
			claim(3, try(1)), call(Ack, token(3)), call(Get, in("succeeded"), fence(3), try(1), releases(1))),
		"unanswered replay after a death nobody saw": timed(enqueue(attempts(1)), claim(1, until(3)), call(Retry, unknown), claim(2)),
		"unanswered claim, then a death": timed(enqueue(), claim(1, until(3)), call(Claim, unknown, task("-"), withKey("x")),
			call(Get, in("dead"), fence(2)), call(Retry), claim(3, try(2))),
		"unanswered enqueues with one request id, the second made the task": timed(enqueue(unknown, task("-")),
			enqueue(unknown, task("-"), payload(8)), claim(1, payload(8)), enqueue(duplicate, payload(8))),
		"unanswered claim, repeated after a read of it": timed(enqueue(), call(Claim, unknown, task("-"), withKey("k1")),
			call(Get, in("claimed"), fence(1), try(1)), claim(1)),
		"answered after a repeat below the recorder": timed(enqueue(), claim(1), call(Ack, token(1), retried, func(r *Record) {
			r.CallNS, r.ReturnNS = 3e9, 9e9
		}, at(8, 8)), call(Get, in("succeeded"), fence(1), at(4, 4))),
		"replay twice, repeated below the recorder": timed(enqueue(), call(Cancel), call(Retry, retried, func(r *Record) {
			r.CallNS, r.ReturnNS = 3e9, 9e9
		}, at(8, 8)), claim(1, at(4, 4)), call(Fail, token(1), falls(FallDiscard), at(5, 5))),
		"no indexes, and the order is that of the calls": timed(enqueue(bare), claim(1, bare), call(Ack, token(1), bare)),
	} {
		t.Run(name, func(t *testing.T) {
			if r := Check(records, Options{}); !r.OK() {
				t.Error(r)
			}
		})
	}
}

// overlap makes calls run at the same time.
func overlap(r *Record) { r.CallNS, r.ReturnNS = 1e9, 2e9 }

func retried(r *Record) { r.Retried = true }

// other gives a call another request id.
func other(r *Record) { r.RequestID = "other" }

// lasts makes the third call take that many seconds.
func lasts(seconds int64) change {
	return func(r *Record) { r.CallNS, r.ReturnNS = 3e9-seconds*1e9, 3e9 }
}

// bare removes a record's stamp.
func bare(r *Record) { r.Index = noIndex }

// noIndex marks a record that told must not stamp.
const noIndex = ^uint64(0)

// TestSearchByTheLog: a search follows the known indexes, and no lease is lost before it ends.
func TestSearchByTheLog(t *testing.T) {
	late := timed(enqueue(), claim(1), call(Ack, token(1), overlap, at(3, 3)), call(Get, in("claimed"), fence(1), overlap, at(4, 4)),
		call(Cancel, unknown))
	late[0].CallNS, late[0].ReturnNS, late[1].CallNS, late[1].ReturnNS = 1, 2, 3, 4
	early := timed(enqueue(), claim(1, until(50)), call(Retry, unknown), claim(2))
	for name, records := range map[string][]Record{"a read of a state before its index": late,
		"a second claim before the first one's lease was over": early} {
		if r := Check(records, Options{}); r.OK() || len(r.Undecided) > 0 || r.Searched != 1 {
			t.Errorf("%s: %s", name, r)
		}
	}
	late[2].Index, late[3].Index, late[2].TimeUS, late[3].TimeUS = 4, 3, sec(4), sec(3)
	early[1].LeaseUntilUS = sec(4)
	for name, records := range map[string][]Record{"the read was first": late, "the lease was over": early} {
		if r := Check(records, Options{}); !r.OK() {
			t.Errorf("%s: %s", name, r)
		}
	}
}
