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
// shard. So the leader first asks the other replica whether it is there: by a probe in its heartbeats, which a replica that may lead sends
// back. It goes on serving until it has the answer. That a replica was heard of lately proves nothing: it may have died since.
//
//	wanted ─▶ probe in the next heartbeats ─▶ answer ─▶ MsgTimeoutNow ─▶ the other one leads
//	                                     └─▶ no answer: given up, the replica is left alone for a while

const (
	// probeTicks is how many ticks a replica has to answer the probe, freshTicks how many may have passed since it was last heard of for
	// it to be asked at all: a leader sends heartbeats at each tick.
	probeTicks = 5
	freshTicks = 3
	// firstBackoff is how long a replica is left alone after it failed to take over; each further failure doubles that, up to maxBackoff.
	firstBackoff = 5 * time.Second
	maxBackoff   = 5 * time.Minute
	// maxWhy bounds the reason that goes along, in bytes.
	maxWhy = 200
)

// ErrNoTransfer: leadership was not handed over.
var ErrNoTransfer = errors.New("leadership was not handed over")

// handovers is what a leader knows of handing its leadership over, and the other replicas of being asked to lead.
type handovers struct {
	under    *handover          // nil: none
	probes   uint64             // so many were made: each has a number of its own
	heard    map[uint64]uint64  // the tick at which a peer was last heard of, in this replica's time as leader
	backoffs map[uint64]backoff // of the replicas that failed to take over, in this replica's time as leader

	request request
}

// handover is one that is under way.
type handover struct {
	to    uint64
	why   string
	probe uint64
	ticks int  // since it was wanted
	begun bool // the other replica has answered, and Raft's transfer has begun
	done  []chan error
}

func (h *handover) end(err error) {
	for _, done := range h.done {
		done <- err
	}
}

// backoff is how often in a row a replica failed to take over, and until when it is left alone.
type backoff struct {
	failures int
	until    time.Duration // of monotonic time
}

// request is what a leader said when it asked this replica to take over.
type request struct {
	term uint64 // that would begin with it
	why  string
}

// forget begins a time as leader.
func (h *handovers) forget() { h.heard, h.backoffs = map[uint64]uint64{}, map[uint64]backoff{} }

// Transfer hands leadership to another replica, a voter that has caught up or will at once, and returns when it leads. It fails without any
// effect on calls if that replica gives no answer; while it takes over, calls get *NotLeader. Only the leader can; for a replica that leads
// already there is nothing to do. Why is for the log.
func (s *Shard) Transfer(ctx context.Context, to uint64, why string) error {
	done := make(chan error, 1)
	err := s.ask(ctx, func(l *loop) {
		switch {
		case l.soft.Lead == to:
			done <- nil
		case l.leading == nil:
			done <- &NotLeader{l.soft.Lead}
		case !slices.Contains(l.members.Voters, to):
			done <- fmt.Errorf("%w: the replica on node %s does not vote", ErrNoTransfer, l.cfg.Node(to))
		default:
			l.handOver(to, why, done)
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

// handOver begins to hand leadership over. The channel, if there is one, gets the outcome.
func (l *loop) handOver(to uint64, why string, done chan error) {
	h := l.handovers.under
	if h == nil {
		l.handovers.probes++
		h = &handover{to: to, why: why, probe: l.handovers.probes}
		l.handovers.under = h
	}
	switch {
	case done == nil:
	case h.to != to:
		done <- fmt.Errorf("%w: it is being handed to the replica on node %s", ErrNoTransfer, l.cfg.Node(h.to))
	default:
		h.done = append(h.done, done)
	}
}

// A probe is put behind the context of a heartbeat, which the other replica sends back as it is. Raft's own contexts are empty or have
// rawContext bytes.
const (
	probeKind  = 'L'
	probeSize  = 1 + 8
	rawContext = 8
)

// probe lets a heartbeat ask the replica that is to lead whether it is there.
func (l *loop) probe(m *pb.Message) {
	if h := l.handovers.under; h != nil && !h.begun && m.GetTo() == h.to {
		m.Context = binary.BigEndian.AppendUint64(append(slices.Clip(m.GetContext()), probeKind), h.probe)
	}
}

// splitProbe takes a probe off a context.
func splitProbe(context []byte) (raw []byte, probe uint64, ok bool) {
	n := len(context) - probeSize
	if n != 0 && n != rawContext || context[n] != probeKind {
		return context, 0, false
	}
	return context[:n:n], binary.BigEndian.Uint64(context[n+1:]), true
}

// decline takes the probe out of the answer of a replica that is barred from leading.
func (l *loop) decline(m *pb.Message) {
	if l.whyBarred() != "" {
		m.Context, _, _ = splitProbe(m.GetContext())
	}
}

// isReady says whether a message answers the probe, which it takes off: Raft must not see it.
func (l *loop) isReady(m *pb.Message) bool {
	if m.GetType() != pb.MsgHeartbeatResp {
		return false
	}
	raw, probe, ok := splitProbe(m.GetContext())
	m.Context = raw
	h := l.handovers.under
	return ok && h != nil && m.GetFrom() == h.to && probe == h.probe
}

// hearPeer notes that a peer is there, and begins the transfer if it is ready.
func (l *loop) hearPeer(m *pb.Message, ready bool) {
	if l.leading == nil || m.GetTerm() != l.term {
		return
	}
	l.handovers.heard[m.GetFrom()] = l.upkeep.ticks
	if h := l.handovers.under; ready && !h.begun {
		h.begun = true
		l.raft.TransferLeader(h.to)
	}
}

// tendHandover gives up, or answers those who wait for another leader.
func (l *loop) tendHandover() {
	h := l.handovers.under
	if h == nil {
		return
	}
	lead := l.soft.Lead
	switch {
	case lead == h.to:
		l.endHandover(nil)
	case l.leading == nil && (lead != 0 || !h.begun):
		l.endHandover(&NotLeader{lead})
	case l.leading == nil: // somebody is about to lead
	case h.begun && l.raft.BasicStatus().LeadTransferee == h.to: // Raft is at it
	case h.begun:
		l.failHandover("it did not take over in an election timeout")
	case h.ticks > probeTicks:
		l.failHandover(fmt.Sprintf("it gave no answer in %v", probeTicks*l.cfg.TickInterval))
	}
}

// tickHandover lets a tick pass for the handover that is under way.
func (l *loop) tickHandover() {
	h := l.handovers.under
	if h == nil {
		return
	}
	h.ticks++
	l.tendHandover()
}

func (l *loop) endHandover(err error) {
	h := l.handovers.under
	l.handovers.under = nil
	h.end(err)
}

// failHandover leaves the replica alone for a while, the longer the more often it has failed.
func (l *loop) failHandover(how string) {
	to := l.handovers.under.to
	r := l.handovers.backoffs[to]
	pause := min(firstBackoff<<min(r.failures, 10), maxBackoff)
	l.handovers.backoffs[to] = backoff{r.failures + 1, l.cfg.Time.Elapsed() + pause}
	l.cfg.Logger.Warn("leadership was not handed over", "shard", l.cfg.ID, "to", l.cfg.Node(to), "replica", l.replicaName(to),
		"wanted_because", l.handovers.under.why, "reason", how, "backoff", pause)
	l.endHandover(fmt.Errorf("%w: to the replica on node %s: %s", ErrNoTransfer, l.cfg.Node(to), how))
}

// fit says whether leadership may be handed to a replica now: it was heard of a moment ago, and is not left alone.
func (l *loop) fit(id uint64) bool {
	at, heard := l.handovers.heard[id]
	return heard && l.upkeep.ticks-at <= freshTicks && l.cfg.Time.Elapsed() >= l.handovers.backoffs[id].until
}

// candidates are the voters that leadership may be handed to now, and how far they are. This replica is none: it hears nothing of itself.
func (l *loop) candidates() map[uint64]uint64 {
	all := map[uint64]uint64{}
	l.raft.WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) {
		if kind == raft.ProgressTypePeer && slices.Contains(l.members.Voters, id) && l.fit(id) {
			all[id] = p.Match
		}
	})
	return all
}

// Bar keeps this replica from leading, as long as another one can: it asks for no votes, and a leader hands over. Its clock
// may be wrong, say. Why is for the log; "": it may lead.
func (s *Shard) Bar(why string) { s.barred.Store(&why) }

// whyBarred is why this replica may not lead; "": it may.
func (s *Shard) whyBarred() string {
	if why := s.barred.Load(); why != nil {
		return *why
	}
	return ""
}

// handOverIfBarred hands leadership to the voter that has most, if this replica is barred from it.
func (l *loop) handOverIfBarred() {
	why := l.whyBarred()
	if why == "" || l.leading == nil || l.handovers.under != nil {
		return
	}
	to, most := uint64(0), uint64(0)
	for id, match := range l.candidates() {
		if match > most || match == most && id > to {
			to, most = id, match
		}
	}
	if to != 0 {
		l.handOver(to, why, nil)
	}
}

// leaveIfSlow hands leadership over if this replica's disk is much slower than another's.
func (l *loop) leaveIfSlow() {
	if l.leading == nil || l.alone || l.handovers.under != nil || planted("shard-slow-stays") {
		return
	}
	if to := l.pace.heir(l.cfg.Time.Elapsed(), l.candidates()); to != 0 {
		l.handOver(to, "its disk is much slower than that of another replica", nil)
	}
}

// noteRequest notes why a leader wants this replica to take over.
func (l *loop) noteRequest(m *pb.Message) {
	l.handovers.request = request{m.GetTerm() + 1, string(m.GetContext())}
}

// explainRequest lets the request to take over say why.
func (l *loop) explainRequest(m *pb.Message) {
	if h := l.handovers.under; h != nil {
		m.Context = []byte(h.why[:min(len(h.why), maxWhy)])
	}
}
