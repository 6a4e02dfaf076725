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
	// SendSnapshot carries a message, along with the state that body writes, to the message's recipient. size is how many bytes
	// the state takes on disk, for a recipient to refuse what does not fit. It returns when the recipient has installed the
	// snapshot, or when that fails. It may block for as long as that takes.
	SendSnapshot(ctx context.Context, m *pb.Message, size uint64, body func(io.Writer) error) error
}

// LeaderTerm describes the start of a leader's term.
type LeaderTerm struct {
	Term uint64
	// Began is the shard's time when this leader began. Before is the last time of the previous leader, which may be much
	// older: nobody served in between.
	Began, Before store.Time
	// Epoch grows when the loss of part of the log is accepted.
	Epoch uint64
}

// Hooks connect the shard to the layer that holds the leader's memory. All are called on the shard's loop, and must not
// block. Any may be nil.
type Hooks struct {
	// Elected: this replica is the leader, and has applied everything committed before. The leader's memory must be empty.
	Elected func(LeaderTerm)
	// BeforeSeal is called after the calls of a round, before it becomes an entry. It may read and write tx. If it panics, the calls run
	// again, each in a round of its own, and one with which it panics there fails. If it panics with RunAgain, no call is to blame.
	BeforeSeal func(tx *store.Tx)
	// Committed: the round of tx is committed and applied; its calls are answered after this. A round that wrote nothing has no
	// entry: at is the last one in the state that it read, and a majority confirms that this replica leads only afterwards.
	// Every round for which BeforeSeal was called ends with either Committed or Dropped, before the next one begins.
	Committed func(tx *store.Tx, at Stamp)
	// Dropped: a round did not commit, or its outcome is unknown, or the leader's term ended. All of the leader's memory must
	// be discarded. If over is false, the round certainly did not happen, the term continues, and Elected follows immediately
	// with the same term; otherwise when this replica leads again.
	Dropped func(over bool)
}

// Config configures a replica. The shard closes neither Log nor State.
type Config struct {
	ID      uint32
	Replica uint64 // this replica's Raft id; not 0, and never that of another replica, not even of a removed one
	// Voters are the first members of a new group; every one of them must be given the same. They are ignored if State
	// already has a position. A replica without voters and position waits until a leader sends it the state.
	Voters []uint64
	// Ran: the replica has run before, so a log that does not know it is damaged.
	Ran bool

	Log       *raftlog.Log
	State     *store.Store
	Transport Transport // may be nil if this replica is the only one
	Hooks     Hooks
	Time      store.TimeSource

	TickInterval  time.Duration // 0: 100 ms
	ElectionTicks int           // ticks without contact from the leader before a replica starts an election; 0: 10
	Limits        Limits

	// Observe receives durations, on the shard's loop: it must not block. Nil: none.
	Observe Observer

	// Node returns the name of a replica's node, for the log; nil: its number.
	Node   func(replica uint64) string
	Logger *slog.Logger
	// Fatal is called on the shard's loop, at most once, when the replica can't continue and all its calls are answered. It
	// must not block, nor call Stop. The process should exit.
	Fatal func(error)
}

// Observer receives durations.
type Observer interface {
	// Saved: entries were written to this replica's log and synced.
	Saved(time.Duration)
	// Committed: a round of this leader was run, logged by a majority and applied.
	Committed(time.Duration)
}

// noObserver is an Observer that does nothing.
type noObserver struct{}

func (noObserver) Saved(time.Duration)     {}
func (noObserver) Committed(time.Duration) {}

// Limits bounds the work of a shard. Zero values mean the defaults.
type Limits struct {
	// RoundBytes is the size at which a round takes no more calls: 4 MiB, so that one fsync stays short.
	RoundBytes int
	// RoundCalls is the maximum number of calls in a round: 4,096.
	RoundCalls int
	// CallBytes is how much one call may write: 16 MiB. A call that writes more gets ErrTooLarge. So an entry is at most
	// RoundBytes plus CallBytes, plus what the hook BeforeSeal adds.
	CallBytes int
	// ReplayBytes and ReplayEntries bound the log beyond the flushed state: 64 MiB and 100,000. If there is more, the state is
	// flushed, so that a restart replays little.
	ReplayBytes, ReplayEntries uint64
	// KeepBytes is how much flushed log is kept for lagging replicas: a leader keeps 256 MiB for as long as they lag; the
	// others, which may have to lead, keep a sixteenth of that. A replica that lags further gets a snapshot.
	KeepBytes uint64
}

func (c *Config) setDefaults() {
	setDefault(&c.TickInterval, 100*time.Millisecond)
	setDefault(&c.ElectionTicks, 10)
	setDefault(&c.Limits.RoundBytes, 4<<20)
	setDefault(&c.Limits.RoundCalls, 4096)
	setDefault(&c.Limits.CallBytes, 16<<20)
	setDefault(&c.Limits.ReplayBytes, 64<<20)
	setDefault(&c.Limits.ReplayEntries, 100_000)
	setDefault(&c.Limits.KeepBytes, 256<<20)
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
		c.Observe = noObserver{}
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

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Shard is one replica of a shard. Its methods are safe for concurrent use.
type Shard struct {
	cfg       Config
	calls     *queue
	inbox     chan *pb.Message
	loopFuncs chan func(*loop) // functions to run on the loop
	views     sync.WaitGroup   // snapshots that callers are reading

	receiving sync.Mutex             // held while a snapshot is received
	barred    atomic.Pointer[string] // why this replica must not lead; nil or "": it may
	hashes    hashes
	pace      pace // measurements while this replica leads

	leader  atomic.Pointer[leadership]
	leaders atomic.Uint64               // how often the leader or the term was seen to change
	clock   atomic.Pointer[store.Clock] // nil: not leading

	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{} // closed when the loop has ended
}

type leadership struct{ replica, term uint64 }

// maxInbox is how many messages from peers may wait. Raft resends lost messages.
const maxInbox = 256

// Start starts a replica from its log and state, or a new one if they are empty.
func Start(cfg Config) (*Shard, error) {
	s, l, err := prepare(cfg)
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", cfg.ID, err)
	}
	go s.run(l)
	return s, nil
}

// prepare creates a replica that isn't running yet.
func prepare(cfg Config) (*Shard, *loop, error) {
	cfg.setDefaults()
	s := &Shard{
		cfg:       cfg,
		calls:     newQueue(),
		inbox:     make(chan *pb.Message, maxInbox),
		loopFuncs: make(chan func(*loop), maxInbox),
		stop:      make(chan struct{}),
		done:      make(chan struct{}),
	}
	s.leader.Store(&leadership{})
	l, err := newLoop(s)
	return s, l, err
}

// run is the shard's goroutine. It runs one loop after another, as snapshots are installed, and ends when the shard is
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

// fail refuses all calls, and reports err if it is not nil.
func (s *Shard) fail(err error) {
	s.calls.close(ErrStopped)
	if err != nil {
		s.cfg.Logger.Error("replica stops", "shard", s.cfg.ID, "error", err)
		s.cfg.Fatal(fmt.Errorf("shard %d: %w", s.cfg.ID, err))
	}
}

// Stop stops the replica. When it returns, its goroutines have ended, and no snapshot is open.
func (s *Shard) Stop() {
	s.stopOnce.Do(func() { close(s.stop) })
	<-s.done
	s.views.Wait()
}

// ErrInboxFull: a message was dropped.
var ErrInboxFull = errors.New("inbox is full")

// Step delivers a message from another replica. It doesn't block; Raft recovers from a dropped message.
func (s *Shard) Step(m *pb.Message) error {
	if m.GetType() == pb.MsgAppResp {
		s.pace.acked(m, s.cfg.Time.Elapsed())
	}
	select {
	case s.inbox <- m:
		return nil
	default:
		return ErrInboxFull
	}
}

// Leader returns the leader and its term, as far as this replica knows; 0: none.
func (s *Shard) Leader() (replica, term uint64) {
	l := s.leader.Load()
	return l.replica, l.term
}

// LeaderChanges returns how often this replica has seen a new leader take over.
func (s *Shard) LeaderChanges() uint64 { return s.leaders.Load() }

// Leads reports whether this replica is leading. It is cheaper than Now, which reads the clock.
func (s *Shard) Leads() bool { return s.clock.Load() != nil }

// Now returns the shard's time if this replica is leading. A round that starts later under the same leader has the same
// time or a later one.
func (s *Shard) Now() (store.Time, bool) {
	clock := s.clock.Load()
	if clock == nil {
		return 0, false
	}
	return clock.Now(), true
}
