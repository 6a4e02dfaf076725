package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

const (
	// routeTime is how long a call looks for the leader of its shard: an election takes a second or two, and a caller that is told to retry
	// would only add to the load.
	routeTime = 10 * time.Second
	// leaderlessTime is how long it looks if another call has looked for routeTime in vain since a leader was last seen.
	leaderlessTime = 500 * time.Millisecond
	// briefTime is how long a call with other shards to turn to looks.
	briefTime = 200 * time.Millisecond
	// pauseMin and pauseMax bound the pause after all replicas were asked.
	pauseMin = 10 * time.Millisecond
	pauseMax = 250 * time.Millisecond
	// servedFor is how long a node must have kept a call to have been the shard's leader meanwhile: then the search starts over.
	servedFor = time.Second
	// replyTime is how much of a caller's time must be left to tell it that there is no leader.
	replyTime = 50 * time.Millisecond
	// noLeaderRetry is when a caller whose call found no leader may retry.
	noLeaderRetry = 500 * time.Millisecond
)

// leaders remembers which nodes last led the shards. It has at most as many entries as there are shard numbers.
type leaders struct {
	mu         sync.RWMutex
	last       map[uint32]uint32
	leaderless map[uint32]time.Time // shards whose leader a call did not find, and since when
}

func (l *leaders) of(shard uint32) uint32 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last[shard]
}

// leaderlessSince returns since when, at the latest, calls have not found a leader; zero: none has failed to since one was seen.
func (l *leaders) leaderlessSince(shard uint32) time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.leaderless[shard]
}

func (l *leaders) isLeaderless(shard uint32) bool { return !l.leaderlessSince(shard).IsZero() }

// saw records that a node leads a shard.
func (l *leaders) saw(shard, node uint32) {
	if l.of(shard) != node || l.isLeaderless(shard) {
		l.note(shard, node, time.Time{})
	}
}

// heard records who leads a shard according to another node; 0: unknown.
func (l *leaders) heard(shard, node uint32) { l.note(shard, node, l.leaderlessSince(shard)) }

// lost records that a call has found no leader.
func (l *leaders) lost(shard uint32, since time.Time) {
	if before := l.leaderlessSince(shard); !before.IsZero() {
		since = before
	}
	l.note(shard, 0, since)
}

func (l *leaders) note(shard, node uint32, dark time.Time) {
	if shard > task.MaxShard {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last, l.leaderless = map[uint32]uint32{}, map[uint32]time.Time{}
	}
	l.last[shard], l.leaderless[shard] = node, dark
}

// leads reports whether this node leads a shard, as far as it knows.
func (r *Router) leads(shard uint32) bool {
	node, _, _ := r.cfg.Broker.Leader(shard)
	return uint32(node) == r.cfg.Node
}

// leaderOf returns the leader of a shard as far as is known here: by its replica on this node, otherwise by what others last said.
func (r *Router) leaderOf(shard uint32) uint32 {
	if node := r.leaderHere(shard); node != 0 {
		return node
	}
	return r.leaders.of(shard)
}

// LeaderElsewhere returns the other node that leads a shard, as far as is known without asking; 0: this node leads, or it is unknown.
func (r *Router) LeaderElsewhere(shard uint32) (node uint64) {
	if leader := r.leaderOf(shard); leader != r.cfg.Node {
		return uint64(leader)
	}
	return 0
}

// call runs a method of the router where its shard is led. For this node's own broker it takes a shortcut that allocates nothing.
func call[A, R any](ctx context.Context, r *Router, m *method[A, R], shard uint32, args A) (R, error) {
	if !r.leads(shard) {
		return callRemote(ctx, r, m, shard, args)
	}
	var began time.Time
	if m.wait != nil {
		began = time.Now()
	}
	out, err := m.run(ctx, r, args)
	if err == nil || !retryElsewhere(&m.Rule, err) {
		return out, err
	}
	c := m.call(shard, args)
	shortenWait(c, began)
	err = r.seek(ctx, c)
	return c.Resp, err
}

// callRemote runs a call on a shard that this node does not lead.
func callRemote[A, R any](ctx context.Context, r *Router, m *method[A, R], shard uint32, args A) (R, error) {
	c := m.call(shard, args)
	err := r.seek(ctx, c)
	return c.Resp, err
}

// shortenWait reduces a call's wait by the time since a moment.
func shortenWait(c verb.Call, since time.Time) {
	if wait := c.Wait(); wait != nil {
		*wait = max(*wait-time.Since(since), 0)
	}
}

// retryElsewhere reports whether a call that returned err should be tried elsewhere.
func retryElsewhere(rule *verb.Rule, err error) bool {
	var not *notRun
	return isElsewhere(err) || errors.As(err, &not) || rule.Idempotent && errors.Is(err, broker.ErrUnknown)
}

func isElsewhere(err error) bool {
	var notLeader *broker.NotLeader
	return errors.As(err, &notLeader)
}

// seek looks for the leader of a call's shard until it has run the call, ctx is done, or the search has taken too long.
func (r *Router) seek(ctx context.Context, c verb.Call) error {
	shard, rule, wait := c.Shard(), c.Rule(), c.Wait()
	var deadline time.Time
	if wait != nil {
		deadline = time.Now().Add(*wait)
	}
	s := r.newSearch(shard, rule.Patience)
	for {
		node, err := s.next(ctx)
		if err != nil {
			return err
		}
		if wait != nil {
			*wait = max(time.Until(deadline), 0)
		}
		began := time.Now()
		if node == r.cfg.Node {
			err = r.here(ctx, c)
		} else {
			err = r.ask(ctx, c, shard, node)
		}
		if err == nil || !retryElsewhere(rule, err) {
			if err == nil || !errors.Is(err, broker.ErrUnknown) {
				r.leaders.saw(shard, node)
			}
			return err
		}
		s.heard(node, err, time.Since(began))
	}
}

// search is the search of one call for the leader of its shard.
type search struct {
	r        *Router
	shard    uint32
	since    time.Time
	pause    time.Duration
	patience time.Duration
	hint     uint32       // the leader according to the last node asked
	tried    []uint32     // since the last pause
	answers  []nodeAnswer // the last answer of each node
}

type nodeAnswer struct {
	node uint32
	text string
}

func (r *Router) newSearch(shard uint32, patience time.Duration) *search {
	return &search{r: r, shard: shard, patience: cmp.Or(patience, routeTime), since: time.Now(), pause: pauseMin}
}

// next chooses the node to ask: the leader by the last hint, by this node's replica, by what was last seen, then the replicas in turn. When
// all were asked, it pauses and starts over.
func (s *search) next(ctx context.Context) (uint32, error) {
	for {
		if ctx.Err() != nil || s.r.ctx.Err() != nil {
			return 0, s.noLeaderError(ctx)
		}
		if node := s.choose(); node != 0 {
			s.tried = append(s.tried, node)
			return node, nil
		}
		most := s.patience
		if s.r.leaders.isLeaderless(s.shard) {
			most = min(most, leaderlessTime)
		}
		left := most - time.Since(s.since)
		if left <= 0 {
			if s.patience == routeTime {
				s.r.leaders.lost(s.shard, s.since)
			}
			return 0, s.noLeaderError(ctx)
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < s.pause+replyTime {
			return 0, s.noLeaderError(ctx) // while there is time to say so
		}
		s.r.sleep(ctx, min(s.pause/2+rand.N(s.pause/2), left))
		s.pause = min(2*s.pause, pauseMax)
		s.tried = s.tried[:0]
	}
}

func (s *search) choose() uint32 {
	for _, node := range [...]uint32{s.hint, s.r.leaderOf(s.shard), s.r.leaders.of(s.shard)} {
		if node != 0 && !slices.Contains(s.tried, node) {
			return node
		}
	}
	replicas := s.r.cfg.Map.Replicas(s.shard)
	self := s.r.cfg.Node
	// The node's own replica costs nothing to ask. Without a map there is no other.
	if (len(replicas) == 0 || slices.Contains(replicas, self)) && !slices.Contains(s.tried, self) {
		return self
	}
	for _, node := range replicas {
		if !slices.Contains(s.tried, node) {
			return node
		}
	}
	return 0
}

// heard records the answer of a node that did not run the call.
func (s *search) heard(node uint32, err error, after time.Duration) {
	if after >= servedFor {
		s.since, s.pause, s.tried = time.Now(), pauseMin, s.tried[:0]
	}
	var notLeader *broker.NotLeader
	s.hint = 0
	var text string
	switch {
	case !errors.As(err, &notLeader):
		text = "does not answer (" + cause(err) + ")"
	case notLeader.Node == 0:
		text = "knows no leader"
	default:
		s.hint = notLeader.Node
		text = "says " + s.r.nodeName(notLeader.Node) + " leads"
	}
	if s.r.leaders.of(s.shard) == node {
		s.r.leaders.heard(s.shard, s.hint)
	}
	s.answers = slices.DeleteFunc(s.answers, func(w nodeAnswer) bool { return w.node == node })
	s.answers = append(s.answers, nodeAnswer{node, task.Cut(text, maxAnswerText)})
}

// maxAnswerText bounds the text about one node's answer.
const maxAnswerText = 200

// noLeaderError returns the error that lists which nodes were asked and what they answered.
func (s *search) noLeaderError(ctx context.Context) error {
	since := s.since
	if dark := s.r.leaders.leaderlessSince(s.shard); !dark.IsZero() {
		since = dark
	}
	return &noLeader{s.refusal(ctx), since}
}

func (s *search) refusal(ctx context.Context) *task.Error {
	shard := fmt.Sprintf("shard %d", s.shard)
	if s.shard == systemShard {
		shard = "the system shard"
	}
	if len(s.answers) == 0 {
		return task.Unavailable(noLeaderRetry, "%s has no known leader, and no node could be asked%s", shard, s.whyEnded(ctx))
	}
	words := make([]string, len(s.answers))
	for i, w := range s.answers {
		words[i] = s.r.nodeName(w.node) + " " + w.text
	}
	return task.Unavailable(noLeaderRetry, "%s has no leader that answered%s: %s", shard, s.whyEnded(ctx), strings.Join(words, "; "))
}

// nodeName names a node in a message.
func (r *Router) nodeName(number uint32) string {
	for _, n := range r.cfg.Map.Nodes() {
		if n.Number == number {
			return "node " + n.Name
		}
	}
	return fmt.Sprintf("node number %d", number)
}

// cause returns the innermost part of an error's message, which says in one phrase why a node could not be asked.
func cause(err error) string {
	parts := strings.Split(err.Error(), ": ")
	return parts[len(parts)-1]
}

// timeLeft reports whether a caller can wait for another round.
func timeLeft(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return !ok || time.Until(end) > pauseMax+replyTime
}

func (s *search) whyEnded(ctx context.Context) string {
	switch {
	case s.r.ctx.Err() != nil:
		return ", and this node is stopping"
	case ctx.Err() != nil || !timeLeft(ctx):
		return " within the caller's deadline"
	}
	return ""
}
