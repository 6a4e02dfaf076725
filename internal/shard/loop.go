package shard

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

const (
	// maxMessage bounds the bytes of entries in one message, and those applied before the loop handles other events. A larger
	// entry is sent alone.
	maxMessage = 1 << 20
	// maxInflight is how many messages with entries may be in flight to a peer.
	maxInflight = 64
	// maxDrain is how many messages are taken from the inbox before their effects are written.
	maxDrain = 64
)

// loop owns a replica: the Raft node, the log, writes to the state, the round. Its goroutine owns all fields.
type loop struct {
	*Shard
	raft *raft.RawNode
	log  *raftlog.ShardLog

	conf    []byte        // membership, as in the state's position
	members *pb.ConfState // the same
	alone   bool          // this replica is the only voter
	epoch   uint64

	soft    raft.SoftState
	term    uint64
	leading *leading // nil: not the leader, or not caught up yet
	round   *round   // the one in flight
	// oneByOne is how many more rounds have only one call each, to find the one to blame for a panic at the end of a round.
	oneByOne int
	sealed   []byte // buffer for its entry; Raft gets a copy
	reads    reads

	lost      error // what this replica's log has lost, according to a leader
	changes   changes
	transfers transfers
	previous  previousLeader
	freshness freshness
	staged    *staged  // a snapshot to be installed
	outgoing  outgoing // snapshots being sent
	hashers   hashers

	upkeep *upkeep
}

// leading is this replica's term as leader.
type leading struct {
	LeaderTerm
	clock *store.Clock
}

// newLoop brings log and state into agreement and creates the Raft node.
func newLoop(s *Shard) (l *loop, err error) {
	defer func() {
		if p := recover(); p != nil { // etcd's raft panics if the log can't be read
			err = asFailure(p)
		}
	}()
	l = &loop{Shard: s, hashers: newHashers(), sealed: make([]byte, headerLen)}
	l.reads = reads{l: l, waiting: make(map[uint64]*read)}
	l.changes.l, l.transfers.l, l.freshness.l = l, l, l
	l.outgoing = newOutgoing(l)
	if err := l.bootstrap(); err != nil {
		return nil, err
	}
	at := s.cfg.State.Applied()
	conf := new(pb.ConfState)
	if err := proto.Unmarshal(at.Conf, conf); err != nil {
		return nil, fmt.Errorf("membership in the state: %w", err)
	}
	if err = l.setConf(conf); err != nil {
		return nil, err
	}
	if err := l.openLog(conf); err != nil {
		return nil, err
	}
	if l.raft, err = raft.NewRawNode(l.cfg.raftConfig(storage{l.log, l}, at.Index)); err != nil {
		return nil, err
	}
	hs, _, _ := l.log.InitialState()
	l.term = hs.GetTerm()
	if l.alone {
		err = l.raft.Campaign() // no other replica to wait for
	}
	if err == nil {
		l.upkeep = newUpkeep(l, s.cfg.State, s.cfg.Limits.KeepBytes)
	}
	return l, err
}

// openLog opens the log, and brings the epochs of log and state into agreement: the log's grows when a loss in the log itself
// was accepted.
func (l *loop) openLog(conf *pb.ConfState) error {
	state := l.cfg.State
	start, err := startOf(state)
	if err != nil {
		return err
	}
	start.Conf, start.Ran = conf, l.cfg.Ran
	l.log, err = l.cfg.Log.Shard(l.cfg.ID, start)
	if errors.Is(err, raftlog.ErrStateBehind) {
		return state.LostError(err.Error())
	}
	if err != nil {
		return err
	}
	if start.FromSnapshot {
		if err := state.ClearInstalled(); err != nil {
			return err
		}
	}
	if l.epoch = l.log.Epoch(); l.epoch == start.Epoch {
		return nil
	}
	return state.SetEpoch(l.epoch)
}

// bootstrap sets the first position of an empty state, as if by a first entry that is the same on all replicas. It is
// durable before the log begins.
func (l *loop) bootstrap() error {
	if l.cfg.State.Applied().Index > 0 || len(l.cfg.Voters) == 0 {
		return nil
	}
	conf, err := encodeConf(&pb.ConfState{Voters: l.cfg.Voters})
	if err != nil {
		return err
	}
	at := firstPosition
	at.Conf = conf
	if err := l.cfg.State.Apply(at, nil); err != nil {
		return err
	}
	return l.cfg.State.Flush()
}

// firstPosition is where a new group begins.
var firstPosition = store.Position{Index: 1, Term: 1}

func encodeConf(conf *pb.ConfState) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(conf)
}

func (c *Config) raftConfig(log raft.Storage, applied uint64) *raft.Config {
	return &raft.Config{
		ID:                        c.Replica,
		ElectionTick:              c.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   log,
		Applied:                   applied,
		MaxSizePerMsg:             maxMessage,
		MaxCommittedSizePerReady:  maxMessage,
		MaxUncommittedEntriesSize: uint64(2 * (c.Limits.RoundBytes + c.Limits.CallBytes)),
		MaxInflightMsgs:           maxInflight,
		MaxInflightBytes:          maxInflight * maxMessage,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{c.Logger, c.ID},
	}
}

// run serves until the shard is stopped or something fails, or, with errInstall, until a snapshot must be installed.
func (l *loop) run() error {
	err := l.serve()
	l.leader.Store(&leadership{term: l.term})
	l.stepDown(ErrStopped)
	if l.transfers.current != nil { // the loop that follows will not complete it
		l.transfers.end(ErrStopped)
	}
	if !errors.Is(err, errInstall) {
		l.fail(err) // before waiting for the flush, which may hang with the failed disk
	}
	l.upkeep.stop()
	l.outgoing.stop()
	l.hashers.stop()
	return err
}

// serve runs turns until the shard is stopped or something fails. A panic ends it too, whether in reads of the state, in
// etcd's raft or in hooks. No answer leaves after one.
func (l *loop) serve() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = asFailure(p)
		}
	}()
	tick := time.NewTicker(l.cfg.TickInterval)
	defer tick.Stop()
	for ticks := true; ; {
		if err := l.turn(); err != nil {
			return err
		}
		l.dropStaged()
		if needs := l.needsTicks(); needs != ticks {
			if ticks = needs; ticks {
				tick.Reset(l.cfg.TickInterval)
			} else {
				tick.Stop()
			}
		}
		select {
		case <-l.stop:
			return nil
		case <-tick.C:
			l.raft.Tick()
			if err := l.tick(); err != nil {
				return err
			}
		case m := <-l.inbox:
			l.step(m)
		case fn := <-l.loopFuncs:
			fn(l)
		case err := <-l.upkeep.flushed:
			l.upkeep.flushing = false
			if err = errors.Join(err, l.upkeep.cut()); err != nil {
				return err
			}
		case <-l.calls.wake:
		}
	}
}

func asFailure(p any) error {
	var f *store.Failure
	if err, ok := p.(error); ok && errors.As(err, &f) {
		return f
	}
	return fmt.Errorf("panic: %v\n%s", p, debug.Stack())
}

// step hands messages to Raft, and ignores its errors: Raft rejects a message that it has no use for.
func (l *loop) step(m *pb.Message) {
	for n := 0; l.lost == nil; n++ {
		if m.GetType() != pb.MsgTimeoutNow || l.whyBarred() == "" {
			l.stepOne(m)
		}
		if n == maxDrain {
			return
		}
		select {
		case m = <-l.inbox:
		default:
			return
		}
	}
}

// stepOne hands one message to Raft, and reads the other information that it carries.
func (l *loop) stepOne(m *pb.Message) {
	if l.lost = contradiction(l, m); l.lost != nil {
		return
	}
	if m.GetType() == pb.MsgTimeoutNow {
		l.transfers.noteRequest(m)
	}
	if m.GetFrom() == l.soft.Lead {
		l.previous.heard = l.cfg.Time.Elapsed()
	}
	ready := l.transfers.answersProbe(m)
	_ = l.raft.Step(m)
	l.freshness.noteCommit(m)
	l.transfers.notePeer(m, ready)
}

// turn starts whatever can be started, and handles Ready until there is none.
func (l *loop) turn() error {
	// Callers who were just answered may have more calls to make. Without this, the next round would start with the first few
	// of them, and the others would wait for two rounds.
	runtime.Gosched()
	if l.lost != nil {
		return l.lost
	}
	l.reads.start()
	if err := l.changes.start(); err != nil {
		return err
	}
	if err := l.startRound(); err != nil {
		return err
	}
	for l.raft.HasReady() {
		if err := l.handle(l.raft.Ready()); err != nil {
			return err
		}
	}
	if l.idle() && (l.changes.current.pending() || !l.changes.current.blocksRounds() && l.calls.hasUpdates()) {
		l.calls.signal()
	}
	return nil
}

// idle reports whether this replica is leading and nothing is in flight: a proposal must be computed on the whole log.
func (l *loop) idle() bool { return l.leading != nil && l.round == nil && !l.unapplied() }

// handle processes a Ready in this order: its entries are on disk before any message that depends on them leaves, and
// before anything is applied. A leader's own messages may leave earlier: they promise nothing about its disk.
func (l *loop) handle(rd raft.Ready) error {
	if !raft.IsEmptySnap(rd.Snapshot) {
		// Nothing of this Ready is kept: after the installation, log and state determine where this replica is.
		return errInstall
	}
	l.observe(rd)
	leads := l.soft.RaftState == raft.StateLeader
	if leads {
		l.paceSends(rd.Messages)
		l.send(rd.Messages)
	}
	if err := l.save(rd); err != nil {
		return err
	}
	if !leads {
		l.send(rd.Messages)
	}
	for _, e := range rd.CommittedEntries {
		if err := l.apply(e); err != nil {
			return err
		}
	}
	for _, rs := range rd.ReadStates {
		l.reads.confirm(rs)
	}
	l.raft.Advance(rd)
	l.becomeLeader()
	return nil
}

// send hands messages to the transport. A replica that is barred from leading asks for no votes.
func (l *loop) send(ms []*pb.Message) {
	if len(ms) == 0 || l.cfg.Transport == nil {
		return
	}
	out := ms[:0:0]
	for _, m := range ms {
		switch {
		case m.GetType() == pb.MsgSnap:
			l.outgoing.send(m)
		case m.GetType() == pb.MsgPreVote && l.whyBarred() != "":
		default:
			switch m.GetType() {
			case pb.MsgApp:
				l.freshness.stampTime(m)
			case pb.MsgHeartbeat:
				l.transfers.addProbe(m)
				addMatch(l.raft, m)
			case pb.MsgTimeoutNow:
				l.transfers.addReason(m)
			case pb.MsgHeartbeatResp:
				l.transfers.dropProbe(m)
			}
			out = append(out, m)
		}
	}
	l.cfg.Transport.Send(out)
}

// observe records term and leader, and ends this replica's leadership when they change.
func (l *loop) observe(rd raft.Ready) {
	if !raft.IsEmptyHardState(rd.HardState) {
		l.term = rd.HardState.GetTerm()
	}
	if rd.SoftState != nil {
		l.soft = *rd.SoftState
	}
	if old := l.leader.Load(); old.replica != l.soft.Lead || old.term != l.term {
		l.leader.Store(&leadership{l.soft.Lead, l.term})
		if l.soft.Lead != 0 {
			l.leaders.Add(1)
		}
		l.previous.update(old.replica, l.soft.Lead)
		defer l.transfers.check()
	}
	if l.leading != nil && (l.soft.RaftState != raft.StateLeader || l.term != l.leading.Term) {
		if l.term == l.leading.Term { // no vote was requested: Raft stepped down by itself
			l.cfg.Logger.Warn("this replica stepped down: it lost contact with most voters", "shard", l.cfg.ID, "replica",
				l.cfg.replicaName(l.cfg.Replica))
		}
		l.stepDown(&NotLeader{l.soft.Lead})
	}
}

// becomeLeader starts this replica's work as leader once an entry of its term is applied: then all entries before it are too.
func (l *loop) becomeLeader() {
	at := l.cfg.State.Applied()
	if l.leading != nil || l.soft.RaftState != raft.StateLeader || at.Term != l.term {
		return
	}
	clock := store.LeaderClock(l.cfg.Time, at.Time)
	l.leading = &leading{LeaderTerm{Term: l.term, Began: clock.Now(), Before: at.Time, Epoch: l.epoch}, clock}
	l.clock.Store(clock)
	l.transfers.reset()
	l.logLeader()
	l.pace.begin(l.cfg.Time.Elapsed())
	l.cfg.Hooks.Elected(l.leading.LeaderTerm)
	l.calls.signal()
}

// stepDown ends this replica's work as leader. Calls in flight that wrote get ErrUnknown; those that wrote nothing did not
// happen, and get cause.
func (l *loop) stepDown(cause error) {
	if l.leading == nil {
		return
	}
	l.leading = nil
	l.clock.Store(nil)
	l.changes.abandon(cause)
	if r := l.round; r != nil {
		l.round = nil
		r.end(cause)
	}
	l.reads.refuse(cause)
	l.cfg.Hooks.Dropped(true)
}

// electing reports whether this replica is about to become leader, so that calls may wait for it.
func (l *loop) electing() bool {
	return l.soft.RaftState == raft.StateLeader || l.alone
}

// apply applies a committed entry to the state. If the guard does not hold, only the position advances.
func (l *loop) apply(e *pb.Entry) error {
	last := l.cfg.State.Applied()
	pos := store.Position{Index: e.GetIndex(), Term: e.GetTerm(), Time: last.Time, Conf: l.conf}
	var h header
	var body []byte
	holds := false
	switch {
	case e.GetType() == pb.EntryConfChange:
		return fmt.Errorf("entry %d: a membership change in Raft's v1 format, which no version of Pawl writes", e.GetIndex())
	case e.GetType() == pb.EntryConfChangeV2:
		if err := l.changeConf(e); err != nil {
			return err
		}
		pos.Conf = l.conf
	case isHashEntry(e.GetData()):
	case len(e.GetData()) > 0:
		var err error
		if h, body, err = parseEntry(e.GetData()); err != nil {
			return fmt.Errorf("entry %d: %w", pos.Index, err)
		}
		if holds = h.holds(pos.Index, pos.Term); holds {
			pos.Time = max(last.Time, h.time)
		} else {
			body = nil
		}
	}
	own := l.round != nil && l.round.header == h // which is empty if the entry has none
	if err := l.applyBody(pos, body, own && holds); err != nil {
		return err
	}
	l.upkeep.applied(pos.Index, len(e.GetData()))
	l.changes.settle(e)
	if isHashEntry(e.GetData()) {
		return l.startHash(e)
	}
	if own {
		l.settle(l.round, holds, Stamp{l.cfg.ID, pos.Index, pos.Term, pos.Time})
	}
	return nil
}

// applyBody applies an entry's writes. For the round in flight, the round's Tx already has them.
func (l *loop) applyBody(pos store.Position, body []byte, own bool) error {
	if own {
		return l.cfg.State.ApplyTx(pos, l.round.tx)
	}
	return l.cfg.State.Apply(pos, body)
}

// changeConf applies a change of membership.
func (l *loop) changeConf(e *pb.Entry) error {
	change := new(pb.ConfChangeV2)
	if err := proto.Unmarshal(e.GetData(), change); err != nil {
		return fmt.Errorf("entry %d: change of membership: %w", e.GetIndex(), err)
	}
	voted := slices.Contains(l.members.Voters, l.cfg.Replica)
	if err := l.setConf(l.raft.ApplyConfChange(change)); err != nil {
		return err
	}
	if !voted && slices.Contains(l.members.Voters, l.cfg.Replica) {
		l.cfg.Logger.Info("this replica is now a voter", "shard", l.cfg.ID, "replica", l.cfg.replicaName(l.cfg.Replica))
	}
	return nil
}

func (l *loop) setConf(conf *pb.ConfState) (err error) {
	l.alone = len(conf.Voters) == 1 && conf.Voters[0] == l.cfg.Replica && len(conf.VotersOutgoing) == 0
	l.members = conf
	l.conf, err = encodeConf(conf)
	return err
}
