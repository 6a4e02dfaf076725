package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// A replica that is new, or lags behind the start of the leader's log, is sent the state. The leader takes a snapshot of
// its state immediately, and writes it out on another goroutine. The receiver stages it next to its own state and passes the
// message to Raft. If Raft wants the snapshot, the loop ends, the states are switched, and a new loop starts from what is on
// disk, just as after a crash in between.

// errInstall ends the loop of a replica that has to continue from its staged snapshot.
var errInstall = errors.New("a snapshot must be installed")

// storage is Raft's view of the log, with the state as the snapshot.
type storage struct {
	*raftlog.ShardLog
	l *loop
}

// Snapshot implements raft.Storage. The state itself is sent outside the message; see sendSnapshot.
func (s storage) Snapshot() (*pb.Snapshot, error) {
	at := s.l.cfg.State.Applied()
	return &pb.Snapshot{Metadata: metadata(at, s.l.members)}, nil
}

func metadata(at store.Position, conf *pb.ConfState) *pb.SnapshotMetadata {
	return &pb.SnapshotMetadata{Index: new(at.Index), Term: new(at.Term), ConfState: proto.Clone(conf).(*pb.ConfState)}
}

const (
	// firstResend is the pause after a replica did not take a snapshot; each further failure doubles it, up to maxResend.
	firstResend = 250 * time.Millisecond
	maxResend   = 30 * time.Second
)

// maxOutgoing is how many snapshots a replica sends at a time. Each keeps old rows alive.
const maxOutgoing = 2

// outgoing tracks the snapshots being sent. The loop owns its fields.
type outgoing struct {
	l        *loop
	from     map[uint64]uint64  // the index of each, by its receiver
	backoffs map[uint64]backoff // of receivers that did not take their last one
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup
}

func newOutgoing(l *loop) outgoing {
	ctx, cancel := context.WithCancel(context.Background())
	return outgoing{l: l, from: map[uint64]uint64{}, backoffs: map[uint64]backoff{}, ctx: ctx, cancel: cancel}
}

// stop cancels all of them, and waits until they have ended.
func (o *outgoing) stop() {
	o.cancel()
	o.all.Wait()
}

// send sends the current state with Raft's message, whose metadata may be slightly older and is replaced.
func (o *outgoing) send(m *pb.Message) {
	to := m.GetTo()
	if _, busy := o.from[to]; busy || len(o.from) == maxOutgoing || o.l.cfg.Time.Elapsed() < o.backoffs[to].until {
		o.l.raft.ReportSnapshot(to, raft.SnapshotFailure)
		return
	}
	snap := o.l.cfg.State.Snapshot()
	m = proto.Clone(m).(*pb.Message)
	m.Snapshot.Metadata = metadata(o.l.cfg.State.Applied(), o.l.members)
	index := m.Snapshot.Metadata.GetIndex()
	o.from[to] = index
	ctx, size := o.ctx, o.l.cfg.State.DiskBytes()
	log := o.l.cfg.Logger.With("shard", o.l.cfg.ID, "to", o.l.cfg.Node(to), "replica", o.l.cfg.replicaName(to), "index", index)
	log.Info("sending a snapshot", "bytes", size)
	o.all.Go(func() {
		err := o.write(ctx, m, size, snap)
		snap.Close()
		status := raft.SnapshotFinish
		if err != nil {
			status = raft.SnapshotFailure
			log.Warn("snapshot not delivered", "error", err)
		}
		select {
		case o.l.loopFuncs <- func(l *loop) {
			delete(l.outgoing.from, to) // l may be the loop after o.l
			l.outgoing.note(to, err)
			l.raft.ReportSnapshot(to, status)
		}:
		case <-ctx.Done():
		}
	})
}

// note records the outcome of a snapshot.
func (o *outgoing) note(to uint64, err error) {
	if err == nil {
		delete(o.backoffs, to)
		return
	}
	backOff(o.backoffs, to, o.l.cfg.Time.Elapsed(), firstResend, maxResend)
}

// write sends m through the transport with the rows of snap. A state that can't be read ends the replica anyway.
func (o *outgoing) write(ctx context.Context, m *pb.Message, size uint64, snap *store.Snapshot) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = asFailure(p)
		}
	}()
	return o.l.cfg.Transport.SendSnapshot(ctx, m, size, snap.WriteImage)
}

// staged is a complete snapshot next to the state.
type staged struct {
	at   store.Position
	done chan error // one place
}

// Receive takes a snapshot that another replica sent. It returns when the snapshot is installed, or when Raft no longer wants
// it, which is not an error. body is read to its end. After an error the replica is unchanged, or fails.
func (s *Shard) Receive(ctx context.Context, m *pb.Message, body io.Reader) error {
	if m.GetType() != pb.MsgSnap || m.GetTo() != s.cfg.Replica {
		return fmt.Errorf("%v to %s is not a snapshot for %s", m.GetType(), s.ReplicaText(m.GetTo()), s.ReplicaText(s.cfg.Replica))
	}
	if !s.receiving.TryLock() {
		return fmt.Errorf("shard %d: another snapshot is being received", s.cfg.ID)
	}
	defer s.receiving.Unlock()
	if at := s.cfg.State.Applied(); m.GetSnapshot().GetMetadata().GetIndex() <= at.Index {
		return nil
	}
	at, err := s.cfg.State.Stage(body)
	if err != nil {
		return err
	}
	if err := matches(m, at); err != nil {
		return errors.Join(fmt.Errorf("shard %d: %w", s.cfg.ID, err), s.cfg.State.Unstage())
	}
	st := &staged{at: at, done: make(chan error, 1)}
	if err := s.runOnLoop(context.WithoutCancel(ctx), func(l *loop) {
		l.staged = st
		l.step(m)
	}); err != nil {
		return err
	}
	select {
	case err := <-st.done:
		return err
	case <-s.done:
		return ErrStopped
	}
}

// matches compares a message's metadata with the position of the state that came with it.
func matches(m *pb.Message, at store.Position) error {
	meta := m.GetSnapshot().GetMetadata()
	conf, err := encodeConf(meta.GetConfState())
	if err != nil {
		return err
	}
	if meta.GetIndex() != at.Index || meta.GetTerm() != at.Term || !bytes.Equal(conf, at.Conf) {
		return fmt.Errorf("snapshot of entry %d, term %d came with a state of entry %d, term %d, or with another membership",
			meta.GetIndex(), meta.GetTerm(), at.Index, at.Term)
	}
	return nil
}

// dropStaged discards a staged snapshot that Raft did not want.
func (l *loop) dropStaged() {
	if l.staged == nil {
		return
	}
	err := l.cfg.State.Unstage()
	l.staged.done <- err
	l.staged = nil
}

// install replaces the state of a loop that has ended by the staged one, and creates the next loop.
func (l *loop) install() (*loop, error) {
	l.views.Wait()
	if err := l.cfg.State.Switch(); err != nil {
		return nil, err
	}
	next, err := newLoop(l.Shard)
	if err != nil {
		return nil, err
	}
	l.cfg.Logger.Info("snapshot installed", "shard", l.cfg.ID, "index", l.staged.at.Index)
	l.staged.done <- nil
	return next, nil
}
