package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// A replica that is new, or lags behind what the leader's log still has, gets the state. The leader takes a view of its
// state at once, and writes it out beside its loop. The receiver stages it beside its own state, asks Raft whether it is
// wanted, and then the loop ends, the states are switched, and a new loop begins on what is there: the same as after a
// crash in between.

// errInstall ends a loop whose replica is to go on from the snapshot that it staged.
var errInstall = errors.New("a snapshot is to be installed")

// storage is what Raft reads: the log, and the state in place of what the log has cut off.
type storage struct {
	*raftlog.ShardLog
	l *loop
}

// Snapshot implements raft.Storage. The state itself travels beside the message (sendSnapshot).
func (s storage) Snapshot() (*pb.Snapshot, error) {
	at := s.l.cfg.State.Applied()
	return &pb.Snapshot{Metadata: metadata(at, s.l.members)}, nil
}

func metadata(at store.Position, conf *pb.ConfState) *pb.SnapshotMetadata {
	return &pb.SnapshotMetadata{Index: new(at.Index), Term: new(at.Term), ConfState: proto.Clone(conf).(*pb.ConfState)}
}

// maxOutgoing is how many snapshots a replica sends at once. Each keeps old rows alive.
const maxOutgoing = 2

// outgoing is the snapshots that are being sent. Its fields belong to the loop.
type outgoing struct {
	from   map[uint64]uint64 // the index of each, by its receiver
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
}

func newOutgoing() outgoing {
	ctx, cancel := context.WithCancel(context.Background())
	return outgoing{from: map[uint64]uint64{}, ctx: ctx, cancel: cancel}
}

// stop ends them all, and waits.
func (o *outgoing) stop() {
	o.cancel()
	o.all.Wait()
}

// sendSnapshot sends the state as it is now with Raft's message, which may be of a moment before.
func (l *loop) sendSnapshot(m *pb.Message) {
	to := m.GetTo()
	if _, busy := l.outgoing.from[to]; busy || len(l.outgoing.from) == maxOutgoing {
		l.raft.ReportSnapshot(to, raft.SnapshotFailure)
		return
	}
	snap := l.cfg.State.Snapshot()
	m = proto.Clone(m).(*pb.Message)
	m.Snapshot.Metadata = metadata(l.cfg.State.Applied(), l.members)
	index := m.Snapshot.Metadata.GetIndex()
	l.outgoing.from[to] = index
	ctx := l.outgoing.ctx
	l.cfg.Logger.Info("sending a snapshot", "shard", l.cfg.ID, "to", l.cfg.Node(to), "replica", l.replicaName(to), "index", index)
	l.outgoing.all.Go(func() {
		err := l.writeSnapshot(ctx, m, snap)
		snap.Close()
		status := raft.SnapshotFinish
		if err != nil {
			status = raft.SnapshotFailure
			l.cfg.Logger.Warn("snapshot not delivered", "shard", l.cfg.ID, "to", l.cfg.Node(to), "replica", l.replicaName(to), "index", index, "error", err)
		}
		select {
		case l.asks <- func(l *loop) {
			delete(l.outgoing.from, to)
			l.raft.ReportSnapshot(to, status)
		}:
		case <-ctx.Done():
		}
	})
}

// writeSnapshot has the transport carry m with the rows of snap. A state that can't be read ends the replica by itself.
func (l *loop) writeSnapshot(ctx context.Context, m *pb.Message, snap *store.Snapshot) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = asFailure(p)
		}
	}()
	return l.cfg.Transport.SendSnapshot(ctx, m, snap.WriteImage)
}

// staged is a snapshot that is complete beside the state.
type staged struct {
	at   store.Position
	done chan error // one place
}

// Receive takes a snapshot that another replica sent, and returns when it is installed, or when Raft doesn't want it any
// more, which is no error. Body is read to its end. After an error the replica is as it was, or fails.
func (s *Shard) Receive(ctx context.Context, m *pb.Message, body io.Reader) error {
	if m.GetType() != pb.MsgSnap || m.GetTo() != s.cfg.Replica {
		return fmt.Errorf("%v to %s is no snapshot for %s", m.GetType(), s.ReplicaText(m.GetTo()), s.ReplicaText(s.cfg.Replica))
	}
	if !s.receiving.TryLock() {
		return fmt.Errorf("shard %d: another snapshot is coming in", s.cfg.ID)
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
	if err := s.ask(context.WithoutCancel(ctx), func(l *loop) {
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

// matches compares what a message says of a state with what the state says of itself.
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

// dropStaged throws a snapshot away that Raft did not want.
func (l *loop) dropStaged() {
	if l.staged == nil {
		return
	}
	err := l.cfg.State.Unstage()
	l.staged.done <- err
	l.staged = nil
}

// install puts the staged state in the place of the old one, whose loop has ended, and makes the loop of the new one.
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
