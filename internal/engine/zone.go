package engine

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The ids of a namespace, which lie about in the order of creation, are divided into zones of some hundreds. The row of a zone says which types
// and which end states its tasks have, or had, so that a search for rare ones skips most zones without reading a task: what databases call
// a zone map.
//
// A zone never forgets. What a task is or becomes for good, its type and its end, so costs a write for the first of a zone only; states in
// which a task merely waits are found by the indexes of those states instead. Ids below the first zone belong to none and are always
// read.

// zoneTasks is how many tasks a zone gets before another begins. Tests change it.
var zoneTasks = 500

// maxFeatures bounds the features of a zone, of tasks and of tasks by their queues. A zone that has more is never skipped.
const maxFeatures = 256

// feature is a hash of a type, an end state and a queue, or of some of them. Two may have the same one: then a zone is read in vain.
type feature uint16

// featureOf is the feature of what is given: no state is 0, no queue or type is "".
func featureOf(s task.State, queue, typ string) feature {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write([]byte{byte(s)})
	_, _ = d.WriteString(queue)
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(typ)
	return feature(d.Sum64()) // #nosec G115 -- the last 16 bits
}

// features is a set of them, in order.
type features struct {
	any bool // all of them: there were too many to tell apart
	has []feature
}

func (s *features) may(f feature) bool {
	if s.any {
		return true
	}
	_, ok := slices.BinarySearch(s.has, f)
	return ok
}

// add says whether that changed the set.
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

func (s *features) encode() []byte {
	b := make([]byte, 0, 2*len(s.has))
	for _, f := range s.has {
		b = binary.BigEndian.AppendUint16(b, uint16(f))
	}
	return b
}

func decodeFeatures(b []byte) []feature {
	all := make([]feature, len(b)/2)
	for i := range all {
		all[i] = feature(binary.BigEndian.Uint16(b[2*i:]))
	}
	return all
}

// zone is the ids from one up to the next zone's.
type zone struct {
	start   task.ID
	plain   features // of types and end states
	ofQueue features // the same, by queue

	tasks int   // about how many it has, as far as this leader knows
	noted *kind // the last that was added
	dirty bool  // its row is to be written
}

func (z *zone) encode() []byte {
	r := newRow(8 + 2*len(z.plain.has) + 2*len(z.ofQueue.has))
	r.num(1, flag(z.plain.any))
	r.bytes(2, z.plain.encode())
	r.num(3, flag(z.ofQueue.any))
	r.bytes(4, z.ofQueue.encode())
	return r
}

func decodeZone(start task.ID, row []byte) (*zone, error) {
	z := &zone{start: start}
	err := decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			z.plain.any = v != 0
		case 3:
			z.ofQueue.any = v != 0
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 2:
			z.plain.has = decodeFeatures(b)
		case 4:
			z.ofQueue.has = decodeFeatures(b)
		}
	})
	return z, err
}

// kind is what a zone can be told of a task: its type, and how it ended if it has.
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

// add notes a task of a kind.
func (z *zone) add(k *kind) (changed bool) {
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

// has says whether the features of a kind were noted.
func (z *zone) has(k *kind) bool {
	missing := func(s *features) func(feature) bool { return func(f feature) bool { return !s.may(f) } }
	return !slices.ContainsFunc(k.plain, missing(&z.plain)) && !slices.ContainsFunc(k.ofQueue, missing(&z.ofQueue))
}

// zones is the leader's memory of the zones of a namespace.
type zones struct {
	ns       string
	all      []*zone // by their starts
	greatest task.ID // of all ids that were stored
	empty    bool    // no id was ever stored
	at       int     // the zone that was asked for last
	swept    int     // the next one to be looked at by sweep
	kinds    map[kindName]*kind
	last     [2]*kind // those asked for last: of a task that waits, and of one that has ended
}

type kindName struct {
	state      task.State
	queue, typ string
}

// maxKinds bounds how many kinds are remembered.
const maxKinds = 1000

// kindOf makes each kind once, so that most tasks can be seen to be of the same one as those before.
func (zs *zones) kindOf(s task.State, queue, typ string) *kind {
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

func zoneKey(ns string, start task.ID) []byte { return idKey(ns, tabZone, start) }

// zonesOf reads the zones of a namespace, if that was not done before.
func (r *Round) zonesOf(ns string) *zones {
	if zs := r.l.zones[ns]; zs != nil {
		return zs
	}
	zs := readZones(r.tx, ns)
	for _, z := range zs.all {
		z.tasks = zoneTasks / 2 // nobody knows
	}
	lo, hi := tableBounds(ns, tabExec)
	r.tx.ScanBack(lo, hi, func(k, _ []byte) bool {
		zs.greatest, zs.empty = idAt(k), false
		return false
	})
	r.l.zones[ns] = zs
	return zs
}

func readZones(from store.Reader, ns string) *zones {
	zs := &zones{ns: ns, kinds: map[kindName]*kind{}, empty: true}
	lo, hi := tableBounds(ns, tabZone)
	from.Scan(lo, hi, func(k, v []byte) bool {
		z, err := decodeZone(idAt(k), v)
		corrupt(err)
		zs.all = append(zs.all, z)
		return true
	})
	return zs
}

// find is the place of the zone of an id; -1: it lies below the first.
func (zs *zones) find(id task.ID) int {
	holds := func(i int) bool {
		return i < len(zs.all) && bytes.Compare(zs.all[i].start[:], id[:]) <= 0 && (i+1 == len(zs.all) || bytes.Compare(id[:], zs.all[i+1].start[:]) < 0)
	}
	if last := len(zs.all) - 1; last >= 0 && holds(last) {
		return last
	}
	if !holds(zs.at) {
		at, exact := slices.BinarySearchFunc(zs.all, id, func(z *zone, id task.ID) int { return bytes.Compare(z.start[:], id[:]) })
		if !exact {
			at--
		}
		zs.at = max(at, 0)
		return at
	}
	return zs.at
}

// noteInZone lets the zone of a task that is new, or has ended, tell of it.
func (r *Round) noteInZone(ns string, id task.ID, from, to *Exec) {
	if from != nil && !to.State.Ended() {
		return
	}
	zs := r.zonesOf(ns)
	var z *zone
	if from == nil {
		z = r.zoneForNew(zs, id)
	} else if at := zs.find(id); at >= 0 {
		z = zs.all[at]
	}
	if z == nil {
		return
	}
	if from == nil {
		z.tasks++
		r.addToZone(zs, z, zs.kindOf(0, to.Queue, to.Type))
	}
	if to.State.Ended() {
		r.addToZone(zs, z, zs.kindOf(to.State, to.Queue, to.Type))
	}
}

func (r *Round) addToZone(zs *zones, z *zone, k *kind) {
	if z.add(k) {
		r.touchZone(zs, z)
	}
}

func (r *Round) touchZone(zs *zones, z *zone) {
	if !z.dirty {
		z.dirty = true
		r.zones = append(r.zones, dirtyZone{zs.ns, z})
	}
}

type dirtyZone struct {
	ns string
	z  *zone
}

// sealZones writes the zones that the round changed.
func (r *Round) sealZones() {
	for _, d := range r.zones {
		d.z.dirty = false
		r.tx.Set(zoneKey(d.ns, d.z.start), d.z.encode())
	}
	r.zones = nil
}

// maxZoneTasks is how many a zone may get before it is divided within a millisecond: ids of one millisecond come in no order.
func maxZoneTasks() int { return 4 * zoneTasks }

// zoneForNew is where a new task belongs; nil: below the first zone.
func (r *Round) zoneForNew(zs *zones, id task.ID) *zone {
	newest, ofNewMilli := zs.empty || bytes.Compare(id[:], zs.greatest[:]) > 0, zs.empty || id.UnixMilli() > zs.greatest.UnixMilli()
	if newest {
		defer func() { zs.greatest, zs.empty = id, false }()
	}
	at := zs.find(id)
	if len(zs.all) == 0 && zs.empty {
		return r.beginZone(zs, 0, &zone{}) // of all ids
	}
	if at < 0 && !newest {
		return nil
	}
	switch full := at < 0 || zs.all[at].tasks >= zoneTasks; {
	case !full:
		return zs.all[at]
	case ofNewMilli:
		return r.beginZone(zs, at+1, &zone{start: firstOfMilli(id)})
	case at >= 0 && zs.all[at].tasks < maxZoneTasks() && zs.all[at].start.UnixMilli() == id.UnixMilli():
		return zs.all[at]
	case newest:
		return r.beginZone(zs, at+1, &zone{start: id})
	}
	return r.divideZone(zs, at, id)
}

// divideZone makes two zones of one that has too many tasks, because of ids of a producer whose clock is behind.
func (r *Round) divideZone(zs *zones, at int, id task.ID) *zone {
	old, start := zs.all[at], firstOfMilli(id)
	if bytes.Compare(start[:], old.start[:]) <= 0 {
		if start = id; start == old.start {
			return old
		}
	}
	old.tasks /= 2
	return r.beginZone(zs, at+1, &zone{start: start, tasks: old.tasks, plain: old.plain.clone(), ofQueue: old.ofQueue.clone()})
}

// firstOfMilli is the lowest id of an id's millisecond.
func firstOfMilli(id task.ID) (first task.ID) {
	copy(first[:6], id[:6])
	return first
}

// beginZone puts a zone in its place, and looks for some that have become empty.
func (r *Round) beginZone(zs *zones, at int, z *zone) *zone {
	zs.all = slices.Insert(zs.all, at, z)
	r.touchZone(zs, z)
	r.sweepZones(zs, z)
	return z
}

// sweepPerZone is how many zones are looked at whenever one begins: more than begin, so that empty ones become few.
const sweepPerZone = 4

// sweepZones forgets zones without tasks. The first one stays: below it zones would tell nothing.
func (r *Round) sweepZones(zs *zones, begun *zone) {
	for range min(sweepPerZone, len(zs.all)-2) {
		if zs.swept++; zs.swept >= len(zs.all)-1 {
			zs.swept = 1
		}
		z := zs.all[zs.swept]
		if z == begun {
			continue
		}
		if _, _, some := r.tx.First(idKey(zs.ns, tabExec, z.start), idKey(zs.ns, tabExec, zs.all[zs.swept+1].start)); some {
			continue
		}
		r.tx.Delete(zoneKey(zs.ns, z.start))
		r.zones = slices.DeleteFunc(r.zones, func(d dirtyZone) bool { return d.z == z })
		zs.all = slices.Delete(zs.all, zs.swept, zs.swept+1)
		zs.swept--
	}
}
