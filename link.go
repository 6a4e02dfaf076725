package pawl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// maxFramesInFlight is how many frames of endings may wait for their answers before the next gathers, as a group commit does.
	// BenchmarkWorker chose it.
	maxFramesInFlight = 2
	// A stream that says nothing for so long, plus up to a quarter, is opened anew: what the two sides believe of each other's
	// slots begins afresh, so that no lost grant can make a worker deaf. If it says nothing after that either, there is nothing to say, and
	// the next silence may take twice as long, up to maxDeaf: an idle worker costs nothing.
	deafAfter = time.Minute
	maxDeaf   = 4 * time.Minute
	// closeTimeout is how long the broker may take to finish a stream that the worker has closed.
	closeTimeout = 2 * time.Second

	firstReconnect = 50 * time.Millisecond
	maxReconnect   = 5 * time.Second
	// steady is how long a stream must last for the next reconnect to begin with short pauses again.
	steady = 5 * time.Second
	// unwantedFor is how long a worker that was served asks to be let in again: a token is exchanged in that time, if somebody does it.
	unwantedFor = time.Minute
	// firstResend and maxResend bound the pauses before an end that the broker could not take is told again.
	firstResend = 100 * time.Millisecond
	maxResend   = 5 * time.Second
)

// outbox is what the stream has to carry. Guarded by shift.mu.
type outbox struct {
	endings []*hold // in the order in which they ended
	extends []*hold
	frames  []int // endings of each frame that has no answer yet, oldest first
	quiet   bool  // the broker has been told to push nothing more
}

// link keeps a stream to the broker, through any number of connections, until ctx ends or closing is closed. It returns an error
// only if the broker refuses the worker, either before it ever served it, or for as long as unwantedFor because of its token.
func (s *shift) link(ctx context.Context, closing <-chan struct{}) error {
	served := false
	var unwanted time.Time // since when its token is refused
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
		if time.Since(start) > steady {
			served, try = true, 0
		}
		served = served || heard
		if !served && final(err) {
			return err
		}
		pause := max(backoffAfter(try, firstReconnect, maxReconnect), min(retryAfter(err), maxReconnect))
		switch {
		case !notLetIn(err):
			unwanted = time.Time{}
		case unwanted.IsZero():
			unwanted = time.Now()
		}
		switch {
		case !unwanted.IsZero():
			if since := time.Since(unwanted); since >= unwantedFor {
				return fmt.Errorf("refused for %s: %w", since.Round(time.Second), err)
			}
			s.cfg.Logger.Error("the broker does not let the worker in any more: it ends unless its token is good again soon", "worker", s.cfg.Name, "error", err,
				"again_in", pause, "ends_in", time.Until(unwanted.Add(unwantedFor)).Round(time.Second))
		case err != nil && !errors.Is(err, io.EOF):
			s.cfg.Logger.Warn("work stream broke", "worker", s.cfg.Name, "error", err, "again_in", pause)
		}
		if !sleep(ctx, closing, pause) {
			return nil
		}
	}
}

// notLetIn reports whether the worker was refused for what it may do.
func notLetIn(err error) bool {
	return errors.Is(err, ErrUnauthenticated) || errors.Is(err, ErrPermissionDenied)
}

// final reports whether repeating can't help: the broker doesn't want this worker.
func final(err error) bool {
	return notLetIn(err) || errors.Is(err, ErrInvalidArgument) || errors.Is(err, ErrClosed)
}

func sleep(ctx context.Context, closing <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-closing:
		return false
	case <-ctx.Done():
		return false
	}
}

var errBrokerDrains = &Error{Code: codeUnavailable, Message: "the broker shuts down"}

type workStream = interface {
	Send(*pawlv1.WorkRequest) error
	Recv() (*pawlv1.WorkResponse, error)
	CloseSend() error
}

// session opens a stream and works with it until it ends; io.EOF means that both sides had finished. heard reports whether the broker
// said anything.
func (s *shift) session(ctx context.Context, closing <-chan struct{}) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	toward := s.aim()
	defer func() { s.leave(toward, err) }()
	stream, err := s.client.worker.Work(context.WithValue(ctx, aimKey{}, toward))
	if err != nil {
		return false, s.client.failed(callError(ctx, err))
	}
	if err := stream.Send(s.attach(time.Now())); err != nil && !errors.Is(err, io.EOF) {
		return false, s.client.failed(callError(ctx, err))
	}
	defer s.detach()
	s.cfg.Logger.Info("work stream open", "worker", s.cfg.Name, "types", len(s.hello.Types), "slots", s.cfg.Concurrency)

	renew := make(chan struct{}, 1)
	watch := time.AfterFunc(s.silence(), func() {
		s.fellSilent()
		signal(renew)
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
			return heard, s.client.failed(callError(ctx, err))
		}
		if !heard {
			heard = true
			s.settleDown(ctx, &sender, stream, toward, renew)
		}
		s.receive(frame, time.Now())
		watch.Reset(s.silence())
		if frame.GetDraining() {
			draining = true
			signal(renew)
		}
	}
}

// attach makes the first frame of a new stream. All that the broker has not confirmed is queued again, and all leases are extended, which
// tells whether they still hold.
func (s *shift) attach(now time.Time) *pawlv1.WorkRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = outbox{}
	for _, h := range s.claims {
		switch {
		case h.phase == ended && h.due.IsZero():
			s.out.endings = append(s.out.endings, h)
		case h.phase == running:
			h.due = now
			s.sweepAt(now)
		}
	}
	s.slots.granted = 0
	first := &pawlv1.WorkRequest{Hello: s.hello, Quiet: s.quiet}
	if s.hushed != 0 {
		first.Hello = proto.CloneOf(s.hello)
		first.Hello.QuietVersion = s.hushed
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

// takes reports whether the worker wants tasks. It is called with mu held.
func (s *shift) takes() bool { return !s.quiet && s.hushed == 0 }

// hush takes an operator's word. Slots that were granted stay so: the broker uses them when the worker is to take tasks again.
func (s *shift) hush(word *pawlv1.QuietNotice) {
	s.mu.Lock()
	was := s.hushed != 0
	s.hushed = 0
	if word.GetQuiet() {
		s.hushed = max(word.GetVersion(), 1)
	}
	s.stats.Quiet = s.hushed != 0
	s.mu.Unlock()
	signal(s.sendMore)
	switch {
	case word.GetQuiet() && !was:
		s.cfg.Logger.Info("worker quiet: an operator has it take no new tasks", "worker", s.cfg.Name, "reason", word.GetReason())
	case !word.GetQuiet() && was:
		s.cfg.Logger.Info("worker resumes: it takes tasks again", "worker", s.cfg.Name)
	}
}

// contact tells a stream that works from one that the broker refuses again and again. Guarded by shift.mu.
type contact struct {
	opened time.Time // the newest stream
	heard  bool      // anything on it
	lost   time.Time // when the last one that worked ended
	silent int       // streams that were opened anew since anything was heard
}

// silence is how long a stream may say nothing.
func (s *shift) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := min(deafAfter<<min(s.contact.silent, 10), maxDeaf)
	return d + rand.N(d/4)
}

// fellSilent notes that a stream is opened anew because it said nothing.
func (s *shift) fellSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact.silent++
}

// solid reports whether the newest stream has shown that it works, by a word from the broker or by lasting.
func (c *contact) solid(now time.Time) bool { return c.heard || now.Sub(c.opened) > steady }

func (s *shift) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contact.solid(time.Now()) {
		s.contact.lost = time.Now()
	}
	s.stats.Connected = false
}

// sendFrames sends what there is to send until the stream ends, or it is to be closed: by drain for good, or because it is to be opened anew.
func (s *shift) sendFrames(ctx context.Context, cancel context.CancelFunc, stream workStream, closing, renew <-chan struct{}) {
	for {
		for frame := s.nextFrame(time.Now()); frame != nil; frame = s.nextFrame(time.Now()) {
			if stream.Send(frame) != nil {
				return // Recv tells why
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
		// Close in good order: the broker pushes nothing more, answers what it has, and ends the stream; what it pushed before is received.
		if stream.Send(&pawlv1.WorkRequest{Quiet: true}) != nil || stream.CloseSend() != nil {
			return
		}
		if sleep(ctx, nil, closeTimeout) {
			cancel()
		}
		return
	}
}

// nextFrame gathers what the broker should hear now, nil if nothing.
func (s *shift) nextFrame(now time.Time) *pawlv1.WorkRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	frame := &pawlv1.WorkRequest{}
	room := len(s.out.frames) < maxFramesInFlight
	frame.Settle = s.out.take(now, room)
	if s.quiet && !s.out.quiet {
		frame.Quiet, s.out.quiet = true, true
	}
	// Free slots ride with the endings that freed them, unless the broker has no other.
	if s.takes() && (room || s.slots.granted == 0) {
		frame.Grant = s.grantLocked()
	}
	if frame.Settle == nil && frame.Grant == 0 && !frame.Quiet {
		return nil
	}
	return frame
}

// grantLocked gives all free slots to the broker, fewer if too many ends wait for confirmation.
func (s *shift) grantLocked() int32 {
	free := s.cfg.Concurrency - s.slots.busy - s.slots.granted
	unsettled := len(s.claims) - s.slots.busy
	free = max(0, min(free, s.cfg.Concurrency+maxSettleItems-unsettled))
	s.slots.granted += free
	return clampInt32(free)
}

// take makes a settle frame of all extensions and, if there is room for a frame in flight, of the endings.
func (o *outbox) take(now time.Time, room bool) *pawlv1.SettleRequest {
	if len(o.extends) == 0 && (!room || len(o.endings) == 0) {
		return nil
	}
	req := &pawlv1.SettleRequest{}
	n := min(len(o.extends), maxSettleItems)
	for _, h := range o.extends[:n] {
		if h.phase == running {
			req.Extends = append(req.Extends, h.extension(now))
		}
	}
	o.extends = slices.Delete(o.extends, 0, n)
	if room {
		o.takeEndings(req, maxSettleItems-n)
	}
	return req
}

func (o *outbox) takeEndings(req *pawlv1.SettleRequest, limit int) {
	size, n := 0, 0
	for n < min(len(o.endings), limit) {
		e := o.endings[n].end
		if size += e.size(); n > 0 && size > maxSettleBytes {
			break
		}
		e.addTo(req)
		n++
	}
	o.endings = slices.Delete(o.endings, 0, n)
	if n > 0 {
		o.frames = append(o.frames, n)
	}
}

// answered counts n answers to endings; they come in the order of the frames.
func (o *outbox) answered(n int) {
	for n > 0 && len(o.frames) > 0 {
		if o.frames[0] > n {
			o.frames[0] -= n
			return
		}
		n -= o.frames[0]
		o.frames = slices.Delete(o.frames, 0, 1)
	}
}

func (h *hold) extension(now time.Time) *pawlv1.ExtendRequest {
	h.extended = now
	req := &pawlv1.ExtendRequest{TaskId: h.claim.ID, ClaimToken: h.claim.Token, Lease: durationOrNil(h.lease), Progress: h.progress}
	h.progress = nil
	return req
}

// receive takes one frame of the broker.
func (s *shift) receive(frame *pawlv1.WorkResponse, now time.Time) {
	s.mu.Lock()
	s.stats.LastContact, s.contact.heard, s.contact.silent = now, true, 0
	s.mu.Unlock()
	if settled := frame.GetSettled(); settled != nil {
		s.settled(settled, now)
	}
	if word := frame.GetQuiet(); word != nil {
		s.hush(word)
	}
	for _, l := range frame.GetLost() {
		s.lose(l.GetClaimToken(), l.GetReason())
	}
	if len(frame.GetTasks()) > 0 {
		s.accept(frame.GetTasks(), now)
	}
}

// refusal is an answer with an error, kept for the time after the lock.
type refusal struct {
	h   *hold
	end ending
	err *Error
}

// answer is one that a span is to tell of, kept for the time after the lock.
type answer struct {
	h    *hold
	verb verb
	told time.Time
	said *pawlv1.Settled
}

// settled takes the answers to settle frames.
func (s *shift) settled(r *pawlv1.SettleResponse, now time.Time) {
	var refused []refusal
	var told []answer
	s.mu.Lock()
	s.out.answered(len(r.GetAcks()) + len(r.GetFails()) + len(r.GetReleases()))
	for _, list := range [...][]*pawlv1.Settled{r.GetAcks(), r.GetFails(), r.GetReleases()} {
		for _, p := range list {
			h := s.claims[p.GetClaimToken()]
			if h == nil || h.phase != ended {
				continue // an answer for the second time
			}
			if !h.told.IsZero() {
				told = append(told, answer{h, h.end.operation(), h.told, p})
				h.told = now // of the next try
			}
			if p.GetError() == nil {
				delete(s.claims, p.GetClaimToken())
				continue
			}
			refused = append(refused, refusal{h, h.end, errorOf(p.GetError())})
			s.refusedLocked(h, errorOf(p.GetError()), now)
		}
	}
	quiet := s.quiet
	s.mu.Unlock()
	signal(s.sendMore)
	if quiet {
		signal(s.calmer)
	}
	for _, a := range told {
		s.client.observe.settled(a.h.run.span.SpanContext(), &a.h.claim, a.verb, a.told, outcomeError(a.said))
	}
	for _, x := range refused {
		s.log(x.h).Warn("the broker refused how the task ended", "verb", x.end.verb(), "error", x.err)
	}
	for _, p := range r.GetExtends() {
		s.extended(p)
	}
}

// refusedLocked decides what becomes of an end that the broker did not take.
func (s *shift) refusedLocked(h *hold, err *Error, now time.Time) {
	switch err.Code {
	case codeUnavailable, codeRateLimited, codeInternal:
		h.due = now.Add(max(backoffAfter(h.tries, firstResend, maxResend), min(err.RetryAfter, maxResend)))
		h.tries++
		s.sweepAt(h.due)
	case codeInvalidArgument, codePayloadTooLarge:
		if h.fallback {
			delete(s.claims, h.claim.Token)
			return
		}
		h.fallback = true
		s.endLocked(h, h.end.fallback(&h.claim, err))
	default: // stale, or not there: it ended otherwise
		delete(s.claims, h.claim.Token)
	}
}

// fallback replaces an end that the broker can't take: a result that is too large makes a dead letter, since another run would only give it
// again; a delay out of bounds makes a plain failure.
func (e ending) fallback(c *Claim, err *Error) ending {
	if e.ack != nil {
		return ending{fail: failOf(c, DeadLetter(err))}
	}
	return ending{fail: failOf(c, err)}
}

// extended takes the answer to one extension.
func (s *shift) extended(p *pawlv1.Settled) {
	if e := p.GetError(); e != nil {
		if e.GetCode() == codeStaleClaim || e.GetCode() == codeNotFound {
			s.lose(p.GetClaimToken(), e.GetReason())
		}
		return // unavailable: the next extension is due before the lease ends
	}
	s.mu.Lock()
	h := s.claims[p.GetClaimToken()]
	if h != nil {
		h.confirm(h.extended)
	}
	s.mu.Unlock()
	if h != nil && p.GetCancelRequested() {
		h.cancel(ErrCancelled)
	}
}
