package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The key layout. Every key begins with its table's letter, so that each table has files of its own (store.Open), then its
// namespace and a zero byte; names inside a key end with a zero byte, which no name has. Numbers are big-endian, so that
// rows lie in their order.
//
//	e ns 0 id                                envelope: written once
//	s ns 0 id                                execution state
//	i ns 0 queue 0 id                        a task of the queue, for lists
//	r ns 0 id                                result
//	c ns 0 id                                checkpoint
//	a ns 0 id fence                          an attempt that ended otherwise than by success
//	l ns 0 queue 0 prio key 0 type 0 seq     a ready task, in its lane
//	L ns 0 queue 0 prio key 0 type 0         a lane that is not empty: count and head
//	w ns 0 queue 0 state run_at id           a scheduled or retrying task, or a ready one that waits for its unique key
//	d ns 0 queue 0 state ended id            a dead letter or poisoned task, with its fingerprint and type
//	k ns 0 queue 0 key                       an idempotency key
//	q ns 0 request                           a request id that is no UUIDv7
//	q ns 0 zero id                           a task that was forgotten while its request may be repeated
//	u ns 0 queue 0 key                       a unique key: which task holds it, and which is next
//	g ns 0 claim_key                         the claims that a claim key got
//	C ns 0 queue 0 key 0 id                  a claimed task that the row of its key does not name
//	y ns 0 queue 0 key                       a once key: who holds it, or what came of it
//	b ns 0 queue 0 key                       what a key uses, or the queue as a whole: tokens, if not all are there, and claims
//	Q ns 0 queue 0                           settings and pause of a queue, copied from the system shard
//	n ns 0 queue 0                           counters of a queue
//	S ns 0                                   the namespace's share of its quotas
//	B ns 0 queue 0 type                      a circuit breaker that is not closed, or judged attempts lately
//	p ns 0 schedule 0                        what operators say of a schedule
//	P ns 0 schedule 0                        where a schedule is: its next tick
//	h ns 0 schedule 0 seq                    an entry of a schedule's ledger
//	D ns 0 schedule 0                        a schedule that was deleted a moment ago
//	o ns 0 request                           a task on its way to another shard
//	f ns 0 id                                what follows a task, or a group
//	G ns 0 group                             where a group is, and its counters
//	M ns 0 group ref                         a member of a group
//	O ns 0 id                                an operation, in its home
//	m ns 0 operation                         the last step that the shard did for an operation
//	W ns 0                                   what the webhooks of the namespace want to hear of, copied from the system shard
//	N ns 0 kind 0 queue 0                    what they are to be told of a queue, as it is gathered
//	x ns 0 ended id                          a dead letter whose retention is over, to be archived
//	z ns 0 id                                a zone of ids, from this one on: what its tasks can be found by
//	t time kind ns 0 …                       a deadline; what follows names the row it is for
//	v time kind ns 0 id                      the deadline of a lease
//	A 0 …                                    the audit: see its package
const (
	tabEnvelope   = 'e'
	tabExec       = 's'
	tabListed     = 'i'
	tabResult     = 'r'
	tabCheckpoint = 'c'
	tabAttempt    = 'a'
	tabReady      = 'l'
	tabLane       = 'L'
	tabWaiting    = 'w'
	tabDead       = 'd'
	tabKey        = 'k'
	tabRequest    = 'q'
	tabUnique     = 'u'
	tabClaimKey   = 'g'
	tabClaimed    = 'C'
	tabOnce       = 'y'
	tabUse        = 'b'
	tabQueue      = 'Q'
	tabCounts     = 'n'
	tabShare      = 'S'
	tabBreaker    = 'B'
	tabArchive    = 'x'
	tabPlan       = 'p'
	tabCourse     = 'P'
	tabTick       = 'h'
	tabGone       = 'D'
	tabOutbox     = 'o'
	tabFollow     = 'f'
	tabGroup      = 'G'
	tabMember     = 'M'
	tabOperation  = 'O'
	tabStep       = 'm'
	tabWatch      = 'W'
	tabNews       = 'N'
	tabZone       = 'z'
	tabDeadline   = 't'
	tabLease      = 'v'
)

// No two tables have the same letter, or this would not compile.
var _ = [...]struct{}{
	tabEnvelope: {}, tabExec: {}, tabListed: {}, tabResult: {}, tabCheckpoint: {}, tabAttempt: {}, tabReady: {}, tabLane: {}, tabWaiting: {},
	tabDead: {}, tabKey: {}, tabRequest: {}, tabUnique: {}, tabClaimKey: {}, tabClaimed: {}, tabOnce: {}, tabUse: {},
	tabQueue: {}, tabCounts: {}, tabShare: {}, tabBreaker: {}, tabArchive: {}, tabPlan: {}, tabCourse: {}, tabTick: {},
	tabGone: {}, tabOutbox: {}, tabFollow: {}, tabGroup: {}, tabMember: {}, tabOperation: {}, tabStep: {}, tabWatch: {},
	tabNews: {}, tabZone: {}, tabDeadline: {}, tabLease: {},
}

// timelines are the tables of deadlines. Leases have one of their own: most end before their time, so that it is short, and it says
// which tasks are claimed.
var timelines = [...]byte{tabDeadline, tabLease}

// timelineOf is the place of a kind's table in timelines.
func timelineOf(kind deadlineKind) int {
	if kind == onLease {
		return 1
	}
	return 0
}

// Kinds of deadlines. The values are stored.
type deadlineKind byte

const (
	onDue       deadlineKind = 1 + iota // scheduled or retrying: becomes ready
	onLease                             // claimed: the lease ends
	onExpiry                            // not started yet: discarded
	onForget                            // ended: its rows go
	onKey                               // an idempotency key ends
	onRequest                           // a request id ends
	onClaimKey                          // a claim key ends
	onTokens                            // a bucket has a token again
	onSweep                             // full buckets of a queue are forgotten
	onTick                              // a schedule's next tick
	onGone                              // a deleted schedule is forgotten
	onOnce                              // a once key is forgotten
	onBreaker                           // a breaker's hold ends, or its wait for a probe
	onAudit                             // the oldest entries of the audit are removed; of no namespace
	onGroup                             // members of a group are cancelled, or its rows go
	onOperation                         // an operation that has ended is forgotten
	onStep                              // the last step for an operation is forgotten
	onNews                              // what webhooks are to be told of is sent, or has rested
)

// keyRoom is what most keys take, in bytes. It is a constant so that a key that is only written or deleted is made on the stack.
const keyRoom = 96

// table begins a key.
func table(ns string, tab byte) []byte {
	k := append(make([]byte, 0, keyRoom), tab)
	return append(append(k, ns...), 0)
}

// tableBounds are the limits of a namespace's part of a table.
func tableBounds(ns string, tab byte) (lo, hi []byte) {
	lo = table(ns, tab)
	return lo, after(lo)
}

func idKey(ns string, tab byte, id task.ID) []byte {
	return append(table(ns, tab), id[:]...)
}

// forgottenKey is the row that a forgotten task leaves. It begins like that of the zero request, which nobody can make, so that these
// rows lie together.
func forgottenKey(ns string, id task.ID) []byte {
	return append(idKey(ns, tabRequest, task.ID{}), id[:]...)
}

func attemptKey(ns string, id task.ID, fence uint64) []byte {
	k := append(table(ns, tabAttempt), id[:]...)
	return binary.BigEndian.AppendUint64(k, fence)
}

func memberKey(ns string, group, ref task.ID) []byte {
	k := append(table(ns, tabMember), group[:]...)
	return append(k, ref[:]...)
}

func queueKey(ns string, tab byte, queue string) []byte {
	return append(append(table(ns, tab), queue...), 0)
}

// laneKey is the row of a lane, or with tabReady the prefix of its tasks.
func laneKey(ns string, tab byte, queue string, l laneName) []byte {
	k := table(ns, tab)
	k = append(append(k, queue...), 0)
	k = append(k, byte(l.priority))
	k = append(append(k, l.key...), 0)
	return append(append(k, l.typ...), 0)
}

func readyKey(ns, queue string, l laneName, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(laneKey(ns, tabReady, queue, l), seq)
}

func listedKey(ns, queue string, id task.ID) []byte {
	k := append(append(table(ns, tabListed), queue...), 0)
	return append(k, id[:]...)
}

func waitKey(ns, queue string, s task.State, runAt store.Time, id task.ID) []byte {
	return timedKey(statePrefix(ns, tabWaiting, queue, s), runAt, id)
}

func deadKey(ns, queue string, s task.State, ended store.Time, id task.ID) []byte {
	return timedKey(statePrefix(ns, tabDead, queue, s), ended, id)
}

// deadTail is the length of what follows queue and state in a deadKey: when it ended, and its id.
const deadTail = 24

func archiveKey(ns string, ended store.Time, id task.ID) []byte {
	return timedKey(table(ns, tabArchive), ended, id)
}

func statePrefix(ns string, tab byte, queue string, s task.State) []byte {
	k := table(ns, tab)
	return append(append(k, queue...), 0, byte(s))
}

func timedKey(prefix []byte, at store.Time, id task.ID) []byte {
	return append(binary.BigEndian.AppendUint64(prefix, uint64(max(at, 0))), id[:]...)
}

func claimedKey(ns, queue, key string, id task.ID) []byte {
	k := table(ns, tabClaimed)
	k = append(append(k, queue...), 0)
	k = append(append(k, key...), 0)
	return append(k, id[:]...)
}

func useKey(ns, queue, key string) []byte {
	return append(queueKey(ns, tabUse, queue), key...)
}

// bucketRest names a bucket in its deadline.
func bucketRest(queue, key string) []byte {
	return append(append([]byte(queue), 0), key...)
}

func breakerKey(ns, queue, typ string) []byte {
	return append(queueKey(ns, tabBreaker, queue), typ...)
}

// typeRest names a breaker in its deadline.
func typeRest(queue, typ string) []byte { return bucketRest(queue, typ) }

// nameKey is a row of a schedule.
func nameKey(ns string, tab byte, name string) []byte { return queueKey(ns, tab, name) }

func tickKey(ns, name string, seq uint64) []byte {
	k := table(ns, tabTick)
	return binary.BigEndian.AppendUint64(append(append(k, name...), 0), seq)
}

func idempotencyKey(ns, queue, key string) []byte {
	k := table(ns, tabKey)
	return append(append(append(k, queue...), 0), key...)
}

func uniqueKey(ns, queue, key string) []byte {
	k := table(ns, tabUnique)
	return append(append(append(k, queue...), 0), key...)
}

func onceRowKey(ns, queue, key string) []byte {
	return append(queueKey(ns, tabOnce, queue), key...)
}

func claimKeyKey(ns, key string) []byte {
	return append(table(ns, tabClaimKey), key...)
}

// deadlineKey is a deadline at time at; the rest names what it is for: a task's id, or the key's row in its table.
func deadlineKey(at store.Time, kind deadlineKind, ns string, rest []byte) []byte {
	k := append(make([]byte, 0, keyRoom), timelines[timelineOf(kind)])
	k = binary.BigEndian.AppendUint64(k, uint64(max(at, 0)))
	k = append(k, byte(kind))
	k = append(append(k, ns...), 0)
	return append(k, rest...)
}

// timelineKey is where the deadlines of a time begin in a timeline.
func timelineKey(line int, at store.Time) []byte {
	return binary.BigEndian.AppendUint64([]byte{timelines[line]}, uint64(max(at, 0)))
}

// deadline is a parsed deadlineKey.
type deadline struct {
	at   store.Time
	kind deadlineKind
	ns   string
	rest []byte
}

func parseDeadline(k []byte) (deadline, bool) {
	if len(k) < 11 {
		return deadline{}, false
	}
	d := deadline{at: store.Time(binary.BigEndian.Uint64(k[1:])), kind: deadlineKind(k[9])}
	for i, b := range k[10:] {
		if b == 0 {
			d.ns, d.rest = string(k[10:10+i]), append([]byte(nil), k[10+i+1:]...)
			return d, true
		}
	}
	return deadline{}, false
}

// compare orders deadlines as they lie in their tables, those of all tables together.
func (d deadline) compare(o deadline) int {
	return cmp.Or(cmp.Compare(d.at, o.at), cmp.Compare(d.kind, o.kind), strings.Compare(d.ns, o.ns), bytes.Compare(d.rest, o.rest))
}

func errDeadline(k []byte) error { return fmt.Errorf("deadline key %x", k) }

// id is what the deadline of a task, a group, an operation or a step of one is for.
func (d deadline) id() task.ID {
	if len(d.rest) != 16 {
		corrupt(errDeadline(d.rest))
	}
	return task.ID(d.rest)
}

// after is the smallest key behind all keys with this prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0xff, 0xff}
}

// idAt reads the task id that ends a key.
func idAt(k []byte) (id task.ID) {
	copy(id[:], k[len(k)-16:])
	return id
}
