package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// What a shard wants of another goes through its outbox: written in the entry that wants it, brought there by the leader's
// courier as often as need be, and removed when the other shard has answered. There it counts once: a parcel is enqueued with a
// request id of its own, which that shard remembers for as long as a courier may come again.

// Parcel is a task on its way to another shard.
type Parcel struct {
	Request task.ID
	Spec    task.Spec
	SentAt  store.Time

	// Which tick it comes from.
	Schedule string
	Plan     task.ID
	Tick     uint64

	// Which operation moves it; zero: none.
	Operation task.ID
}

// parcelWindow is how long the shard that took a parcel remembers it: longer than a courier may need to come back from a shard
// that has no leader.
const parcelWindow = 24 * time.Hour

// send puts a parcel into the outbox.
func (r *Round) send(ns string, p *Parcel) {
	p.Spec.RequestID, p.Spec.RequestTTL, p.SentAt = p.Request, parcelWindow, r.now
	r.tx.Set(idKey(ns, tabOutbox, p.Request), p.encode())
	r.ToSend = true
}

func readParcel(from store.Reader, ns string, request task.ID) (*Parcel, bool) {
	row, ok := from.Get(idKey(ns, tabOutbox, request))
	if !ok {
		return nil, false
	}
	p, err := decodeParcel(request, row)
	corrupt(err)
	return p, true
}

// Outbox reads up to limit parcels behind a request, or about 8 MiB of them.
func Outbox(from store.Reader, ns string, behind task.ID, limit int) (parcels []*Parcel) {
	lo, hi := tableBounds(ns, tabOutbox)
	if behind != (task.ID{}) {
		lo = append(idKey(ns, tabOutbox, behind), 0)
	}
	m := &meter{Reader: from}
	m.Scan(lo, hi, func(k, row []byte) bool {
		p, err := decodeParcel(idAt(k), row)
		corrupt(err)
		parcels = append(parcels, p)
		return len(parcels) < limit && m.bytes < pageBytes
	})
	return parcels
}

// Delivered removes a parcel that was brought to its shard, or that no shard will ever take: then refused says why.
func Delivered(r *Round, ns string, request task.ID, a Accepted, refused *task.Error) {
	p, ok := readParcel(r.tx, ns, request)
	if !ok {
		return
	}
	r.tx.Delete(idKey(ns, tabOutbox, request))
	if p.Operation != (task.ID{}) {
		r.arrived(ns, p, a, refused)
		return
	}
	r.delivered(ns, p, a, refused)
}
