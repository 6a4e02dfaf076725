package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/ondisk"
)

var us = Identity{Cluster: [16]byte{1}, Node: 1}

// disk is a directory on a file system that can lose power.
type disk struct {
	t   *testing.T
	mem *vfs.MemFS
	log *Log
}

func newDisk(t *testing.T) *disk { return &disk{t: t, mem: vfs.NewCrashableMem()} }

func (d *disk) config() Config {
	return Config{Dir: "/data/raft", FS: d.mem, Identity: us, SegmentSize: 16 << 10}
}

func (d *disk) open() *Log {
	d.t.Helper()
	log, err := Open(d.config())
	if err != nil {
		d.t.Fatal(err)
	}
	d.log = log
	return log
}

func (d *disk) openShard(at Start) *ShardLog {
	d.t.Helper()
	s, err := d.open().Shard(7, at)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// opened opens logs, and that of shard 7.
func opened(t *testing.T, cfg Config) (*Log, *ShardLog) {
	t.Helper()
	log, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := log.Shard(7, Start{})
	if err != nil {
		t.Fatal(err)
	}
	return log, s
}

func (d *disk) close() {
	d.t.Helper()
	if err := d.log.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// losePower leaves what was synced, and percent of the rest.
func (d *disk) losePower(percent int, seed uint64) {
	d.t.Helper()
	after := d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 1))})
	d.close()
	d.mem = after
}

func entries(term, from, to uint64) []*pb.Entry {
	var out []*pb.Entry
	for i := from; i <= to; i++ {
		out = append(out, &pb.Entry{Index: new(i), Term: new(term), Data: fmt.Appendf(nil, "entry %d of term %d", i, term)})
	}
	return out
}

func aHardState(term, vote, commit uint64) *pb.HardState {
	return &pb.HardState{Term: new(term), Vote: new(vote), Commit: new(commit)}
}

func save(t *testing.T, s *ShardLog, hs *pb.HardState, es []*pb.Entry) {
	t.Helper()
	if err := s.Save(hs, es); err != nil {
		t.Fatal(err)
	}
}

// wantLog checks what a log holds: "3:1 4:1 5:2" means entries 3 to 5 of terms 1, 1 and 2.
func wantLog(t *testing.T, s *ShardLog, want string) {
	t.Helper()
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	var got []string
	if last >= first {
		es, err := s.Entries(first, last+1, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			got = append(got, fmt.Sprintf("%d:%d", e.GetIndex(), e.GetTerm()))
			if term, err := s.Term(e.GetIndex()); err != nil || term != e.GetTerm() {
				t.Errorf("term of entry %d is %d, %v; want %d", e.GetIndex(), term, err, e.GetTerm())
			}
			if want := fmt.Sprintf("entry %d of term %d", e.GetIndex(), e.GetTerm()); string(e.GetData()) != want {
				t.Errorf("entry %d has %q, want %q", e.GetIndex(), e.GetData(), want)
			}
		}
	}
	if got := strings.Join(got, " "); got != want {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

func wantHard(t *testing.T, s *ShardLog, term, vote, commit uint64) {
	t.Helper()
	hs, _, _ := s.InitialState()
	if hs.GetTerm() != term || hs.GetVote() != vote || hs.GetCommit() != commit {
		t.Errorf("the hard state is term %d, vote %d, commit %d; want %d, %d, %d", hs.GetTerm(), hs.GetVote(), hs.GetCommit(),
			term, vote, commit)
	}
}

func TestSaveSurvivesPowerLoss(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(1, 1, 0), nil)
	save(t, s, nil, entries(1, 1, 2))
	save(t, s, aHardState(1, 1, 2), entries(1, 3, 3))
	save(t, s, aHardState(1, 1, 3), nil) // only the commit index: may be lost
	wantHard(t, s, 1, 1, 3)
	wantLog(t, s, "1:1 2:1 3:1")

	d.losePower(0, 1)
	s = d.openShard(Start{})
	wantLog(t, s, "1:1 2:1 3:1")
	wantHard(t, s, 1, 1, 2)

	d.close()
	s = d.openShard(Start{Index: 3, Term: 1})
	wantHard(t, s, 1, 1, 3) // the state has applied it, so it is committed
	d.close()
}

// If a replica's vote is lost with the power, it can vote for another candidate in the same term, and then two replicas lead.
func TestVoteSurvivesPowerLoss(t *testing.T) {
	for what, states := range map[string][]*pb.HardState{
		"a vote with a new term":        {aHardState(5, 2, 0)},
		"a vote in a term known before": {aHardState(5, 0, 0), aHardState(5, 2, 0)},
		"a vote for the same one again": {aHardState(4, 2, 0), aHardState(5, 2, 0)},
		"a new term without a vote":     {aHardState(4, 0, 0), aHardState(5, 0, 0)},
	} {
		d := newDisk(t)
		s := d.openShard(Start{})
		for _, hs := range states {
			save(t, s, hs, nil)
		}
		last := states[len(states)-1]
		d.losePower(0, 1)
		if got, _, _ := d.openShard(Start{}).InitialState(); got.GetTerm() != last.GetTerm() || got.GetVote() != last.GetVote() {
			t.Errorf("%s: after the power loss the hard state is %v, want %v", what, got, last)
		}
		d.close()
	}
}

func TestConflictReplacesSuffix(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(1, 1, 0), entries(1, 1, 6))
	save(t, s, aHardState(2, 2, 0), entries(2, 3, 4))
	wantLog(t, s, "1:1 2:1 3:2 4:2")
	d.losePower(0, 1)
	s = d.openShard(Start{})
	wantLog(t, s, "1:1 2:1 3:2 4:2")
	save(t, s, nil, entries(2, 5, 5))
	save(t, s, aHardState(3, 3, 0), entries(3, 2, 2))
	wantLog(t, s, "1:1 2:3")
	d.close()
	wantLog(t, d.openShard(Start{}), "1:1 2:3")
	d.close()
}

// A log that is truncated, or that starts over in favor of a snapshot of fewer entries, is shorter on purpose, at
// whatever moment the power goes.
func TestTruncationAtEveryCrash(t *testing.T) {
	for what, c := range map[string]struct {
		again Start
		ends  []uint64
		run   func(*ShardLog) error
	}{
		"truncated": {Start{}, []uint64{4, 6}, func(s *ShardLog) error {
			return errors.Join(s.Save(aHardState(2, 2, 0), nil), s.Save(nil, entries(2, 3, 4)))
		}},
		"snapshot": {Start{Index: 4, Term: 2, FromSnapshot: true}, []uint64{4}, func(s *ShardLog) error {
			if err := s.Save(aHardState(2, 2, 0), nil); err != nil {
				return err
			}
			_, err := s.log.Shard(7, Start{Index: 4, Term: 2, FromSnapshot: true})
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) { crashEverywhere(t, c.again, c.ends, c.run) })
	}
}

// crashEverywhere loses power before each write of run, on a log of six entries of term 1. Then the log must open, with one of the ends.
func crashEverywhere(t *testing.T, again Start, ends []uint64, run func(*ShardLog) error) {
	for op := 1; op < 200; op++ {
		d := newDisk(t)
		s := d.openShard(Start{})
		save(t, s, aHardState(1, 1, 0), entries(1, 1, 6))
		d.close() // the marks have 6
		mem := d.mem
		crashed, seen := (*vfs.MemFS)(nil), 0
		var mu sync.Mutex
		cfg := d.config()
		cfg.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(o errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if o.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				if seen++; seen == op && crashed == nil {
					crashed = mem.CrashClone(vfs.CrashCloneCfg{})
				}
			}
			return nil
		}))
		log, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = log.Shard(7, Start{}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(run(s), log.Close()); err != nil {
			t.Fatal(err)
		}
		if crashed == nil {
			if op < 5 {
				t.Fatalf("only %d writes were seen", op)
			}
			return
		}
		d.mem = crashed
		s = d.openShard(again) // must not be refused
		if last, _ := s.LastIndex(); !slices.Contains(ends, last) {
			t.Errorf("crash at write %d: the log ends at %d", op, last)
		}
		d.close()
	}
	t.Fatal("the loop did not end")
}

func TestCompact(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(1, 1, 5), entries(1, 1, 5))
	if err := s.Compact(3); err != nil {
		t.Fatal(err)
	}
	wantLog(t, s, "4:1 5:1")
	if _, err := s.Entries(3, 5, 1<<20); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("Entries below the start: %v, want ErrCompacted", err)
	}
	if _, err := s.Term(2); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("Term below the start: %v, want ErrCompacted", err)
	}
	if term, err := s.Term(3); term != 1 || err != nil {
		t.Errorf("Term of the start = %d, %v", term, err)
	}
	if err := s.Compact(5); err != nil {
		t.Fatal(err)
	}
	wantLog(t, s, "")
	d.close()
	s = d.openShard(Start{Index: 5, Term: 1})
	wantLog(t, s, "")
	save(t, s, nil, entries(1, 6, 6))
	wantLog(t, s, "6:1")
	d.close()
}

// The state may come back without the entries that the log was compacted for: then they are missing for good.
func TestStateBehindLogIsRefused(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(1, 1, 5), entries(1, 1, 5))
	if err := s.Compact(3); err != nil {
		t.Fatal(err)
	}
	d.close()
	_, err := d.open().Shard(7, Start{Index: 2, Term: 1})
	if !errors.Is(err, ErrStateBehind) {
		t.Errorf("got %v, want ErrStateBehind", err)
	}
	d.close()
}

// A blank log begins where its state is.
func TestBlankLogBeginsAtItsState(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{Index: 9, Term: 4})
	wantLog(t, s, "")
	wantHard(t, s, 4, 0, 9)
	rn, err := raft.NewRawNode(&raft.Config{ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: s, Applied: 9, MaxInflightMsgs: 1,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}})
	if err != nil {
		t.Fatal(err)
	}
	if rn.HasReady() {
		t.Error("Raft has work to do")
	}
	save(t, s, aHardState(5, 1, 9), entries(5, 10, 10))
	d.losePower(0, 1)
	s = d.openShard(Start{Index: 10, Term: 5})
	wantLog(t, s, "10:5")
	d.close()
}

// A log and marks from before what the state has applied are old: whatever the log had after that, and its votes, are lost.
func TestLogFromBeforeItsStateIsRefused(t *testing.T) {
	d := newDisk(t)
	save(t, d.openShard(Start{Index: 9, Term: 4}), aHardState(5, 1, 9), entries(5, 10, 10))
	d.close()
	for _, c := range []struct {
		start Start
		is    error
	}{
		{Start{Index: 10, Term: 5}, nil},
		{Start{Index: 10, Term: 4}, ondisk.ErrDamaged},
		{Start{Index: 11, Term: 5}, ondisk.ErrDamaged},
		{Start{Index: 11, Term: 6}, ondisk.ErrDamaged},
		{Start{Index: 11, Term: 5, Epoch: 1}, nil}, // a recovery drops the log
		{Start{Index: 11, Term: 5, Epoch: 1, Ran: true}, ondisk.ErrDamaged},
		{Start{Index: 8, Term: 4, FromSnapshot: true}, ErrStateBehind},
		{Start{Index: 11, Term: 6, FromSnapshot: true}, nil},
		{Start{Index: 10, Term: 4, FromSnapshot: true}, nil},
	} {
		if err := d.open().Check(7, c.start); !errors.Is(err, c.is) || (err == nil) != (c.is == nil) {
			t.Errorf("%+v: %v, want %v", c.start, err, c.is)
		}
		d.close()
	}
	log := d.open()
	if err := log.Check(8, Start{}); err != nil {
		t.Errorf("a new shard: %v", err)
	}
	if err := log.Check(8, Start{Index: 3, Term: 1, Ran: true}); !errors.Is(err, ondisk.ErrDamaged) || !strings.Contains(err.Error(),
		"no mark of shard 8") {
		t.Errorf("a shard that has run, without a log: %v", err)
	}
	if err := errors.Join(log.Create(8), log.Check(8, Start{Index: 3, Term: 1, Ran: true})); err != nil || !log.Has(8) ||
		log.Holds(8) || !log.Holds(7) {
		t.Errorf("a shard whose log was created: %v", err)
	}
	d.close()
}

// A state that came from a snapshot, in a copy from before the log started over, does not make it start over again.
func TestLogStartsOverOnce(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{Index: 9, Term: 4, FromSnapshot: true})
	save(t, s, aHardState(5, 1, 9), entries(5, 10, 12))
	d.close()
	wantLog(t, d.openShard(Start{Index: 9, Term: 4, FromSnapshot: true}), "10:5 11:5 12:5")
	d.close()
}

// Load changes nothing, whether it refuses the logs, accepts their damage or would only have to tidy up. With Begin they can be used.
func TestLoadChangesNothing(t *testing.T) {
	whole := newDisk(t)
	save(t, whole.openShard(Start{}), aHardState(3, 1, 0), entries(3, 1, 5))
	whole.close()
	for what, spoil := range map[string]func(d *disk) error{
		"nothing": func(*disk) error { return nil },
		"an unfinished segment": func(d *disk) error {
			d.write("/data/raft/log/0000000002.log.new", []byte("x"))
			return nil
		},
		"a torn record": func(d *disk) error {
			b := d.read("/data/raft/log/0000000001.log")
			b[len(bytes.TrimRight(b, "\x00"))-1] ^= 1
			d.write("/data/raft/log/0000000001.log", b)
			return nil
		},
		"no marks":    func(d *disk) error { return d.mem.Remove("/data/raft/marks") },
		"no segments": func(d *disk) error { return d.mem.RemoveAll("/data/raft/log") },
		"no logs":     func(d *disk) error { return d.mem.RemoveAll("/data/raft") },
	} {
		for _, accept := range []bool{false, true} {
			d := whole.copy()
			if err := spoil(d); err != nil {
				t.Fatal(err)
			}
			before := d.contents()
			cfg := d.config()
			cfg.MustExist, cfg.AcceptDataLoss = true, accept
			log, err := Load(cfg)
			if err == nil {
				err = errors.Join(log.Check(7, Start{Index: 2, Term: 3, Ran: true}), log.Close())
			}
			lost := what != "nothing" && what != "an unfinished segment" && !accept
			if errors.Is(err, ondisk.ErrDamaged) != lost || (err != nil) != lost {
				t.Errorf("%s, accept %t: %v", what, accept, err)
			}
			if after := d.contents(); !maps.Equal(before, after) {
				t.Errorf("%s, accept %t: it has changed the files %q, which were %q", what, accept, slices.Sorted(maps.Keys(after)),
					slices.Sorted(maps.Keys(before)))
			}
			if lost {
				continue
			}
			if d.log, err = Open(cfg); err != nil {
				t.Fatal(err)
			}
			s, err := d.log.Shard(7, Start{Index: 2, Term: 3, Ran: true})
			if err != nil || accept && what != "nothing" && what != "an unfinished segment" && s.Epoch() != 1 {
				t.Errorf("%s, accept %t: %v, epoch %d", what, accept, err, s.Epoch())
			}
			d.close()
		}
	}
}

// contents returns the contents of all files but the lock, by path, and the directories.
func (d *disk) contents() map[string]string {
	d.t.Helper()
	all := map[string]string{}
	for _, file := range d.files() {
		all[file] = string(d.read(file))
	}
	for _, dir := range []string{"/data/raft", "/data/raft/log"} {
		if _, err := d.mem.Stat(dir); err == nil {
			all[dir] = ""
		}
	}
	return all
}

func TestTailIsBounded(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	big := make([]byte, 100<<10)
	for i := uint64(1); i <= 100; i++ {
		save(t, s, nil, []*pb.Entry{{Index: new(i), Term: new(uint64(1)), Data: big}})
	}
	sum := 0
	for _, e := range s.tail {
		sum += len(e.GetData())
	}
	if sum != s.tailLen || sum > maxTail || sum <= maxTail-len(big) {
		t.Errorf("the tail has %d bytes, counted as %d, want at most %d", sum, s.tailLen, maxTail)
	}
	for _, lo := range []uint64{1, 50, 90, 100} {
		es, err := s.Entries(lo, 101, 250<<10)
		if err != nil || es[0].GetIndex() != lo || len(es) > 2 {
			t.Errorf("Entries from %d returned %d, %v", lo, len(es), err)
		}
	}
	save(t, s, nil, []*pb.Entry{{Index: new(uint64(101)), Term: new(uint64(1)), Data: make([]byte, maxTail+1)}})
	if len(s.tail) != 1 {
		t.Errorf("after a large entry, %d entries are in memory, want only that one", len(s.tail))
	}
	d.close()
}

// A log that comes back shorter than its mark has lost what was promised.
func TestShorterThanMarkIsRefused(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(3, 1, 0), entries(3, 1, 5))
	early := d.mem.CrashClone(vfs.CrashCloneCfg{})
	save(t, s, nil, entries(3, 6, 9))
	d.close()
	copyFile(t, d.mem, early, "/data/raft/marks") // a disk that kept the marks and lost the end of the log

	d.mem = early
	_, err := d.open().Shard(7, Start{Index: 2, Term: 3})
	if !errors.Is(err, ondisk.ErrDamaged) || !strings.Contains(err.Error(), "entries 6 to 9 of shard 7 are lost") {
		t.Errorf("Shard = %v, want an error that entries 6 to 9 are lost", err)
	}
	d.close()

	// The mark may be up to 100 ms old, so there may have been more than the state has.
	if _, err := d.open().Shard(7, Start{Index: 9, Term: 3}); !errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("Shard = %v, want ondisk.ErrDamaged", err)
	}
	d.close()
}

func TestAcceptDataLossBeginsAnEpoch(t *testing.T) {
	for _, before := range []uint64{0, 7} { // the state's epoch, which a recovery may have raised
		d := newDisk(t)
		s := d.openShard(Start{})
		save(t, s, aHardState(3, 1, 0), entries(3, 1, 5))
		early := d.mem.CrashClone(vfs.CrashCloneCfg{})
		save(t, s, nil, entries(3, 6, 9))
		d.close()
		copyFile(t, d.mem, early, "/data/raft/marks")
		d.mem = early
		cfg := d.config()
		cfg.AcceptDataLoss = true
		for range 2 { // the second time there is no loss to accept
			log, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if s, err = log.Shard(7, Start{Index: 2, Term: 3, Epoch: before}); err != nil {
				t.Fatal(err)
			}
			wantLog(t, s, "1:3 2:3 3:3 4:3 5:3")
			wantHard(t, s, 4, 0, 2)
			if s.Epoch() != before+1 {
				t.Errorf("epoch is %d, want %d", s.Epoch(), before+1)
			}
			if got, want := log.indexes()[7], (indexed{before + 1, hardState{4, 0, 0}, position{}, position{5, 3}}); got != want {
				t.Errorf("the next checkpoint would have %+v, want %+v", got, want)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if s := d.openShard(Start{Index: 2, Term: 3}); s.Epoch() != before+1 {
			t.Errorf("epoch is %d, want %d", s.Epoch(), before+1)
		}
		d.close()
	}
}

func TestLostVoteIsRefused(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(3, 1, 0), entries(3, 1, 5))
	early := d.mem.CrashClone(vfs.CrashCloneCfg{})
	save(t, s, aHardState(4, 2, 0), nil)
	late := d.mem.CrashClone(vfs.CrashCloneCfg{}) // no Close, no 100 ms: the mark is already there
	d.close()
	copyFile(t, late, early, "/data/raft/marks")
	d.mem = early
	if _, err := d.open().Shard(7, Start{}); !errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("Shard = %v, want ondisk.ErrDamaged", err)
	}
	d.close()
}

func TestOtherIdentityIsRefused(t *testing.T) {
	d := newDisk(t)
	d.open()
	d.close()
	cfg := d.config()
	cfg.Identity.Node = 2
	if _, err := Open(cfg); !errors.Is(err, ErrIdentity) {
		t.Errorf("Open = %v, want ErrIdentity", err)
	}
}

// TestOwner: the marks say whose logs a directory has, as long as one of their slots can be read.
func TestOwner(t *testing.T) {
	d := newDisk(t)
	if id, ok := Owner(d.mem, "/data/raft"); ok {
		t.Errorf("logs that do not exist belong to %+v", id)
	}
	save(t, d.openShard(Start{Conf: &pb.ConfState{Voters: []uint64{3}}}), aHardState(1, 1, 0), nil)
	d.close()
	whole := d.read("/data/raft/marks")
	other := slices.Clone(whole)
	for _, at := range []int{0, slotLen} {
		other[at+len(slotMagic)] = 2 // of another release
		binary.BigEndian.PutUint32(other[at+slotHead+markLen:], crc32.Checksum(other[at:at+slotHead+markLen], castagnoli))
	}
	for name, c := range map[string]struct {
		b    []byte
		want bool
	}{
		"whole":       {whole, true},
		"first slot":  {whole[:slotLen], true},
		"second slot": {append(make([]byte, slotLen), whole[slotLen:]...), true},
		"neither":     {make([]byte, 2*slotLen), false},
		"empty":       {nil, false},
		"another":     {other, false},
	} {
		d.write("/data/raft/marks", slices.Clone(c.b)) // with checks on, Pebble's file system overwrites what it was given
		if id, ok := Owner(d.mem, "/data/raft"); ok != c.want || ok && id != us {
			t.Errorf("%s: the logs belong to %+v (%v), want %+v (%v)", name, id, ok, us, c.want)
		}
	}
}

// TestConf: a log returns the membership of its state.
func TestConf(t *testing.T) {
	d := newDisk(t)
	for _, conf := range []*pb.ConfState{nil, {Voters: []uint64{3, 4}}} {
		if _, got, err := d.openShard(Start{Conf: conf}).InitialState(); got == nil || err != nil || !slices.Equal(got.GetVoters(),
			conf.GetVoters()) {
			t.Errorf("InitialState returned the membership %v, %v, want %v", got, err, conf)
		}
		d.close()
	}
}

// TestMarkOfATruncation: while entries are replaced, the mark still covers all others. A compaction does not sync.
func TestMarkOfATruncation(t *testing.T) {
	d := newDisk(t)
	cfg, syncs := d.config(), 0
	var marked uint64
	var log *Log
	cfg.FS = errorfs.Wrap(d.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if isSync(op) && strings.HasSuffix(op.Path, "1.log") && log != nil {
			syncs++
			k, _ := log.marks.get(7)
			marked = k.index
		}
		return nil
	}))
	log, s := opened(t, cfg)
	save(t, s, aHardState(1, 1, 0), entries(1, 1, 6))
	save(t, s, nil, entries(1, 5, 5))
	if marked != 4 {
		t.Errorf("while entry 5 of 6 is replaced the mark is %d, want 4", marked)
	}
	syncs = 0
	if err := s.Compact(4); err != nil || syncs != 0 {
		t.Errorf("Compact made %d syncs, %v", syncs, err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMissingFiles(t *testing.T) {
	for _, gone := range []string{"marks", "log"} {
		d := newDisk(t)
		s := d.openShard(Start{})
		save(t, s, aHardState(1, 1, 0), entries(1, 1, 5))
		d.close()
		if err := d.mem.RemoveAll("/data/raft/" + gone); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(d.config()); !errors.Is(err, ondisk.ErrDamaged) {
			t.Errorf("without %q: %v, want ondisk.ErrDamaged", gone, err)
		}
		cfg := d.config()
		cfg.AcceptDataLoss = true
		log, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = log.Shard(7, Start{Index: 2, Term: 1}); err != nil || s.Epoch() != 1 {
			t.Errorf("without %q, with the loss accepted: %v, epoch %d", gone, err, s.Epoch())
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwoShardsAreApart(t *testing.T) {
	d := newDisk(t)
	log := d.open()
	a, err := log.Shard(1, Start{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := log.Shard(2, Start{})
	if err != nil {
		t.Fatal(err)
	}
	save(t, a, nil, entries(1, 1, 3))
	save(t, b, nil, entries(2, 1, 2))
	if err := a.Reset(5, 2); err != nil {
		t.Fatal(err)
	}
	wantLog(t, a, "")
	wantHard(t, a, 2, 0, 5)
	wantLog(t, b, "1:2 2:2")
	d.close()
}

// After a failed fsync the disk may hold anything, and the next fsync may succeed: nothing is saved any more.
func TestFailedSyncIsFinal(t *testing.T) {
	for _, file := range []string{".log", "marks"} {
		var on atomic.Bool
		var fatals atomic.Int32
		cfg := newDisk(t).config()
		cfg.Fatal = func(error) { fatals.Add(1) }
		cfg.FS = errorfs.Wrap(cfg.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
			sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
			if sync && strings.HasSuffix(op.Path, file) && on.CompareAndSwap(true, false) { // once
				return errorfs.ErrInjected
			}
			return nil
		}))
		_, s := opened(t, cfg)
		save(t, s, aHardState(1, 1, 0), entries(1, 1, 1))
		on.Store(true)
		for i := uint64(2); i <= 4; i++ {
			if err := s.Save(aHardState(i, 1, 0), entries(i, i, i)); err == nil {
				t.Errorf("Save %d succeeded after a failed fsync of %q", i, file)
			}
		}
		if n := fatals.Load(); n != 1 {
			t.Errorf("fatal was called %d times, want once", n)
		}
		// The log isn't closed: a process in this state exits.
	}
}

func copyFile(t *testing.T, from, to *vfs.MemFS, path string) {
	t.Helper()
	if err := to.Remove(path); err != nil {
		t.Fatal(err)
	}
	if ok, err := vfs.Clone(from, to, path, path, vfs.CloneSync); err != nil || !ok {
		t.Fatal(ok, err)
	}
}

// A removed log is forgotten: the shard may come back with another one.
func TestRemove(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{Index: 1, Term: 1})
	if err := s.Save(aHardState(3, 2, 1), entries(3, 2, 9)); err != nil {
		t.Fatal(err)
	}
	if !d.log.Has(7) || d.log.Has(8) {
		t.Error("Has is wrong about which shards have logs")
	}
	if err := d.log.Remove(7); err != nil {
		t.Fatal(err)
	}
	d.losePower(0, 1)
	if log := d.open(); log.Has(7) {
		t.Error("Has still reports the removed log")
	}
	s, err := d.log.Shard(7, Start{})
	if err != nil {
		t.Fatal(err)
	}
	if last, _ := s.LastIndex(); last != 0 || s.hard.GetTerm() != 0 {
		t.Errorf("the new log is at entry %d, term %d, want an empty one", last, s.hard.GetTerm())
	}
	d.close()
}

// A state installed from a snapshot replaces whatever the log had, even after a crash in between.
func TestFromSnapshot(t *testing.T) {
	for _, at := range []uint64{2, 5, 100} {
		d := newDisk(t)
		s := d.openShard(Start{Index: 1, Term: 1})
		if err := s.Save(aHardState(3, 2, 1), entries(3, 2, 9)); err != nil {
			t.Fatal(err)
		}
		d.losePower(0, 1)
		for range 2 {
			s = d.openShard(Start{Index: at, Term: 4, FromSnapshot: true})
			if last, _ := s.LastIndex(); last != at || s.hard.GetTerm() != 4 || s.hard.GetVote() != 0 {
				t.Errorf("the log is at entry %d with %v, want entry %d of term 4", last, s.hard, at)
			}
			d.losePower(0, 1)
		}
		s = d.openShard(Start{Index: at, Term: 4})
		if last, _ := s.LastIndex(); last != at {
			t.Errorf("after a restart the log is at entry %d, want %d", last, at)
		}
		d.close()
	}
}

// A shard that hardly writes keeps no segments alive: its entries are copied to the end of the log, and none is lost if the
// power goes at any moment.
func TestOldEntriesAreCopied(t *testing.T) { synctest.Test(t, testOldEntriesAreCopied) }

func testOldEntriesAreCopied(t *testing.T) {
	d := newDisk(t)
	idle := d.openShard(Start{})
	save(t, idle, aHardState(1, 1, 0), entries(1, 1, 5))
	busy, err := d.log.Shard(8, Start{})
	if err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 1000)
	next := uint64(1)
	write := func(n int) {
		for range n {
			save(t, busy, aHardState(1, 1, next), []*pb.Entry{{Index: new(next), Term: new(uint64(1)), Data: big}})
			if err := busy.Compact(next); err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	copied := false
	for range 100 {
		write(20)
		synctest.Wait()
		first, last := d.log.wal.Segments()
		copied = copied || first > 1
		if last-first > keepSegments+4 {
			t.Fatalf("segments %d to %d are kept, too many", first, last)
		}
		wantLog(t, idle, "1:1 2:1 3:1 4:1 5:1")
		if next%7 == 0 {
			d.losePower(50, next)
			if idle, err = d.open().Shard(7, Start{}); err != nil {
				t.Fatal(err)
			}
			if busy, err = d.log.Shard(8, Start{Index: next - 1, Term: 1}); err != nil {
				t.Fatal(err)
			}
		}
		idle.tail, idle.tailLen = nil, 0 // so that they are read from disk
	}
	if !copied {
		t.Error("no entry was copied")
	}
	save(t, idle, aHardState(2, 1, 0), entries(2, 4, 4)) // copied entries can be replaced like any others
	d.close()
	wantLog(t, d.openShard(Start{}), "1:1 2:1 3:1 4:2")
	d.close()
}

// Entries that can't be read are a failure of the disk, like those that can't be written: Raft would send a snapshot instead,
// and continue.
func TestFailedReadIsFatal(t *testing.T) {
	d := newDisk(t)
	save(t, d.openShard(Start{}), aHardState(1, 1, 0), entries(1, 1, 9))
	d.close()
	var broken atomic.Bool
	var reported []error
	cfg := d.config()
	cfg.Fatal = func(err error) { reported = append(reported, err) }
	cfg.FS = errorfs.Wrap(cfg.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.HasSuffix(op.Path, ".log") && op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return &os.PathError{Op: "read", Path: op.Path, Err: syscall.EIO}
		}
		return nil
	}))
	log, s := opened(t, cfg)
	defer log.Close()
	broken.Store(true)
	if _, err := s.Entries(2, 4, 1<<20); !errors.Is(err, syscall.EIO) || errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("Entries = %v, want EIO that is not damage", err)
	}
	if len(reported) != 1 || !errors.Is(reported[0], syscall.EIO) {
		t.Errorf("reported %v, want EIO", reported)
	}
	if err := s.Save(aHardState(2, 1, 0), nil); err == nil {
		t.Error("Save succeeded after a failed read")
	}
}
