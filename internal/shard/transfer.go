package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// From the moment a transfer of leadership begins until the other replica leads, or an election timeout has passed, nobody serves the
// shard. So the leader first checks that the other replica is alive: it adds a probe to its heartbeats, which a replica that may lead
// returns. It continues to serve until it has the answer. That a replica was heard from recently proves nothing: it may have died since.
//
//	wanted ─▶ probe in the next heartbeats ─▶ answer ─▶ MsgTimeoutNow ─▶ the other one leads
//	                                     └─▶ no answer: given up, and a backoff for the replica

const (
	// probeTicks is how many ticks a replica has to answer the probe. freshTicks is how long ago, in ticks, it may last have been heard
	// from to be probed at all: a leader sends heartbeats on every tick.
	probeTicks = 5
	freshTicks = 3
	// firstBackoff is the pause after a replica failed to take over; each further failure doubles it, up to maxBackoff.
	firstBackoff = 5 * time.Second
	maxBackoff   = 5 * time.Minute
	// maxWhy bounds the reason sent with the request, in bytes.
	maxWhy = 200
)

// ErrNoTransfer: leadership was not handed over.
var ErrNoTransfer = errors.New("leadership was not handed over")

// transfers is a replica's state of transfers of leadership: those it makes as leader, and the last one requested of it.
type transfers struct {
	l *loop

	current  *transfer          // nil: none
	probes   uint64             // made so far, to number them
	heardAt  map[uint64]uint64  // the tick at which a peer was last heard from, in this replica's term as leader
	backoffs map[uint64]backoff // of replicas that failed to take over, in this replica's term as leader

	request request
}

// transfer is a transfer in progress.
type transfer struct {
	to    uint64
	why   string
	probe uint64
	ticks int  // since it was requested
	begun bool // the other replica has answered, and Raft's transfer has begun
	done  []chan error
}

func (t *transfer) end(err error) {
	for _, done := range t.done {
		done <- err
	}
}

// request is the last request from a leader to take over.
type request struct {
	term uint64 // that would begin with it
	why  string
}

// reset resets the state for a new term as leader.
func (ts *transfers) reset() { ts.heardAt, ts.backoffs = map[uint64]uint64{}, map[uint64]backoff{} }

// Transfer hands leadership to another replica, a voter that has caught up or is about to, and returns when that replica leads. It fails
// without any effect on calls if the replica does not answer; while the replica takes over, calls get *NotLeader. Only the leader can
// transfer; if the replica already leads, Transfer is a no-op. why is for the log.
func (s *Shard) Transfer(ctx context.Context, to uint64, why string) error {
	done := make(chan error, 1)
	err := s.runOnLoop(ctx, func(l *loop) {
		switch {
		case l.soft.Lead == to:
			done <- nil
		case l.leading == nil:
			done <- &NotLeader{l.soft.Lead}
		case !slices.Contains(l.members.Voters, to):
			done <- fmt.Errorf("%w: the replica on node %s does not vote", ErrNoTransfer, l.cfg.Node(to))
		default:
			l.transfers.start(to, why, done)
		}
	})
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-s.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start starts a transfer of leadership. done, if not nil, gets the outcome.
func (ts *transfers) start(to uint64, why string, done chan error) {
	t := ts.current
	if t == nil {
		ts.probes++
		t = &transfer{to: to, why: why, probe: ts.probes}
		ts.current = t
	}
	switch {
	case done == nil:
	case t.to != to:
		done <- fmt.Errorf("%w: it is being handed to the replica on node %s", ErrNoTransfer, ts.l.cfg.Node(t.to))
	default:
		t.done = append(t.done, done)
	}
}

// A probe is appended to the context of a heartbeat, which the other replica returns unchanged. Raft's own contexts are empty or
// rawContext bytes long.
const (
	probeKind  = 'L'
	probeSize  = 1 + 8
	rawContext = 8
)

// addProbe adds a probe to a heartbeat for the replica that is to take over.
func (ts *transfers) addProbe(m *pb.Message) {
	if t := ts.current; t != nil && !t.begun && m.GetTo() == t.to {
		m.Context = binary.BigEndian.AppendUint64(append(slices.Clip(m.GetContext()), probeKind), t.probe)
	}
}

// splitProbe splits a probe off a context.
func splitProbe(context []byte) (raw []byte, probe uint64, ok bool) {
	n := len(context) - probeSize
	if n != 0 && n != rawContext || context[n] != probeKind {
		return context, 0, false
	}
	return context[:n:n], binary.BigEndian.Uint64(context[n+1:]), true
}

// dropProbe removes the probe from the answer of a replica that is barred from leading.
func (ts *transfers) dropProbe(m *pb.Message) {
	if ts.l.whyBarred() != "" {
		m.Context, _, _ = splitProbe(m.GetContext())
	}
}

// answersProbe reports whether a message answers the probe. It removes the probe, which Raft must not see.
func (ts *transfers) answersProbe(m *pb.Message) bool {
	if m.GetType() != pb.MsgHeartbeatResp {
		return false
	}
	raw, probe, ok := splitProbe(m.GetContext())
	m.Context = raw
	t := ts.current
	return ok && t != nil && m.GetFrom() == t.to && probe == t.probe
}

// notePeer records that a peer is alive, and begins the transfer to it if it is ready.
func (ts *transfers) notePeer(m *pb.Message, ready bool) {
	if ts.l.leading == nil || m.GetTerm() != ts.l.term {
		return
	}
	ts.heardAt[m.GetFrom()] = ts.l.upkeep.ticks
	if t := ts.current; ready && !t.begun {
		t.begun = true
		ts.l.raft.TransferLeader(t.to)
	}
}

// check ends the transfer once it has failed or another replica leads.
func (ts *transfers) check() {
	t := ts.current
	if t == nil {
		return
	}
	lead := ts.l.soft.Lead
	switch {
	case lead == t.to:
		ts.end(nil)
	case ts.l.leading == nil && (lead != 0 || !t.begun):
		ts.end(&NotLeader{lead})
	case ts.l.leading == nil: // another replica is about to lead
	case t.begun && ts.l.raft.BasicStatus().LeadTransferee == t.to: // Raft's transfer is in progress
	case t.begun:
		ts.fail("it did not take over in an election timeout")
	case t.ticks > probeTicks:
		ts.fail(fmt.Sprintf("it did not answer within %v", probeTicks*ts.l.cfg.TickInterval))
	}
}

// tick counts a tick for the transfer in progress.
func (ts *transfers) tick() {
	t := ts.current
	if t == nil {
		return
	}
	t.ticks++
	ts.check()
}

func (ts *transfers) end(err error) {
	t := ts.current
	ts.current = nil
	t.end(err)
}

// fail gives up the transfer, and sets a backoff for the replica that grows with every failure.
func (ts *transfers) fail(how string) {
	to := ts.current.to
	pause := backOff(ts.backoffs, to, ts.l.cfg.Time.Elapsed(), firstBackoff, maxBackoff)
	ts.l.cfg.Logger.Warn("leadership was not handed over", "shard", ts.l.cfg.ID, "to", ts.l.cfg.Node(to), "replica",
		ts.l.cfg.replicaName(to), "wanted_because", ts.current.why, "reason", how, "backoff", pause)
	ts.end(fmt.Errorf("%w: to the replica on node %s: %s", ErrNoTransfer, ts.l.cfg.Node(to), how))
}

// eligible reports whether leadership may be transferred to a replica now: it was heard from within the last few ticks, and has no backoff.
func (ts *transfers) eligible(id uint64) bool {
	at, heard := ts.heardAt[id]
	return heard && ts.l.upkeep.ticks-at <= freshTicks && ts.l.cfg.Time.Elapsed() >= ts.backoffs[id].until
}

// candidates returns the voters that leadership may be transferred to now, with their match indexes. This replica is not one of
// them: it never hears from itself.
func (ts *transfers) candidates() map[uint64]uint64 {
	all := map[uint64]uint64{}
	ts.l.raft.WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) {
		if kind == raft.ProgressTypePeer && slices.Contains(ts.l.members.Voters, id) && ts.eligible(id) {
			all[id] = p.Match
		}
	})
	return all
}

// Bar keeps this replica from leading as long as another one can: it asks for no votes, and if it leads it hands over. The reason may be
// a wrong clock, for example. why is for the log; "" lifts the bar.
func (s *Shard) Bar(why string) { s.barred.Store(&why) }

// whyBarred returns why this replica must not lead; "": it may.
func (s *Shard) whyBarred() string {
	if why := s.barred.Load(); why != nil {
		return *why
	}
	return ""
}

// startIfBarred hands leadership to the voter with the longest log, if this replica is barred from leading.
func (ts *transfers) startIfBarred() {
	why := ts.l.whyBarred()
	if why == "" || ts.l.leading == nil || ts.current != nil {
		return
	}
	to, most := uint64(0), uint64(0)
	for id, match := range ts.candidates() {
		if match > most || match == most && id > to {
			to, most = id, match
		}
	}
	if to != 0 {
		ts.start(to, why, nil)
	}
}

// startIfSlow hands leadership over if this replica's disk is much slower than another's.
func (ts *transfers) startIfSlow() {
	if ts.l.leading == nil || ts.l.alone || ts.current != nil {
		return
	}
	if to := ts.l.pace.fasterReplica(ts.l.cfg.Time.Elapsed(), ts.candidates()); to != 0 {
		ts.start(to, "its disk is much slower than that of another replica", nil)
	}
}

// noteRequest records why a leader asks this replica to take over.
func (ts *transfers) noteRequest(m *pb.Message) {
	ts.request = request{m.GetTerm() + 1, string(m.GetContext())}
}

// addReason adds the reason to the request to take over.
func (ts *transfers) addReason(m *pb.Message) {
	if t := ts.current; t != nil {
		m.Context = []byte(t.why[:min(len(t.why), maxWhy)])
	}
}
