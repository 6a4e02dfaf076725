package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// Transport carries messages to other replicas of the group.
type Transport interface {
	// Send must not block. It may lose, delay, repeat and reorder messages.
	Send([]*pb.Message)
	// SendSnapshot carries a message with the state that body writes to the replica that the message is for, and returns
	// when that has it installed, or can't. It may block for as long as that takes.
	SendSnapshot(ctx context.Context, m *pb.Message, body func(io.Writer) error) error
}

// LeaderTerm is what a leader begins its term with.
type LeaderTerm struct {
	Term uint64
	// Began is the shard's time when this leader began, and Before the last one of the leader before it, which may
	// be much older: nobody served in between.
	Began, Before store.Time
	// Epoch grows when the loss of a part of the log was accepted.
	Epoch uint64
}

// Hooks tie the shard to the layer that keeps memory for the leader. All are called on the shard's loop, and must not
// block. Any may be nil.
type Hooks struct {
	// Elected: this replica is the leader, and has applied everything that was committed before. Its memory is empty.
	Elected func(LeaderTerm)
	// BeforeSeal is called after the calls of a round, before it becomes an entry. It may read and write tx.
	BeforeSeal func(tx *store.Tx)
	// Committed: the round of tx is committed and applied; its calls are answered after this. It isn't called for a
	// round that wrote nothing.
	Committed func(tx *store.Tx, at Stamp)
	// Dropped: a round didn't commit, or nobody knows whether it did, or the leader's term ended. All memory must be
	// thrown away. Elected follows: at once and with the same term if the term is not over, which is so when it is certain that
	// the round did not happen.
	Dropped func(over bool)
}

// Config says what a shard runs on. Neither Log nor State is closed by the shard.
type Config struct {
	ID      uint32
	Replica uint64 // this replica's Raft id; not 0, and never that of another replica, not even of one that is gone
	// Voters are the first members of a group that is being created; every one of them must be given the same. They
	// are not read when State has a position already. A replica without voters and position waits until a leader sends it
	// the state.
	Voters []uint64

	Log       *raftlog.Log
	State     *store.Store
	Transport Transport // may be nil if this replica is the only one
	Hooks     Hooks
	Time      store.TimeSource

	TickInterval  time.Duration // 0: 100 ms
	ElectionTicks int           // without a word from the leader before a replica stands for election; 0: 10
	Limits        Limits

	// Observe is told how long things take, on the shard's loop: it must not block. Nil: nobody is.
	Observe Observer

	// Node names the node of a replica, for the log; nil: by its number.
	Node   func(replica uint64) string
	Logger *slog.Logger
	// Fatal is called, at most once, on the shard's loop, when the replica can't go on and all its calls are answered. It
	// must not block, nor call Stop. The process should end.
	Fatal func(error)
}

// Observer hears how long things take.
type Observer interface {
	// Saved: entries were written to this replica's log and synced.
	Saved(time.Duration)
	// Committed: a round of this leader was run, logged by a majority and applied.
	Committed(time.Duration)
}

// nobody observes.
type nobody struct{}

func (nobody) Saved(time.Duration)     {}
func (nobody) Committed(time.Duration) {}

// Limits bound what a shard takes on at once. Zero values mean the defaults.
type Limits struct {
	// RoundBytes is where a round takes no more calls: 4 MiB, so that one fsync stays short.
	RoundBytes int
	// RoundCalls is how many calls a round takes: 4,096.
	RoundCalls int
	// CallBytes is how much one call may write: 16 MiB. More gets ErrTooLarge. So an entry has at most RoundBytes and
	// CallBytes, and what the hook BeforeSeal adds.
	CallBytes int
	// ReplayBytes and ReplayEntries are how much log may be younger than what the state has flushed: 64 MiB and 100,000.
	// More is flushed, so that a restart replays little.
	ReplayBytes, ReplayEntries uint64
	// KeepBytes is how much flushed log is kept for replicas that lag: 256 MiB by a leader, as long as they do, and a
	// sixteenth of that by the others, who may have to lead. A replica that lags more gets a snapshot.
	KeepBytes uint64
}

func (c *Config) setDefaults() {
	def(&c.TickInterval, 100*time.Millisecond)
	def(&c.ElectionTicks, 10)
	def(&c.Limits.RoundBytes, 4<<20)
	def(&c.Limits.RoundCalls, 4096)
	def(&c.Limits.CallBytes, 16<<20)
	def(&c.Limits.ReplayBytes, 64<<20)
	def(&c.Limits.ReplayEntries, 100_000)
	def(&c.Limits.KeepBytes, 256<<20)
	if c.Time.Wall == nil {
		c.Time = store.SystemTime()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Node == nil {
		c.Node = func(replica uint64) string { return fmt.Sprint(uint32(replica)) } // #nosec G115 -- the number is the lower half
	}
	if c.Fatal == nil {
		c.Fatal = func(error) {}
	}
	if c.Observe == nil {
		c.Observe = nobody{}
	}
	c.Hooks.setDefaults()
}

func (h *Hooks) setDefaults() {
	if h.Elected == nil {
		h.Elected = func(LeaderTerm) {}
	}
	if h.BeforeSeal == nil {
		h.BeforeSeal = func(*store.Tx) {}
	}
	if h.Committed == nil {
		h.Committed = func(*store.Tx, Stamp) {}
	}
	if h.Dropped == nil {
		h.Dropped = func(bool) {}
	}
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Shard is one replica of a shard. Its methods may be called from any goroutine.
type Shard struct {
	cfg   Config
	calls *queue
	inbox chan *pb.Message
	asks  chan func(*loop) // what other goroutines want of the loop
	views sync.WaitGroup   // snapshots that callers read

	receiving sync.Mutex             // one snapshot at a time comes in
	barred    atomic.Pointer[string] // from leading, and why; nil or "": not
	hashes    hashes
	pace      pace // while this replica leads

	leader  atomic.Pointer[leadership]
	leaders atomic.Uint64               // how often another replica, or another term, was found to lead
	clock   atomic.Pointer[store.Clock] // nil: not leading

	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{} // closed when the loop has ended
}

type leadership struct{ replica, term uint64 }

// maxInbox is how many messages from peers may wait. Raft sends again what is lost.
const maxInbox = 256

// Start starts a replica: on what its log and state hold, or as a new one if they are empty.
func Start(cfg Config) (*Shard, error) {
	s, l, err := prepare(cfg)
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", cfg.ID, err)
	}
	go s.run(l)
	return s, nil
}

// prepare makes a replica that doesn't run yet.
func prepare(cfg Config) (*Shard, *loop, error) {
	cfg.setDefaults()
	s := &Shard{
		cfg:   cfg,
		calls: newQueue(),
		inbox: make(chan *pb.Message, maxInbox),
		asks:  make(chan func(*loop), maxInbox),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	s.leader.Store(&leadership{})
	l, err := newLoop(s)
	return s, l, err
}

// run is the loop's goroutine: of one loop after the other, if snapshots are installed. It ends when the shard is
// stopped or fails.
func (s *Shard) run(l *loop) {
	defer close(s.done)
	for {
		err := l.run()
		if !errors.Is(err, errInstall) {
			return
		}
		if l, err = l.install(); err != nil {
			s.fail(err)
			return
		}
	}
}

// fail refuses all calls, and reports why if there is an error.
func (s *Shard) fail(err error) {
	s.calls.close(ErrStopped)
	if err != nil {
		s.cfg.Logger.Error("replica stops", "shard", s.cfg.ID, "error", err)
		s.cfg.Fatal(fmt.Errorf("shard %d: %w", s.cfg.ID, err))
	}
}

// Stop stops the replica. On return its goroutines have ended, and no snapshot is open.
func (s *Shard) Stop() {
	s.stopOnce.Do(func() { close(s.stop) })
	<-s.done
	s.views.Wait()
}

// ErrInboxFull: a message was dropped.
var ErrInboxFull = errors.New("inbox is full")

// Step takes a message from another replica. It doesn't block; Raft makes up for a message that is dropped.
func (s *Shard) Step(m *pb.Message) error {
	if m.GetType() == pb.MsgAppResp {
		s.pace.hears(m, s.cfg.Time.Elapsed())
	}
	select {
	case s.inbox <- m:
		return nil
	default:
		return ErrInboxFull
	}
}

// Leader returns which replica leads in which term, as far as this one knows; 0: none.
func (s *Shard) Leader() (replica, term uint64) {
	l := s.leader.Load()
	return l.replica, l.term
}

// LeaderChanges is how often this replica has seen a new leader take over.
func (s *Shard) LeaderChanges() uint64 { return s.leaders.Load() }

// Leads says whether this replica is leading. It costs less than Now, which reads the clock.
func (s *Shard) Leads() bool { return s.clock.Load() != nil }

// Now returns the shard's time if this replica is leading. A round that starts later as the same leader has the same time or
// a later one.
func (s *Shard) Now() (store.Time, bool) {
	clock := s.clock.Load()
	if clock == nil {
		return 0, false
	}
	return clock.Now(), true
}
