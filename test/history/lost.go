package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// resolve assigns unanswered calls to the tasks that they may have moved, and determines which tasks they leave open.
//
// An enqueue is found by its request id or key if a repeat was answered, else by its payload. A claim is found by its
// claim key; the remaining claims explain fences that no answer mentioned.
func (b *book) resolve() {
	enqueues, claimed := b.unanswered()
	b.giveEnqueues(enqueues)
	first := map[string]*Record{}
	for _, c := range slices.Backward(claimed) {
		if c.Code == Unknown && c.ClaimKey != "" {
			first[c.ClaimKey] = c
		}
	}
	for _, l := range b.lives {
		b.giveClaims(l, claimed, first)
		l.tidy()
	}
}

// unanswered returns the unanswered calls that name no task, in the order in which they were made.
func (b *book) unanswered() (enqueues, claimed []*Record) {
	for i := range b.loose {
		r := b.loose[i].Record
		switch {
		case r.Op == Claim && (r.Code == Unknown || r.Retried):
			claimed = append(claimed, r)
		case r.Op == Enqueue && r.Code == Unknown:
			enqueues = append(enqueues, r)
		}
	}
	for _, l := range b.lives {
		for i := range l.events {
			if r := l.events[i].Record; r.Op == Claim && (r.Retried || r.outlived()) {
				claimed = append(claimed, r)
			}
		}
	}
	early := func(x, y *Record) int { return cmp.Compare(x.CallNS, y.CallNS) }
	slices.SortFunc(enqueues, early)
	slices.SortFunc(claimed, early)
	claimed = slices.CompactFunc(claimed, func(x, y *Record) bool { return x.Client == y.Client && x.Seq == y.Seq })
	return enqueues, claimed
}

// outlived reports whether a claim took longer to be answered than its lease lasts. A broker that lost the round of a
// claim asks the next leader for it by its key; but a key is forgotten when its lease is over, and then the claim takes
// other tasks.
func (r *Record) outlived() bool {
	return r.Code == OK && r.LeaseUntilUS > 0 && r.ReturnNS-r.CallNS >= (r.LeaseUntilUS-r.TimeUS)*1000
}

// content distinguishes tasks whose ids are unknown.
type content struct {
	queue   string
	payload uint64
}

// giveEnqueues files unanswered enqueues, and finds tasks that were never requested (I12).
func (b *book) giveEnqueues(enqueues []*Record) {
	named := make(map[name]*life, len(b.lives))
	var orphans []*life
	for _, l := range b.lives {
		made := l.enqueue()
		if made == nil {
			if l.known {
				orphans = append(orphans, l)
			}
			continue
		}
		for i := range l.events {
			if r := l.events[i].Record; r.Op == Enqueue && r.Code == OK {
				for n := range r.names {
					named[n] = l
				}
			}
		}
	}
	type question struct {
		content
		request string
	}
	open := map[content][]*Record{} // each request once
	asked := map[question]bool{}
	for _, r := range enqueues {
		if l := r.taskOf(named); l != nil {
			b.give(l, *r)
			continue
		}
		what := content{r.Queue, r.Payload}
		if again := (question{what, r.RequestID}); r.RequestID != "" && asked[again] {
			continue
		} else {
			asked[again] = true
		}
		open[what] = append(open[what], r)
	}
	b.adopt(orphans, open)
}

// taskOf returns the task that an answered enqueue with the same name got.
func (r *Record) taskOf(named map[name]*life) *life {
	for n := range r.names {
		if l := named[n]; l != nil {
			return l
		}
	}
	return nil
}

// adopt assigns tasks whose enqueue was not answered to the enqueues that may have created them.
func (b *book) adopt(orphans []*life, open map[content][]*Record) {
	taken := map[content]int{}
	for _, l := range orphans {
		var candidates []*Record
		what, known := l.content()
		if candidates = open[what]; !known {
			for _, rs := range open {
				candidates = append(candidates, rs...)
			}
		}
		taken[what]++
		switch {
		case len(candidates) == 0:
			b.violation(fault{Unexpected, "nobody tried to enqueue it"}, l.id, l.events[0].Record)
			l.judged = true
		case known && taken[what] > len(candidates):
			b.violation(fault{Doubled, "more tasks than requests"}, l.id, candidates[0], l.events[0].Record)
			l.judged = true
		default:
			b.give(l, merged(candidates))
		}
	}
}

// content returns the queue and payload of a task; known is false if they are unknown.
func (l *life) content() (c content, known bool) {
	for i := range l.events {
		r := l.events[i].Record
		if r.Payload == 0 || r.Queue == "" || strings.Contains(r.Queue, ",") {
			continue
		}
		return content{r.Queue, r.Payload}, true
	}
	return c, false
}

// merged returns an enqueue that allows what any of the candidates would.
func merged(candidates []*Record) Record {
	m := *candidates[0]
	for _, r := range candidates[1:] {
		m.CallNS = min(m.CallNS, r.CallNS)
		m.DelayUS, m.RunAtUS = min(m.DelayUS, r.DelayUS), min(m.RunAtUS, r.RunAtUS)
		if m.MaxAttempts != r.MaxAttempts {
			m.MaxAttempts = 0
		}
		if m.Payload != r.Payload {
			m.Payload = 0
		}
	}
	return m
}

// give files an unanswered call under a task.
func (b *book) give(l *life, r Record) {
	r.Task = l.id
	b.enter(l, event{Record: &r})
}

// giveClaims explains what the answers to claims leave open: a claim that was repeated after its first answer was lost
// took effect earlier, and a fence that no answer mentioned went to a claim whose answer was lost.
func (b *book) giveClaims(l *life, claimed []*Record, first map[string]*Record) {
	known, highest := map[int64]bool{}, map[int64]int64{} // fences; the highest one in each epoch
	for i := range l.events {
		e := &l.events[i]
		if e.Code != OK || e.Op != Claim && e.Op != Get {
			continue
		}
		highest[epochOf(e.Fence)] = max(highest[epochOf(e.Fence)], e.Fence)
		if e.Op == Claim {
			known[e.Fence] = true
			if was := first[e.ClaimKey]; was != nil && was.CallNS < e.CallNS {
				r := *e.Record // one call, since the first one with its key
				r.CallNS, r.Retried = was.CallNS, true
				e.Record = &r
				e.from, e.to = b.times(e.Record)
			}
		}
	}
	if l.judged {
		return
	}
	missing, back := 0, l.givenBack()
	for _, fence := range fencesUpTo(highest) {
		if known[fence] {
			continue
		}
		record := l.firstAt(fence)
		if back > 0 { // of a claim that was answered without this task, because a shard's answer was lost internally
			back--
			b.give(l, Record{ReturnNS: record.ReturnNS, Op: Claim, Fence: fence, Answer: Answer{Code: Unknown}})
			continue
		}
		missing++
		lost := lostClaims(claimed, record, l.queue(), missing)
		if len(lost) < missing {
			b.violation(fault{Numbers, "a fence was given to nobody"}, l.id, record)
			l.judged = true
			return
		}
		b.give(l, Record{Client: lost[0].Client, Seq: lost[0].Seq, CallNS: lost[0].CallNS, ReturnNS: lost[0].ReturnNS, Op: Claim,
			Fence: fence, Args: Args{ClaimKey: lost[0].ClaimKey}, Answer: Answer{Code: Unknown}})
	}
}

// epochBits is how many of a fence's bits count claims within an epoch. A restore or a recovery begins an epoch, and
// the next fence is the first in it.
const epochBits = 20

func epochOf(fence int64) int64 { return fence >> epochBits }

// follows reports whether a fence is the next one, or the first of a later epoch.
func follows(last, fence int64) bool {
	return fence == last+1 || epochOf(fence) > epochOf(last) && fence == epochOf(fence)<<epochBits+1
}

// fencesUpTo returns all fences up to the highest one of each epoch, in order.
func fencesUpTo(highest map[int64]int64) (all []int64) {
	for _, epoch := range slices.Sorted(maps.Keys(highest)) {
		for fence := epoch<<epochBits + 1; fence <= highest[epoch]; fence++ {
			all = append(all, fence)
		}
	}
	return all
}

// givenBack returns how often the broker gave the task back by itself, according to reads: no client knows of those claims.
func (l *life) givenBack() (n int) {
	holders := map[string]bool{}
	for i := range l.events {
		e := &l.events[i]
		switch {
		case e.Op == Get && e.Code == OK:
			n = max(n, e.Releases)
		case e.Op == Release && e.DelayUS == 0 && (e.Code == OK || e.Code == Unknown): // with a delay it is a snooze
			holders[e.Token] = true
		}
	}
	return n - len(holders)
}

// firstAt returns the first answer with a fence, or a higher one.
func (l *life) firstAt(fence int64) (first *Record) {
	for i := range l.events {
		e := &l.events[i]
		if e.Code == OK && (e.Op == Claim || e.Op == Get) && e.Fence >= fence && (first == nil || e.ReturnNS < first.ReturnNS) {
			first = e.Record
		}
	}
	return first
}

func (l *life) queue() string {
	if made := l.enqueue(); made != nil {
		return made.Queue
	}
	return ""
}

// lostClaims returns up to n unanswered claims that may have taken a task of the queue before an answer mentioned it.
func lostClaims(claimed []*Record, before *Record, queue string, n int) (lost []*Record) {
	for _, c := range claimed {
		if len(lost) == n || c.CallNS > before.ReturnNS {
			break
		}
		if queue == "" || c.Queue == "" || slices.Contains(strings.Split(c.Queue, ","), queue) {
			lost = append(lost, c)
		}
	}
	return lost
}

// tidy drops what can't have moved the task, and sets whether the rest leaves it open.
func (l *life) tidy() {
	type question struct {
		Op    Op
		token string
		fence int64
		content
		args Args
	}
	asked := map[question]int{}
	kept := l.events[:0]
	revived := false
	for _, e := range l.events {
		if e.Code != Unknown {
			if e.Code != Nope {
				l.open = l.open || e.Retried || e.Index == 0
				kept = append(kept, e)
			}
			continue
		}
		if e.Op == Get || e.Op == Extend {
			// An extension that took effect only makes a lease longer than promised.
			continue
		}
		l.open = true
		revived = revived || e.Op == Retry || e.Op == Discard
		q := question{e.Op, e.Token, e.Fence, content{e.Queue, e.Payload}, e.Args}
		if at, again := asked[q]; again && (e.Token != "" || e.Op == Enqueue) {
			if e.CallNS < kept[at].CallNS {
				kept[at] = e
			}
			continue // the first may take effect whenever the second may, but not both
		}
		asked[q] = len(kept)
		kept = append(kept, e)
	}
	l.events = kept
	if revived {
		l.events = append(l.events, event{Record: &Record{Task: l.id, Op: "lapse", Answer: Answer{Code: Unknown}},
			to: anyTime, lapse: true})
	}
}
