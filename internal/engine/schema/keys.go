package schema

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The key layout. Every key begins with its table's letter, so that each table has files of its own (store.Open), then
// its namespace and a zero byte; names inside a key end with a zero byte, which no name contains. Numbers are
// big-endian, so that rows are sorted by them.
//
//	e ns 0 id                                envelope: written once
//	s ns 0 id                                execution state
//	i ns 0 queue 0 id                        a task of a queue, for lists
//	r ns 0 id                                result
//	c ns 0 id                                checkpoint
//	a ns 0 id fence                          an attempt that ended without success
//	l ns 0 queue 0 prio key 0 type 0 seq     a ready task, in its lane
//	L ns 0 queue 0 prio key 0 type 0         a lane that is not empty: count and head
//	w ns 0 queue 0 state run_at id           a scheduled or retrying task, or a ready one that waits for its unique key or a predecessor
//	d ns 0 queue 0 state ended id            a dead letter or poisoned task, with its fingerprint and type
//	k ns 0 queue 0 key                       an idempotency key
//	q ns 0 request                           a request id that is not a UUIDv7
//	q ns 0 zero id                           a task that was forgotten while its request could still be repeated
//	u ns 0 queue 0 key                       a unique key: the task that holds it, and the next one
//	J ns 0 queue 0 key 0                     the first task of a key that has not ended, in a queue with strict key order
//	j ns 0 queue 0 key 0 order               a task behind it
//	g ns 0 claim_key                         the claims made with a claim key
//	C ns 0 queue 0 key 0 id                  a claimed task that is not listed in the row of its key
//	y ns 0 queue 0 key                       a once key: its holder, or its result
//	b ns 0 queue 0 key                       what a key, or the queue as a whole, uses: tokens, unless the bucket is full, and claims
//	Q ns 0 queue 0                           settings and pause of a queue, copied from the system shard
//	n ns 0 queue 0                           counters of a queue
//	S ns 0                                   the namespace's share of its quotas
//	B ns 0 queue 0 type                      a circuit breaker that is not closed or has recent outcomes
//	p ns 0 schedule 0                        the definition of a schedule
//	P ns 0 schedule 0                        the state of a schedule: its next tick
//	h ns 0 schedule 0 seq                    an entry of a schedule's history
//	D ns 0 schedule 0                        a schedule that was deleted recently
//	o ns 0 request                           a task on its way to another shard
//	f ns 0 id                                the follow-up tasks of a task or a group
//	G ns 0 group                             the state of a group, and its counters
//	M ns 0 group ref                         a member of a group
//	O ns 0 id                                an operation, in its home shard
//	m ns 0 operation                         the last step that the shard took for an operation
//	W ns 0                                   the events to which the webhooks of the namespace subscribe, copied from the system shard
//	N ns 0 kind 0 queue 0                    events of a queue for webhooks, while they are gathered
//	x ns 0 ended id                          a dead letter whose retention is over, to be archived
//	z ns 0 id                                a zone of ids that begins with this one: a summary of its tasks for searches
//	t time kind ns 0 …                       a deadline; the rest names the row it is for
//	t time kind ns 0 seq                     the end of the retention of tasks that ended in one round, or of the remains of tasks
//	                                         forgotten in one; the value has their ids
//	v time kind ns 0 seq                     the end of leases granted in one round; the value has the ids of their tasks
//	R 0                                      the shard was restored from a backup not long ago
//	X ns 0 seq                               a row that was set apart as a loop failed on it: its key, its value, why and when
//	A 0 …                                    the audit log: see its package
const (
	TableEnvelope     = 'e'
	TableExec         = 's'
	TableListed       = 'i'
	TableResult       = 'r'
	TableCheckpoint   = 'c'
	TableAttempt      = 'a'
	TableReady        = 'l'
	TableLane         = 'L'
	TableWaiting      = 'w'
	TableDead         = 'd'
	TableKey          = 'k'
	TableRequest      = 'q'
	TableUnique       = 'u'
	TableFirst        = 'J'
	TableOrder        = 'j'
	TableClaimKey     = 'g'
	TableClaimed      = 'C'
	TableOnce         = 'y'
	TableUse          = 'b'
	TableQueue        = 'Q'
	TableCounts       = 'n'
	TableShare        = 'S'
	TableBreaker      = 'B'
	TableArchive      = 'x'
	TablePlan         = 'p'
	TableProgress     = 'P'
	TableTick         = 'h'
	TableDeletion     = 'D'
	TableOutbox       = 'o'
	TableFollow       = 'f'
	TableGroup        = 'G'
	TableMember       = 'M'
	TableOperation    = 'O'
	TableStep         = 'm'
	TableWatch        = 'W'
	TableNotification = 'N'
	TableZone         = 'z'
	TableApart        = 'X'
	TableDeadline     = 't'
	TableLease        = 'v'
	TableRestored     = 'R'
)

// This does not compile if two tables have the same letter.
var _ = [...]struct{}{
	TableEnvelope: {}, TableExec: {}, TableListed: {}, TableResult: {}, TableCheckpoint: {}, TableAttempt: {}, TableReady: {},
	TableLane: {}, TableWaiting: {}, TableDead: {}, TableKey: {}, TableRequest: {}, TableUnique: {}, TableFirst: {}, TableOrder: {},
	TableClaimKey: {}, TableClaimed: {}, TableOnce: {}, TableUse: {}, TableQueue: {}, TableCounts: {}, TableShare: {}, TableBreaker: {},
	TableArchive: {}, TablePlan: {}, TableProgress: {}, TableTick: {}, TableDeletion: {}, TableOutbox: {}, TableFollow: {}, TableGroup: {},
	TableMember: {}, TableOperation: {}, TableStep: {}, TableWatch: {}, TableNotification: {}, TableZone: {}, TableApart: {},
	TableDeadline: {}, TableLease: {}, TableRestored: {},
}

// Timelines lists the tables of deadlines. Leases have their own: most end early, so it stays short, and it lists every claimed task.
var Timelines = [...]byte{TableDeadline, TableLease}

// TimelineOf returns the index of a kind's table in Timelines.
func TimelineOf(kind DeadlineKind) int {
	if kind == OnLease {
		return 1
	}
	return 0
}

// DeadlineKind is a kind of deadline. The values are stored.
type DeadlineKind byte

const (
	OnDue          DeadlineKind = 1 + iota // scheduled or retrying: becomes ready
	OnLease                                // claimed: the lease ends
	OnExpiry                               // not started yet: discarded
	OnForget                               // ended: its rows are deleted
	_                                      // formerly an idempotency key, in a row of its own
	_                                      // formerly a request id
	OnClaimKey                             // a claim key expires
	OnTokens                               // a bucket has a token again
	OnSweep                                // full buckets of a queue are forgotten
	OnTick                                 // a schedule's next tick
	OnDeletion                             // a deleted schedule is forgotten
	OnOnce                                 // a once key is forgotten
	OnBreaker                              // a breaker's hold ends, or its wait for a probe
	OnAudit                                // the oldest entries of the audit log are removed; of no namespace
	OnGroup                                // members of a group are cancelled, or its rows are deleted
	OnOperation                            // an operation that has ended is forgotten
	OnStep                                 // the last step for an operation is forgotten
	OnNotification                         // a notice for webhooks is due, or its pause is over
	OnForgotten                            // the remains of forgotten tasks are deleted
	_                                      // formerly an idempotency key that was renewed
	OnKey                                  // idempotency keys expire
	OnRequest                              // request ids expire
)

// Shared reports whether tasks share rows for their deadlines of this kind.
func (k DeadlineKind) Shared() bool { return k == OnLease || k == OnForget || k == OnForgotten }

// OfKeys reports whether keys share rows for their deadlines of this kind.
func (k DeadlineKind) OfKeys() bool { return k == OnKey || k == OnRequest }

// keyRoom is enough for most keys, in bytes. It is a constant so that a key that is only written or deleted is built on the stack.
const keyRoom = 96

// Table returns the beginning of a key in a table.
func Table(ns string, tab byte) []byte {
	k := append(make([]byte, 0, keyRoom), tab)
	return append(append(k, ns...), 0)
}

// TableBounds returns the bounds of a namespace's part of a table.
func TableBounds(ns string, tab byte) (lo, hi []byte) {
	lo = Table(ns, tab)
	return lo, After(lo)
}

// IDKey returns the row key of a task, or of something else that has an id, in a table.
func IDKey(ns string, tab byte, id task.ID) []byte {
	return append(Table(ns, tab), id[:]...)
}

// ForgottenKey returns the key of the row that remains of a forgotten task. It begins like that of the zero request id,
// which no request can have, so that these rows are adjacent.
func ForgottenKey(ns string, id task.ID) []byte {
	return append(IDKey(ns, TableRequest, task.ID{}), id[:]...)
}

// IsForgotten reports whether a key is a ForgottenKey.
func IsForgotten(ns string, k []byte) bool {
	return bytes.HasPrefix(k, IDKey(ns, TableRequest, task.ID{}))
}

// AttemptKey returns the row key of an attempt that ended without success.
func AttemptKey(ns string, id task.ID, fence uint64) []byte {
	return binary.BigEndian.AppendUint64(IDKey(ns, TableAttempt, id), fence)
}

// MemberKey returns the row key of a member of a group.
func MemberKey(ns string, group, ref task.ID) []byte {
	return append(IDKey(ns, TableMember, group), ref[:]...)
}

// QueueKey returns the row key of a queue in a table, or the prefix of its rows.
func QueueKey(ns string, tab byte, queue string) []byte {
	return append(append(Table(ns, tab), queue...), 0)
}

// LaneKey returns the row key of a lane, or with TableReady the prefix of its tasks.
func LaneKey(ns string, tab byte, queue string, l LaneName) []byte {
	k := append(QueueKey(ns, tab, queue), byte(l.Priority))
	k = append(append(k, l.Key...), 0)
	return append(append(k, l.Type...), 0)
}

// ReadyKey returns the row key of a ready task.
func ReadyKey(ns, queue string, l LaneName, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(LaneKey(ns, TableReady, queue, l), seq)
}

// ListedKey returns the key of the row by which lists of a queue find a task.
func ListedKey(ns, queue string, id task.ID) []byte {
	return append(QueueKey(ns, TableListed, queue), id[:]...)
}

// WaitKey returns the row key of a scheduled or retrying task, or of a ready one that is in no lane.
func WaitKey(ns, queue string, s task.State, runAt store.Time, id task.ID) []byte {
	return TimedKey(StatePrefix(ns, TableWaiting, queue, s), runAt, id)
}

// DeadKey returns the row key of a dead letter or poisoned task in the index of the dead.
func DeadKey(ns, queue string, s task.State, ended store.Time, id task.ID) []byte {
	return TimedKey(StatePrefix(ns, TableDead, queue, s), ended, id)
}

// DeadTail is the length of what follows queue and state in a DeadKey: the end time and the id.
const DeadTail = 24

// ArchiveKey returns the row key of a dead letter that waits to be archived.
func ArchiveKey(ns string, ended store.Time, id task.ID) []byte {
	return TimedKey(Table(ns, TableArchive), ended, id)
}

// StatePrefix returns the prefix of the rows of a queue's tasks in a state.
func StatePrefix(ns string, tab byte, queue string, s task.State) []byte {
	return append(QueueKey(ns, tab, queue), byte(s))
}

// TimedKey appends a time and an id to a key.
func TimedKey(prefix []byte, at store.Time, id task.ID) []byte {
	return append(binary.BigEndian.AppendUint64(prefix, uint64(max(at, 0))), id[:]...)
}

// ClaimedKey returns the row key of a claimed task that is not listed in the row of its key.
func ClaimedKey(ns, queue, key string, id task.ID) []byte {
	k := append(QueueKey(ns, TableClaimed, queue), key...)
	return append(append(k, 0), id[:]...)
}

// UseKey returns the row key of what a key uses, or the queue as a whole for "".
func UseKey(ns, queue, key string) []byte {
	return append(QueueKey(ns, TableUse, queue), key...)
}

// BucketRest returns the part of a deadline's key that names a bucket.
func BucketRest(queue, key string) []byte {
	return append(append([]byte(queue), 0), key...)
}

// BreakerKey returns the row key of a type's circuit breaker.
func BreakerKey(ns, queue, typ string) []byte {
	return append(QueueKey(ns, TableBreaker, queue), typ...)
}

// TypeRest returns the part of a deadline's key that names a breaker.
func TypeRest(queue, typ string) []byte { return BucketRest(queue, typ) }

// NameKey returns the key of a schedule's row in a table.
func NameKey(ns string, tab byte, name string) []byte { return QueueKey(ns, tab, name) }

// TickKey returns the row key of an entry of a schedule's history.
func TickKey(ns, name string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(NameKey(ns, TableTick, name), seq)
}

// IdempotencyKey returns the row key of an idempotency key.
func IdempotencyKey(ns, queue, key string) []byte {
	return append(QueueKey(ns, TableKey, queue), key...)
}

// UniqueKey returns the row key of a unique key.
func UniqueKey(ns, queue, key string) []byte {
	return append(QueueKey(ns, TableUnique, queue), key...)
}

// OnceRowKey returns the row key of a once key.
func OnceRowKey(ns, queue, key string) []byte {
	return append(QueueKey(ns, TableOnce, queue), key...)
}

// ClaimKeyKey returns the row key of a claim key.
func ClaimKeyKey(ns, key string) []byte {
	return append(Table(ns, TableClaimKey), key...)
}

// DeadlineKey returns the row key of a deadline. The rest names what it is for, such as a task's id or a claim key. In
// a shared row, it is a number that no other row of the shard has.
func DeadlineKey(at store.Time, kind DeadlineKind, ns string, rest []byte) []byte {
	k := append(make([]byte, 0, keyRoom), Timelines[TimelineOf(kind)])
	k = binary.BigEndian.AppendUint64(k, uint64(max(at, 0)))
	k = append(k, byte(kind))
	k = append(append(k, ns...), 0)
	return append(k, rest...)
}

// TimelineKey returns the key at which the deadlines of a time begin in a timeline.
func TimelineKey(line int, at store.Time) []byte {
	return binary.BigEndian.AppendUint64([]byte{Timelines[line]}, uint64(max(at, 0)))
}

// Deadline is the row of a deadline.
type Deadline struct {
	At        store.Time
	Kind      DeadlineKind
	Namespace string
	Rest      []byte
	Shared    []task.ID // the tasks of a shared row
	Keys      [][]byte  // the rows of a shared row's keys, in their table
}

// ReadDeadline decodes the row of a deadline, which must be valid.
func ReadDeadline(k, v []byte) Deadline {
	d, ok := ParseDeadline(k, v)
	if !ok {
		Damaged(ErrDeadline(k))
	}
	return d
}

// ParseDeadline decodes the row of a deadline, and reports whether it is valid.
func ParseDeadline(k, v []byte) (Deadline, bool) {
	if len(k) < 11 {
		return Deadline{}, false
	}
	d := Deadline{At: DeadlineTime(k), Kind: DeadlineKind(k[9])}
	ns, rest, ok := bytes.Cut(k[10:], []byte{0})
	if !ok || (d.Kind.Shared() || d.Kind.OfKeys()) != (len(v) > 0) {
		return Deadline{}, false
	}
	d.Namespace, d.Rest = string(ns), bytes.Clone(rest)
	switch {
	case d.Kind.OfKeys():
		d.Keys, ok = decodeKeys(v)
	case len(v)%len(task.ID{}) != 0:
		ok = false
	default:
		d.Shared = decodeIDs(v)
	}
	return d, ok
}

// DeadlineTime returns the time of a DeadlineKey.
func DeadlineTime(k []byte) store.Time { return store.Time(binary.BigEndian.Uint64(k[1:])) }

func decodeIDs(row []byte) (ids []task.ID) {
	for id := range slices.Chunk(row, len(task.ID{})) {
		ids = append(ids, task.ID(id))
	}
	return ids
}

func decodeKeys(row []byte) (keys [][]byte, ok bool) {
	for len(row) > 0 {
		key, n := protowire.ConsumeBytes(row)
		if n < 0 {
			return nil, false
		}
		keys, row = append(keys, bytes.Clone(key)), row[n:]
	}
	return keys, true
}

// Key returns the key of the deadline's row.
func (d Deadline) Key() []byte { return DeadlineKey(d.At, d.Kind, d.Namespace, d.Rest) }

// Value returns the value of the deadline's row.
func (d Deadline) Value() []byte {
	row := make([]byte, 0, len(d.Shared)*len(task.ID{}))
	for i := range d.Shared {
		row = append(row, d.Shared[i][:]...)
	}
	for _, key := range d.Keys {
		row = protowire.AppendBytes(row, key)
	}
	return row
}

// Joined merges the first deadline with those right behind it that have the same time, kind and namespace. It returns
// the merged deadline and how many there were.
func Joined(due []Deadline) (d Deadline, n int) {
	d, n = due[0], 1
	for (d.Kind.Shared() || d.Kind.OfKeys()) && n < len(due) && due[n].At == d.At && due[n].Kind == d.Kind &&
		due[n].Namespace == d.Namespace {
		d.Shared, d.Keys = append(d.Shared, due[n].Shared...), append(d.Keys, due[n].Keys...)
		n++
	}
	return d, n
}

// First splits the deadline into that of its first task or key, and that of the others, which may be none.
func (d Deadline) First() (one, rest Deadline) {
	one, rest = d, d
	switch {
	case len(d.Shared) > 0:
		one.Shared, rest.Shared = d.Shared[:1], d.Shared[1:]
	case len(d.Keys) > 0:
		one.Keys, rest.Keys = d.Keys[:1], d.Keys[1:]
	}
	return one, rest
}

// Acts returns how many tasks, keys or other things the deadline is for.
func (d Deadline) Acts() int { return max(len(d.Shared)+len(d.Keys), 1) }

// Compare orders deadlines, those of all tables together, as each table does.
func (d Deadline) Compare(o Deadline) int {
	return cmp.Or(cmp.Compare(d.At, o.At), cmp.Compare(d.Kind, o.Kind), strings.Compare(d.Namespace, o.Namespace),
		bytes.Compare(d.Rest, o.Rest))
}

// ErrDeadline returns the error for a deadline key that can't be decoded.
func ErrDeadline(k []byte) error { return fmt.Errorf("deadline key %x", k) }

// ID returns the id of the task, group, operation or operation's step that the deadline is for.
func (d Deadline) ID() task.ID {
	if len(d.Rest) != 16 {
		Damaged(ErrDeadline(d.Rest))
	}
	return task.ID(d.Rest)
}

// After returns the smallest key greater than all keys with this prefix.
func After(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0xff, 0xff}
}

// IDAt returns the task id at the end of a key.
func IDAt(k []byte) (id task.ID) {
	copy(id[:], k[len(k)-16:])
	return id
}

// IDKeys returns the keys of several tasks' rows in a table.
func IDKeys(ns string, table byte, ids []task.ID) [][]byte {
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = IDKey(ns, table, id)
	}
	return keys
}
