package zonemap

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The ids of a namespace, which are roughly in order of creation, are divided into zones of some hundreds. The row of a
// zone records which types and end states its tasks have, or had, so that a search for rare ones skips most zones
// without reading a task.
//
// A zone never forgets. So what is permanent about a task, its type and its end state, costs a write only for the first
// such task of a zone; tasks in transient states are found through the indexes of those states instead. Ids below the
// first zone belong to none and are always read.

// ZoneTasks is how many tasks a zone gets before the next begins. Tests change it.
var ZoneTasks = 500

// maxFeatures bounds each of the two sets of features of a zone. A zone with more is never skipped.
const maxFeatures = 256

// feature is a hash of a type, an end state and a queue, or of some of them. If two collide, a zone is read in vain.
type feature uint16

// featureOf returns the feature of what is given; 0 and "" mean any.
func featureOf(s task.State, queue, typ string) feature {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write([]byte{byte(s)})
	_, _ = d.WriteString(queue)
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(typ)
	return feature(d.Sum64()) // #nosec G115 -- the last 16 bits
}

// features is a sorted set of features.
type features struct {
	any bool // contains every feature, because there were too many
	has []feature
}

func (s *features) may(f feature) bool {
	if s.any {
		return true
	}
	_, ok := slices.BinarySearch(s.has, f)
	return ok
}

// add reports whether it changed the set.
func (s *features) add(f feature) bool {
	at, have := slices.BinarySearch(s.has, f)
	switch {
	case s.any || have:
		return false
	case len(s.has) == maxFeatures:
		s.any, s.has = true, nil
	default:
		s.has = slices.Insert(s.has, at, f)
	}
	return true
}

func (s *features) clone() features { return features{s.any, slices.Clone(s.has)} }

func (s *features) fields(f *schema.Fields, tag uint64) {
	f.Flag(tag, &s.any)
	if f.Encoding() && len(s.has) > 0 {
		b := make([]byte, 0, 2*len(s.has))
		for _, one := range s.has {
			b = binary.BigEndian.AppendUint16(b, uint16(one))
		}
		f.Put(tag+1, b)
	}
	for b := range f.Each(tag + 1) {
		s.has = make([]feature, len(b)/2)
		for i := range s.has {
			s.has[i] = feature(binary.BigEndian.Uint16(b[2*i:]))
		}
	}
}

// Zone is the range of ids from Start up to the next zone's.
type Zone struct {
	Start   task.ID
	plain   features // of types and end states
	ofQueue features // the same, together with the queue

	tasks int   // roughly how many it has, as far as this leader knows
	noted *kind // the last one added
	dirty bool  // its row must be written
}

func (z *Zone) encode() []byte {
	return schema.Encode(8+2*len(z.plain.has)+2*len(z.ofQueue.has), z, (*Zone).fields)
}

// Decode decodes the row of the zone that begins with an id.
func Decode(start task.ID, row []byte) (*Zone, error) {
	z := &Zone{Start: start}
	return z, schema.Decode(row, z, (*Zone).fields)
}

func (z *Zone) fields(f *schema.Fields) {
	z.plain.fields(f, 1)
	z.ofQueue.fields(f, 3)
}

// May reports whether the zone may have a task of a queue and type that ended in a state. State 0 means any, ended or
// not; "" means any queue or type.
func (z *Zone) May(s task.State, queue, typ string) bool {
	return z.plain.may(featureOf(s, "", typ)) && (queue == "" || z.ofQueue.may(featureOf(s, queue, typ)))
}

// kind is what a zone records of a task: its queue and type, and its state if it has ended.
type kind struct {
	state          task.State // 0: it has not ended
	queue, typ     string
	plain, ofQueue []feature
}

func newKind(s task.State, queue, typ string) *kind {
	k := &kind{state: s, queue: queue, typ: typ}
	if s == 0 {
		k.plain, k.ofQueue = []feature{featureOf(0, "", typ)}, []feature{featureOf(0, queue, typ)}
	} else {
		k.plain = []feature{featureOf(s, "", ""), featureOf(s, "", typ)}
		k.ofQueue = []feature{featureOf(s, queue, ""), featureOf(s, queue, typ)}
	}
	return k
}

// add records a task of a kind.
func (z *Zone) add(k *kind) (changed bool) {
	if z.noted == k {
		return false
	}
	z.noted = k
	for _, f := range k.plain {
		changed = z.plain.add(f) || changed
	}
	for _, f := range k.ofQueue {
		changed = z.ofQueue.add(f) || changed
	}
	return changed
}

// has reports whether the features of a kind were recorded.
func (z *Zone) has(k *kind) bool {
	missing := func(s *features) func(feature) bool { return func(f feature) bool { return !s.may(f) } }
	return !slices.ContainsFunc(k.plain, missing(&z.plain)) && !slices.ContainsFunc(k.ofQueue, missing(&z.ofQueue))
}

// Map holds the zones of a namespace. A leader keeps it between rounds.
type Map struct {
	ns       string
	all      []*Zone // by their starts
	greatest task.ID // of all stored ids
	empty    bool    // no id was ever stored
	at       int     // the zone looked up last
	swept    int     // index of the zone that sweep checked last
	dirty    []*Zone // zones whose rows must be written
	kinds    map[kindName]*kind
	last     [2]*kind // those looked up last: for a task that has not ended, and for one that has
}

type kindName struct {
	state      task.State
	queue, typ string
}

// maxKinds bounds how many kinds are kept.
const maxKinds = 1000

// kindOf returns the same pointer for equal kinds, so that most tasks are recognized as being of the last kind.
func (zs *Map) kindOf(s task.State, queue, typ string) *kind {
	last := &zs.last[0]
	if s != 0 {
		last = &zs.last[1]
	}
	if k := *last; k != nil && k.state == s && k.typ == typ && k.queue == queue {
		return k
	}
	name := kindName{s, queue, typ}
	k := zs.kinds[name]
	if k == nil {
		if len(zs.kinds) >= maxKinds {
			clear(zs.kinds)
		}
		k = newKind(s, queue, typ)
		zs.kinds[name] = k
	}
	*last = k
	return k
}

func zoneKey(ns string, start task.ID) []byte { return schema.IDKey(ns, schema.TableZone, start) }

// Open reads the map of a namespace.
func Open(tx *store.Tx, ns string) *Map {
	zs := Read(tx, ns)
	for _, z := range zs.all {
		z.tasks = ZoneTasks / 2 // a guess
	}
	lo, hi := schema.TableBounds(ns, schema.TableExec)
	tx.ScanBack(lo, hi, func(k, _ []byte) bool {
		zs.greatest, zs.empty = schema.IDAt(k), false
		return false
	})
	return zs
}

// Read reads the zones of a namespace, without what only a leader needs.
func Read(from store.Reader, ns string) *Map {
	zs := &Map{ns: ns, kinds: map[kindName]*kind{}, empty: true}
	lo, hi := schema.TableBounds(ns, schema.TableZone)
	from.Scan(lo, hi, func(k, v []byte) bool {
		z := schema.Must(Decode(schema.IDAt(k), v))
		zs.all = append(zs.all, z)
		return true
	})
	return zs
}

// find returns the index of the zone of an id; -1: it is below the first.
func (zs *Map) find(id task.ID) int {
	holds := func(i int) bool {
		return i < len(zs.all) && zs.all[i].Start.Compare(id) <= 0 && (i+1 == len(zs.all) || id.Compare(zs.all[i+1].Start) < 0)
	}
	if last := len(zs.all) - 1; last >= 0 && holds(last) {
		return last
	}
	if !holds(zs.at) {
		at, exact := slices.BinarySearchFunc(zs.all, id, func(z *Zone, id task.ID) int { return z.Start.Compare(id) })
		if !exact {
			at--
		}
		zs.at = max(at, 0)
		return at
	}
	return zs.at
}

// Note records a task that is new or has ended in its zone. It reports whether Seal has become necessary.
func (zs *Map) Note(tx *store.Tx, id task.ID, from, to *schema.Exec) (changed bool) {
	if from != nil && !to.State.Ended() {
		return false
	}
	before := len(zs.dirty)
	var z *Zone
	if from == nil {
		z = zs.zoneForNew(tx, id)
	} else if at := zs.find(id); at >= 0 {
		z = zs.all[at]
	}
	if z == nil {
		return false
	}
	if from == nil {
		z.tasks++
		zs.add(z, zs.kindOf(0, to.Queue, to.Type))
	}
	if to.State.Ended() {
		zs.add(z, zs.kindOf(to.State, to.Queue, to.Type))
	}
	return before == 0 && len(zs.dirty) > 0
}

func (zs *Map) add(z *Zone, k *kind) {
	if z.add(k) {
		zs.touch(z)
	}
}

func (zs *Map) touch(z *Zone) {
	if !z.dirty {
		z.dirty = true
		zs.dirty = append(zs.dirty, z)
	}
}

// Seal writes the zones that have changed.
func (zs *Map) Seal(tx *store.Tx) {
	for _, z := range zs.dirty {
		z.dirty = false
		tx.Set(zoneKey(zs.ns, z.Start), z.encode())
	}
	zs.dirty = nil
}

// Tells reports whether the zone of a task records its type, and its end state if it has ended. Ids below the first zone belong to none.
func (zs *Map) Tells(id task.ID, x *schema.Exec) bool {
	at := zs.find(id)
	if at < 0 {
		return true
	}
	z := zs.all[at]
	return z.has(zs.kindOf(0, x.Queue, x.Type)) && (!x.State.Ended() || z.has(zs.kindOf(x.State, x.Queue, x.Type)))
}

// Equal reports whether two maps have the same zones and zs has nothing to write. Tests compare memory with rows.
func (zs *Map) Equal(o *Map) bool {
	return len(zs.dirty) == 0 && slices.EqualFunc(zs.all, o.all, func(a, b *Zone) bool {
		return a.Start == b.Start && bytes.Equal(a.encode(), b.encode())
	})
}

// Starts returns the first ids of the zones.
func (zs *Map) Starts() (ids []task.ID) {
	for _, z := range zs.all {
		ids = append(ids, z.Start)
	}
	return ids
}

// maxZoneTasks is how many tasks a zone may get before it is divided within a millisecond: ids of one millisecond are in no order.
func maxZoneTasks() int { return 4 * ZoneTasks }

// zoneForNew returns the zone of a new task; nil: it is below the first zone.
func (zs *Map) zoneForNew(tx *store.Tx, id task.ID) *Zone {
	newest, ofNewMilli := zs.empty || id.Compare(zs.greatest) > 0, zs.empty || id.UnixMilli() > zs.greatest.UnixMilli()
	if newest {
		defer func() { zs.greatest, zs.empty = id, false }()
	}
	at := zs.find(id)
	if len(zs.all) == 0 && zs.empty {
		return zs.begin(tx, 0, &Zone{}) // contains all ids
	}
	if at < 0 && !newest {
		return nil
	}
	switch full := at < 0 || zs.all[at].tasks >= ZoneTasks; {
	case !full:
		return zs.all[at]
	case ofNewMilli:
		return zs.begin(tx, at+1, &Zone{Start: firstOfMilli(id)})
	case at >= 0 && zs.all[at].tasks < maxZoneTasks() && zs.all[at].Start.UnixMilli() == id.UnixMilli():
		return zs.all[at]
	case newest:
		return zs.begin(tx, at+1, &Zone{Start: id})
	}
	return zs.divide(tx, at, id)
}

// divide splits a zone that has too many tasks, because a producer's clock is behind.
func (zs *Map) divide(tx *store.Tx, at int, id task.ID) *Zone {
	old, start := zs.all[at], firstOfMilli(id)
	if start.Compare(old.Start) <= 0 {
		if start = id; start == old.Start {
			return old
		}
	}
	old.tasks /= 2
	return zs.begin(tx, at+1, &Zone{Start: start, tasks: old.tasks, plain: old.plain.clone(), ofQueue: old.ofQueue.clone()})
}

// firstOfMilli returns the lowest id of an id's millisecond.
func firstOfMilli(id task.ID) (first task.ID) {
	copy(first[:6], id[:6])
	return first
}

// begin inserts a zone, and sweeps some that have become empty.
func (zs *Map) begin(tx *store.Tx, at int, z *Zone) *Zone {
	zs.all = slices.Insert(zs.all, at, z)
	zs.touch(z)
	zs.sweep(tx, z)
	return z
}

// sweepPerZone is how many zones are checked whenever one begins: more than one, so that empty ones become few.
const sweepPerZone = 4

// sweep removes zones without tasks. The first one stays, because ids below it would belong to no zone.
func (zs *Map) sweep(tx *store.Tx, begun *Zone) {
	for range min(sweepPerZone, len(zs.all)-2) {
		if zs.swept++; zs.swept >= len(zs.all)-1 {
			zs.swept = 1
		}
		z := zs.all[zs.swept]
		if z == begun {
			continue
		}
		if _, _, some := tx.First(schema.IDKey(zs.ns, schema.TableExec, z.Start), schema.IDKey(zs.ns, schema.TableExec,
			zs.all[zs.swept+1].Start)); some {
			continue
		}
		tx.Delete(zoneKey(zs.ns, z.Start))
		zs.dirty = slices.DeleteFunc(zs.dirty, func(d *Zone) bool { return d == z })
		zs.all = slices.Delete(zs.all, zs.swept, zs.swept+1)
		zs.swept--
	}
}
