package shard

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3"
)

// reads are the reads that wait until a majority confirms, by Raft's ReadIndex, that this replica leads.
type reads struct {
	l       *loop
	waiting map[uint64]*read // by the number of their request
	last    uint64           // the number of the last request
}

// read is a group of callers who wait until a majority confirms that this is the leader: views, and the calls of a round
// that wrote nothing.
type read struct {
	calls []*call
	stamp Stamp // of the refusals
}

// start asks for confirmation of all waiting views with one ReadIndex request.
func (rs *reads) start() {
	if rs.l.leading == nil {
		if !rs.l.electing() {
			rs.l.calls.refuse(&NotLeader{rs.l.soft.Lead})
		}
		return
	}
	views := rs.l.calls.takeViews()
	waiting := views[:0]
	for _, c := range views {
		if c.take() {
			waiting = append(waiting, c)
		}
	}
	if len(waiting) > 0 {
		rs.readIndex(&read{calls: waiting})
	}
}

// readIndex sends the ReadIndex request that confirms r.
func (rs *reads) readIndex(r *read) {
	rs.last++
	rs.waiting[rs.last] = r
	rs.l.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, rs.last))
}

// confirm answers the calls of a read. All entries up to state.Index are applied: the leader applies committed entries
// before it handles read states.
func (rs *reads) confirm(state raft.ReadState) {
	id := binary.BigEndian.Uint64(state.RequestCtx)
	r := rs.waiting[id]
	if r == nil {
		return
	}
	if at := rs.l.cfg.State.Applied().Index; state.Index > at {
		panic(fmt.Sprintf("shard %d: read at %d confirmed with only %d applied", rs.l.cfg.ID, state.Index, at))
	}
	r.answer(rs.l)
	delete(rs.waiting, id)
}

// refuse answers all waiting reads with cause.
func (rs *reads) refuse(cause error) {
	for id, r := range rs.waiting {
		delete(rs.waiting, id)
		r.refuse(cause)
	}
}

func (r *read) answer(l *loop) {
	views := 0
	for _, c := range r.calls {
		if c.update == nil {
			views++
		}
	}
	if views == 0 {
		for _, c := range r.calls {
			c.answer(r.stamp, c.refusal)
		}
		return
	}
	at := l.cfg.State.Applied()
	v := l.newView(views)
	for _, c := range r.calls {
		c.view = v
		if !c.answer(Stamp{l.cfg.ID, at.Index, l.leading.Term, l.leading.clock.Now()}, nil) {
			v.release()
		}
	}
}

func (r *read) refuse(err error) {
	for _, c := range r.calls {
		c.answer(Stamp{}, err)
	}
}
