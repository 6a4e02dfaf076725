package shard

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// recoveryGap is how many entries Recover numbers on: more than a replica can lag behind, and few enough for tens of thousands of
// recoveries (see store.Tx.NextSeq).
const recoveryGap = 1 << 28

// Recover makes a stopped replica the only member of its group, when a majority of the group is lost forever. It applies
// everything in its log, whether a majority had it or not, so nothing that this replica had is lost; what only the others
// had is gone. It begins a new epoch, so that no earlier claim token matches. edit, if not nil, may then write to the
// state. The log is useless afterwards, and the replica's next start creates it again.
//
// What other shards got from later rounds of the group must not be newer than what they get from now on, so the next entry is far beyond
// any that the group may have had.
//
// Recover may be repeated. When it returns, everything is durable.
func Recover(log *raftlog.Log, state *store.Store, id uint32, replica uint64, edit func(*store.Tx) error) (at store.Position, err error) {
	if err := Replay(log, state, id); err != nil {
		return at, err
	}
	if at = state.Applied(); at.Index == 0 {
		return at, fmt.Errorf("replica %s never received the state of its shard", ReplicaName(id, replica))
	}
	if at.Conf, err = encodeConf(&pb.ConfState{Voters: []uint64{replica}}); err != nil {
		return at, err
	}
	at.Index += recoveryGap
	tx := state.Begin(at.Time, at.Index)
	defer tx.Close()
	if edit != nil {
		if err := edit(tx); err != nil {
			return at, err
		}
	}
	if err := state.Apply(at, tx.Seal(nil)); err != nil {
		return at, err
	}
	epoch, err := state.Epoch()
	if err != nil {
		return at, err
	}
	return at, state.SetEpoch(epoch + 1) // which flushes
}

// Reach returns the position that Recover would bring a replica to. It changes nothing.
func Reach(log *raftlog.Log, state *store.Store, id uint32) (store.Position, error) {
	at := state.Applied()
	if !isThere(log, id) {
		return at, nil
	}
	start, err := startOf(state)
	if err != nil {
		return at, err
	}
	l, err := log.Shard(id, start)
	if err != nil {
		return at, fmt.Errorf("shard %d: %w", id, err)
	}
	if last, _ := l.LastIndex(); last > at.Index {
		at.Index = last
		at.Term, err = l.Term(last)
	}
	return at, err
}

// isThere reports whether there is a log of a shard, if only a part of one.
func isThere(log *raftlog.Log, id uint32) bool { return log.Has(id) || log.Holds(id) }

// startOf returns where the log of a state begins.
func startOf(state *store.Store) (start raftlog.Start, err error) {
	at := state.Applied()
	start = raftlog.Start{Index: at.Index, Term: at.Term, FromSnapshot: state.Installed()}
	start.Epoch, err = state.Epoch()
	return start, err
}

// Replay applies all entries of a log beyond the state, whether a majority had them or not. The state must no longer be that
// of a member of the group.
func Replay(log *raftlog.Log, state *store.Store, id uint32) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("shard %d: %w", id, err)
		}
	}()
	if !isThere(log, id) {
		return nil // a restored state never had one
	}
	at := state.Applied()
	start, err := startOf(state)
	if err != nil {
		return err
	}
	l, err := log.Shard(id, start)
	if err != nil {
		return err
	}
	last, _ := l.LastIndex()
	for next := at.Index + 1; next <= last; {
		entries, err := l.Entries(next, last+1, maxMessage)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := applyAlone(state, e); err != nil {
				return err
			}
			next = e.GetIndex() + 1
		}
	}
	return nil
}

// applyAlone applies an entry's rows. Changes of membership no longer matter.
func applyAlone(state *store.Store, e *pb.Entry) error {
	last := state.Applied()
	pos := store.Position{Index: e.GetIndex(), Term: e.GetTerm(), Time: last.Time, Conf: last.Conf}
	if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 || isHashEntry(e.GetData()) {
		return state.Apply(pos, nil)
	}
	h, body, err := parseEntry(e.GetData())
	if err != nil {
		return fmt.Errorf("entry %d: %w", pos.Index, err)
	}
	if !h.holds(pos.Index, pos.Term) {
		return state.Apply(pos, nil)
	}
	pos.Time = max(last.Time, h.time)
	return state.Apply(pos, body)
}

// Check compares the log of a replica that isn't running with its state, as Start does, and changes nothing on disk. cfg.State is nil
// if there is none. It returns raftlog.ErrStateBehind for a state that is lost or old.
func Check(cfg Config) (err error) {
	var start raftlog.Start
	if cfg.State != nil {
		if start, err = startOf(cfg.State); err != nil {
			return err
		}
	}
	if start.Ran = cfg.Ran; start.Index == 0 && len(cfg.Voters) > 0 {
		start.Index, start.Term = firstPosition.Index, firstPosition.Term
	}
	return cfg.Log.Check(cfg.ID, start)
}
