package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/route"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/internal/client/telemetry"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// maxFramesInFlight is how many frames with endings of a shard may be unanswered before the next are gathered, as in a group commit.
	// BenchmarkWorker chose it.
	maxFramesInFlight = 2
	// A stream that is silent for this long, plus up to a quarter, is reopened: the two sides then count the slots from scratch, so that no
	// lost grant can leave a worker without tasks. If the new stream is silent too, there is nothing to send, and the next silence may last
	// twice as long, up to maxSilence: an idle worker costs nothing.
	silentAfter = time.Minute
	maxSilence  = 4 * time.Minute
	// closeTimeout is how long the broker may take to finish a stream that the worker has closed.
	closeTimeout = 2 * time.Second
	// cutTimeout is when a stream is cut that could not even be closed: its sender is blocked, because the broker does not read.
	cutTimeout = closeTimeout + time.Second

	// rejectedFor is how long a worker whose credentials are rejected keeps trying once it was served: time enough to replace a token.
	rejectedFor = time.Minute
	// firstResend and maxResend bound the pauses before an ending that the broker could not accept is sent again.
	firstResend = 100 * time.Millisecond
	maxResend   = 5 * time.Second
)

// outbox is what the stream has to send. Guarded by Run.mu.
type outbox struct {
	endings map[uint32]*endings // by shard: one that does not answer holds up no ending of the others
	extends []*heldClaim
	quiet   bool // the broker has been told to push no more
}

// endings are those of one shard.
type endings struct {
	waiting []*heldClaim // in the order in which they ended
	frames  []int        // how many endings of each frame have no answer yet, oldest first
}

func (e *endings) full() bool { return len(e.frames) >= maxFramesInFlight }

// answered counts an answer. Those of a shard arrive in the order of the frames, except that a refusal may overtake
// others: then the oldest frame counts as answered, and the newest has as many answers to come.
func (e *endings) answered() {
	if len(e.frames) == 0 {
		return
	}
	if e.frames[0]--; e.frames[0] == 0 {
		e.frames = slices.Delete(e.frames, 0, 1)
	}
}

// of returns the endings of a task's shard.
func (o *outbox) of(taskID string) *endings {
	shard, _ := convert.ShardOf(taskID)
	e := o.endings[shard]
	if e == nil {
		if o.endings == nil {
			o.endings = map[uint32]*endings{}
		}
		e = &endings{}
		o.endings[shard] = e
	}
	return e
}

// add queues the ending of a claim.
func (o *outbox) add(h *heldClaim) {
	e := o.of(h.ref.TaskID)
	e.waiting = append(e.waiting, h)
}

// link keeps a stream to the broker, through any number of connections, until ctx ends or closing is closed. It returns
// an error only if the client was closed, or if the broker rejects the worker, either before it ever served it, or its
// credentials for as long as rejectedFor.
func (s *Run) link(ctx context.Context, closing <-chan struct{}) error {
	served := false
	var rejectedSince time.Time // since when its credentials are rejected
	for try := 0; ; try++ {
		start := time.Now()
		heard, err := s.session(ctx, closing)
		select {
		case <-ctx.Done():
			return nil
		case <-closing:
			return nil
		default:
		}
		if time.Since(start) > rpc.Steady {
			served, try = true, 0
		}
		served = served || heard
		if !served && rpc.Final(err) || errors.Is(err, pawltype.ErrClosed) {
			return err
		}
		pause := max(rpc.Backoff(try, rpc.FirstReconnect, rpc.MaxReconnect), min(convert.RetryAfter(err), rpc.MaxReconnect))
		switch {
		case !rpc.AccessDenied(err):
			rejectedSince = time.Time{}
		case rejectedSince.IsZero():
			rejectedSince = time.Now()
		}
		switch {
		case !rejectedSince.IsZero():
			if since := time.Since(rejectedSince); since >= rejectedFor {
				return fmt.Errorf("refused for %s: %w", since.Round(time.Second), err)
			}
			s.cfg.Log.Error("the broker rejects the worker's credentials: the worker stops unless they become valid soon", "worker",
				s.cfg.Name, "error", err, "again_in", pause, "ends_in", time.Until(rejectedSince.Add(rejectedFor)).Round(time.Second))
		case !errors.Is(err, io.EOF):
			s.cfg.Log.Warn("work stream broke", "worker", s.cfg.Name, "error", err, "again_in", pause)
		}
		if !rpc.Sleep(ctx, closing, pause) {
			return nil
		}
	}
}

var errBrokerDrains = &pawltype.Error{Code: pawltype.ErrUnavailable, Message: "the broker is shutting down"}

type workStream = interface {
	Send(*pawlv1.WorkRequest) error
	Recv() (*pawlv1.WorkResponse, error)
	CloseSend() error
}

// session opens a stream and works with it until it ends; io.EOF means that both sides had finished. heard reports
// whether the broker sent anything.
func (s *Run) session(ctx context.Context, closing <-chan struct{}) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	toward := s.placement.destination()
	defer func() { s.leave(toward, err) }()
	stream, err := s.cfg.Worker.Work(route.WithDestination(ctx, toward))
	if err != nil {
		return false, s.cfg.Caller.Failed(convert.CallError(ctx, err))
	}
	defer s.detach()
	if err := stream.Send(s.attach(time.Now())); err != nil && !errors.Is(err, io.EOF) {
		return false, s.cfg.Caller.Failed(convert.CallError(ctx, err))
	}
	s.cfg.Log.Info("work stream open", "worker", s.cfg.Name, "types", len(s.hello.Types), "slots", s.cfg.Concurrency)

	renew := make(chan struct{}, 1)
	reopen := func() {
		signal(renew)
		time.AfterFunc(cutTimeout, cancel)
	}
	watch := time.AfterFunc(s.silence(), func() {
		s.recordSilence()
		reopen()
	})
	defer watch.Stop()
	var sender sync.WaitGroup
	sender.Go(func() { s.sendFrames(ctx, cancel, stream, closing, renew) })
	defer sender.Wait()
	defer cancel()

	draining := false
	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) && draining {
			return heard, errBrokerDrains
		}
		if errors.Is(err, io.EOF) {
			return heard, io.EOF
		}
		if err != nil {
			return heard, s.cfg.Caller.Failed(convert.CallError(ctx, err))
		}
		if !heard {
			heard = true
			s.placement.watch(ctx, &sender, stream, toward, renew)
		}
		s.receive(frame, time.Now())
		watch.Reset(s.silence())
		if frame.GetDraining() {
			draining = true
			reopen()
		}
	}
}

// leave handles a stream's end. If it broke, the next one need not go to the same node, and is replaced sooner if it stays silent.
func (s *Run) leave(toward route.Destination, err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	s.placement.forget(toward)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact.silent = 0
}

// attach returns the first frame of a new stream. All that the broker has not confirmed is queued again, and all leases are extended,
// which shows whether they are still valid.
func (s *Run) attach(now time.Time) *pawlv1.WorkRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = outbox{}
	for _, h := range s.claims {
		switch {
		case h.phase == ended && h.due.IsZero():
			s.out.add(h)
		case h.phase == running:
			h.due, h.unanswered = now, nil
			s.sweepAt(now)
		}
	}
	s.slots.granted = 0
	first := &pawlv1.WorkRequest{Hello: s.hello, Quiet: s.quiet}
	if s.quietVersion != 0 {
		first.Hello = proto.CloneOf(s.hello)
		first.Hello.QuietVersion = s.quietVersion
	}
	if s.takes() {
		first.Grant = s.grantLocked()
	}
	s.out.quiet = s.quiet
	if s.stats.Connected = true; !s.contact.opened.IsZero() {
		s.stats.Reconnects++
	}
	s.contact.opened, s.contact.heard = now, false
	signal(s.sendMore)
	return first
}

// takes reports whether the worker wants tasks. The caller holds mu.
func (s *Run) takes() bool { return !s.quiet && s.quietVersion == 0 }

// setQuiet follows an operator's order. Granted slots stay granted: the broker uses them when the worker takes tasks again.
func (s *Run) setQuiet(word *pawlv1.QuietNotice) {
	s.mu.Lock()
	was := s.quietVersion != 0
	s.quietVersion = 0
	if word.GetQuiet() {
		s.quietVersion = max(word.GetVersion(), 1)
	}
	s.stats.Quiet = s.quietVersion != 0
	s.mu.Unlock()
	signal(s.sendMore)
	switch {
	case word.GetQuiet() && !was:
		s.cfg.Log.Info("an operator has made the worker quiet: it takes no new tasks", "worker", s.cfg.Name, "reason", word.GetReason())
	case !word.GetQuiet() && was:
		s.cfg.Log.Info("worker resumes: it takes tasks again", "worker", s.cfg.Name)
	}
}

// contact distinguishes a stream that works from one that the broker keeps rejecting. Guarded by Run.mu.
type contact struct {
	opened time.Time // the latest stream
	heard  bool      // anything on it
	lost   time.Time // when the last one that worked ended
	silent int       // streams reopened since anything was heard
}

// silence returns how long a stream may be silent.
func (s *Run) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := min(silentAfter<<min(s.contact.silent, 10), maxSilence)
	return d + rand.N(d/4)
}

// recordSilence records that a stream is reopened because it was silent.
func (s *Run) recordSilence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact.silent++
}

// works reports whether the latest stream has shown that it works, by a frame from the broker or by lasting.
func (c *contact) works(now time.Time) bool { return c.heard || now.Sub(c.opened) > rpc.Steady }

func (s *Run) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contact.works(time.Now()) {
		s.contact.lost = time.Now()
	}
	s.stats.Connected = false
}

// sendFrames sends frames until the stream ends or is to be closed: for good by drain, or to be reopened.
func (s *Run) sendFrames(ctx context.Context, cancel context.CancelFunc, stream workStream, closing, renew <-chan struct{}) {
	for {
		// Handlers of the same frame may be about to end, too: let them, or their endings are sent one by one.
		runtime.Gosched()
		for frame := s.nextFrame(time.Now()); frame != nil; frame = s.nextFrame(time.Now()) {
			if stream.Send(frame) != nil {
				return // Recv returns the reason
			}
		}
		select {
		case <-s.sendMore:
			continue
		case <-ctx.Done():
			return
		case <-closing:
		case <-renew:
		}
		// Close in an orderly way: the broker pushes no more, answers what it has, and ends the stream; what it pushed before is received.
		if stream.Send(&pawlv1.WorkRequest{Quiet: true}) != nil || stream.CloseSend() != nil {
			return
		}
		rpc.Sleep(ctx, nil, closeTimeout)
		cancel()
		return
	}
}

// nextFrame returns the next frame for the broker, nil if there is nothing to send.
func (s *Run) nextFrame(now time.Time) *pawlv1.WorkRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	frame := &pawlv1.WorkRequest{}
	var ready bool
	frame.Settle, ready = s.out.take(now)
	if s.quiet && !s.out.quiet {
		frame.Quiet, s.out.quiet = true, true
	}
	// Free slots are sent with the endings that freed them, unless the broker has no other.
	if s.takes() && (ready || s.slots.granted == 0) {
		frame.Grant = s.grantLocked()
	}
	if frame.Settle == nil && frame.Grant == 0 && !frame.Quiet {
		return nil
	}
	return frame
}

// grantLocked grants all free slots to the broker, fewer if too many endings wait for confirmation.
func (s *Run) grantLocked() int32 {
	free := s.cfg.Concurrency - s.slots.busy - s.slots.granted
	unsettled := len(s.claims) - s.slots.busy
	free = max(0, min(free, s.cfg.Concurrency+lease.MaxSettleItems-unsettled))
	s.slots.granted += free
	return convert.Int32(free)
}

// take returns a settle frame with all extensions, and the endings of shards that have room for a frame in flight.
// ready reports whether it has endings, or none wait for room.
func (o *outbox) take(now time.Time) (req *pawlv1.SettleRequest, ready bool) {
	req = &pawlv1.SettleRequest{}
	n := min(len(o.extends), lease.MaxSettleItems)
	for _, h := range o.extends[:n] {
		if h.phase == running {
			req.Extends = append(req.Extends, h.extension(now))
		}
	}
	o.extends = slices.Delete(o.extends, 0, n)
	room := frameRoom{items: lease.MaxSettleItems - n, bytes: lease.MaxSettleBytes}
	taken, waiting := 0, 0
	for _, e := range o.endings {
		if e.full() {
			waiting += len(e.waiting)
		} else {
			taken += e.addTo(req, &room)
		}
	}
	if len(req.GetExtends())+taken == 0 {
		req = nil
	}
	return req, taken > 0 || waiting == 0
}

// frameRoom is what still fits into a frame. The first ending fits whatever its size.
type frameRoom struct {
	items, bytes int
	used         bool
}

// addTo moves endings to a frame as far as they fit, and returns how many.
func (e *endings) addTo(req *pawlv1.SettleRequest, room *frameRoom) (n int) {
	for n < min(len(e.waiting), room.items) {
		end := e.waiting[n].end
		if room.bytes -= end.Size(); room.used && room.bytes < 0 {
			break
		}
		room.used = true
		end.AddTo(req)
		n++
	}
	if n > 0 {
		room.items -= n
		e.waiting = slices.Delete(e.waiting, 0, n)
		e.frames = append(e.frames, n)
	}
	return n
}

func (h *heldClaim) extension(now time.Time) *pawlv1.ExtendRequest {
	h.extended, h.unanswered = now, append(h.unanswered, now)
	req := &pawlv1.ExtendRequest{TaskId: h.ref.TaskID, ClaimToken: h.ref.Token, Lease: convert.Duration(h.lease), Progress: h.progress}
	h.progress = nil
	return req
}

// receive handles a frame from the broker.
func (s *Run) receive(frame *pawlv1.WorkResponse, now time.Time) {
	s.mu.Lock()
	s.stats.LastContact, s.contact.heard, s.contact.silent = now, true, 0
	s.mu.Unlock()
	if settled := frame.GetSettled(); settled != nil {
		s.settled(settled, now)
	}
	if word := frame.GetQuiet(); word != nil {
		s.setQuiet(word)
	}
	for _, l := range frame.GetLost() {
		s.lose(l.GetClaimToken(), l.GetReason())
	}
	if len(frame.GetTasks()) > 0 {
		s.accept(frame.GetTasks(), now)
	}
}

// refusal is an answer with an error, kept until the lock is released.
type refusal struct {
	h   *heldClaim
	end lease.Ending
	err *pawltype.Error
}

// answer is an answer that gets a span, kept until the lock is released.
type answer struct {
	h          *heldClaim
	verb       telemetry.Verb
	reportedAt time.Time
	settled    *pawlv1.Settled
}

// settled handles the answers to settle frames.
func (s *Run) settled(r *pawlv1.SettleResponse, now time.Time) {
	var refused []refusal
	var answered []answer
	s.mu.Lock()
	for _, list := range [...][]*pawlv1.Settled{r.GetAcks(), r.GetFails(), r.GetReleases()} {
		for _, p := range list {
			s.out.of(p.GetTaskId()).answered()
			h := s.claims[p.GetClaimToken()]
			if h == nil || h.phase != ended {
				continue // a second answer
			}
			if !h.reportedAt.IsZero() {
				answered = append(answered, answer{h, h.end.Operation(), h.reportedAt, p})
				h.reportedAt = now // of the next try
			}
			if p.GetError() == nil {
				delete(s.claims, p.GetClaimToken())
				continue
			}
			refused = append(refused, refusal{h, h.end, convert.Error(p.GetError())})
			s.refusedLocked(h, convert.Error(p.GetError()), now)
		}
	}
	quiet := s.quiet
	s.mu.Unlock()
	s.signalEnd(quiet)
	for _, a := range answered {
		s.cfg.Telemetry.Settled(a.h.run.SpanContext(), a.h.traced(), a.verb, a.reportedAt, telemetry.SettleError(a.settled))
	}
	for _, x := range refused {
		x.h.log(s.cfg.Log).Warn("the broker rejected the task's outcome", "verb", x.end.Verb(), "error", x.err)
	}
	for _, p := range r.GetExtends() {
		s.extended(p)
	}
}

// passes reports whether an ending that was refused with a code may be accepted later.
func passes(code pawltype.ErrorCode) bool {
	return code == pawltype.ErrUnavailable || code == pawltype.ErrRateLimited || code == pawltype.ErrInternal
}

// refusedLocked decides what to do with an ending that the broker did not accept.
func (s *Run) refusedLocked(h *heldClaim, err *pawltype.Error, now time.Time) {
	switch {
	case passes(err.Code):
		h.due = now.Add(max(rpc.Backoff(h.tries, firstResend, maxResend), min(err.RetryAfter, maxResend)))
		h.tries++
		s.sweepAt(h.due)
	case err.Code == pawltype.ErrInvalidArgument || err.Code == pawltype.ErrPayloadTooLarge:
		if h.fallback {
			delete(s.claims, h.ref.Token)
			return
		}
		h.fallback = true
		s.endLocked(h, h.end.Fallback(h.ref, err))
	default: // stale, or not found: it ended otherwise
		delete(s.claims, h.ref.Token)
	}
}

// extended handles the answer to an extension. After another refusal than that the claim is gone, the next extension is
// due before the lease ends.
func (s *Run) extended(p *pawlv1.Settled) {
	e := p.GetError()
	s.mu.Lock()
	h := s.claims[p.GetClaimToken()]
	if h != nil && len(h.unanswered) > 0 {
		if e == nil {
			h.confirm(h.unanswered[0])
			h.unanswered = slices.Delete(h.unanswered, 0, 1)
		} else { // it may have overtaken the answers to earlier ones, which must not confirm a later time than their own
			h.unanswered = h.unanswered[:len(h.unanswered)-1]
		}
	}
	s.mu.Unlock()
	if code := pawltype.ErrorCode(e.GetCode()); code == pawltype.ErrStaleClaim || code == pawltype.ErrNotFound {
		s.lose(p.GetClaimToken(), e.GetReason())
	}
}
