package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

const (
	// SearchTime is how long a call looks for the leader of its shard: an election takes a second or two, and a caller
	// that is told to retry would only add to the load.
	SearchTime = 10 * time.Second
	// LeaderlessTime is how long it looks if another call has looked for SearchTime in vain since a leader was last seen.
	LeaderlessTime = 500 * time.Millisecond
	// pauseMin and pauseMax bound the pause after all replicas were asked.
	pauseMin = 10 * time.Millisecond
	pauseMax = 250 * time.Millisecond
	// servedFor is how long a node must have kept a call to have been the shard's leader meanwhile: then the search starts over.
	servedFor = time.Second
	// replyTime is how much of a caller's time must be left to tell it that there is no leader.
	replyTime = 50 * time.Millisecond
	// CutOffAfter is how old this node's copy of the map is when a call that finds no leader is taken for a sign that the node is cut off.
	CutOffAfter = 5 * time.Second
	// NoLeaderRetry is when a caller whose call found no leader may retry.
	NoLeaderRetry = 500 * time.Millisecond
)

// shortenWait reduces a call's wait by the time since a moment.
func shortenWait(c verb.Call, since time.Time) {
	if wait := c.Wait(); wait != nil {
		*wait = max(*wait-time.Since(since), 0)
	}
}

// retryElsewhere reports whether a call that returned err should be tried elsewhere.
func retryElsewhere(rule *verb.Rule, err error) bool {
	var not *notRun
	return IsElsewhere(err) || errors.As(err, &not) || rule.Idempotent && errors.Is(err, broker.ErrUnknown)
}

// IsElsewhere reports whether a call did not run because another node leads its shard.
func IsElsewhere(err error) bool {
	var notLeader *broker.NotLeader
	return errors.As(err, &notLeader)
}

// seek looks for the leader of a call's shard until it has run the call, ctx is done, or the search has taken too long.
func (f *Forwarder) seek(ctx context.Context, c verb.Call) error {
	return f.seekFor(ctx, c, c.Rule().Patience)
}

// seekFor is seek with another patience than that of the verb.
func (f *Forwarder) seekFor(ctx context.Context, c verb.Call, patience time.Duration) error {
	shard, rule, wait := c.Shard(), c.Rule(), c.Wait()
	var deadline time.Time
	if wait != nil {
		deadline = time.Now().Add(*wait)
	}
	s := f.newSearch(shard, patience)
	for {
		node, err := s.next(ctx)
		if err != nil {
			return err
		}
		if wait != nil {
			*wait = max(time.Until(deadline), 0)
		}
		began := time.Now()
		if node == f.cfg.Node {
			err = f.here(ctx, c)
		} else {
			err = f.ask(ctx, c, shard, node)
		}
		if err == nil || !retryElsewhere(rule, err) {
			if err == nil || !errors.Is(err, broker.ErrUnknown) {
				f.Leaders.saw(shard, node)
			}
			return err
		}
		s.heard(node, err, time.Since(began))
	}
}

// search is the search of one call for the leader of its shard.
type search struct {
	f        *Forwarder
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

func (f *Forwarder) newSearch(shard uint32, patience time.Duration) *search {
	return &search{f: f, shard: shard, patience: cmp.Or(patience, SearchTime), since: time.Now(), pause: pauseMin}
}

// next chooses the node to ask: the leader by the last hint, by this node's replica, by what was last seen, then the replicas in turn. When
// all were asked, it pauses and starts over.
func (s *search) next(ctx context.Context) (uint32, error) {
	for {
		if ctx.Err() != nil || s.f.Life.ctx.Err() != nil {
			return 0, s.noLeaderError(ctx)
		}
		if node := s.choose(); node != 0 {
			s.tried = append(s.tried, node)
			return node, nil
		}
		most := s.patience
		if s.f.Leaders.isLeaderless(s.shard) {
			most = min(most, LeaderlessTime)
		}
		left := most - time.Since(s.since)
		if left <= 0 {
			if s.patience == SearchTime {
				s.f.Leaders.lost(s.shard, s.since)
			}
			return 0, s.noLeaderError(ctx)
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < s.pause+replyTime {
			return 0, s.noLeaderError(ctx) // while there is time to say so
		}
		s.f.Life.Sleep(ctx, min(s.pause/2+rand.N(s.pause/2), left))
		s.pause = min(2*s.pause, pauseMax)
		s.tried = s.tried[:0]
	}
}

func (s *search) choose() uint32 {
	for _, node := range [...]uint32{s.hint, s.f.LeaderOf(s.shard), s.f.Leaders.of(s.shard)} {
		if node != 0 && !slices.Contains(s.tried, node) {
			return node
		}
	}
	replicas := s.f.cfg.Map.Replicas(s.shard)
	self := s.f.cfg.Node
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
		text = "says " + s.f.nodeName(notLeader.Node) + " leads"
	}
	if s.f.Leaders.of(s.shard) == node {
		s.f.Leaders.heard(s.shard, s.hint)
	}
	s.answers = slices.DeleteFunc(s.answers, func(w nodeAnswer) bool { return w.node == node })
	s.answers = append(s.answers, nodeAnswer{node, task.Cut(text, maxAnswerText)})
}

// maxAnswerText bounds the text about one node's answer.
const maxAnswerText = 200

// noLeaderError returns the error that lists which nodes were asked and what they answered.
func (s *search) noLeaderError(ctx context.Context) error {
	since := s.since
	if dark := s.f.Leaders.leaderlessSince(s.shard); !dark.IsZero() {
		since = dark
	}
	refusal := s.refusal(ctx)
	if s.f.cfg.Map.Age() > CutOffAfter { // others may have found one
		refusal.Reason = task.ReasonNotReady
	}
	return &NoLeader{refusal, since}
}

// shardText names a shard in a message.
func shardText(shard uint32) string {
	if shard == SystemShard {
		return "the system shard"
	}
	return fmt.Sprintf("shard %d", shard)
}

func (s *search) refusal(ctx context.Context) *task.Error {
	shard := shardText(s.shard)
	if len(s.answers) == 0 {
		return task.Unavailable(NoLeaderRetry, "%s has no known leader, and no node could be asked%s", shard, s.whyEnded(ctx))
	}
	words := make([]string, len(s.answers))
	for i, w := range s.answers {
		words[i] = s.f.nodeName(w.node) + " " + w.text
	}
	return task.Unavailable(NoLeaderRetry, "%s has no leader that answered%s: %s", shard, s.whyEnded(ctx), strings.Join(words, "; "))
}

// nodeName names a node in a message.
func (f *Forwarder) nodeName(number uint32) string {
	for _, n := range f.cfg.Map.Nodes() {
		if n.Number == number {
			return verb.NodeText(n.Name)
		}
	}
	return fmt.Sprintf("node number %d", number)
}

// cause returns the innermost part of an error's message, which says in one phrase why a node could not be asked.
func cause(err error) string {
	parts := strings.Split(strings.TrimSuffix(err.Error(), broker.UnknownAdvice), ": ")
	return parts[len(parts)-1]
}

// timeLeft reports whether a caller can wait for another round.
func timeLeft(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return !ok || time.Until(end) > pauseMax+replyTime
}

func (s *search) whyEnded(ctx context.Context) string {
	switch {
	case s.f.Life.ctx.Err() != nil:
		return ", and this node is stopping"
	case ctx.Err() != nil || !timeLeft(ctx):
		return " within the caller's deadline"
	}
	return ""
}

// NoLeader is the error of a call that has found no leader of its shard.
type NoLeader struct {
	refusal *task.Error
	since   time.Time // the first of the calls that found none began at this time or earlier
}

func (e *NoLeader) Error() string { return e.refusal.Message }
func (e *NoLeader) Unwrap() error { return e.refusal }

// Reason returns the error as an explanation.
func (e *NoLeader) Reason() broker.Reason {
	since := broker.TimeOf(e.since)
	return broker.Reason{Code: task.WhyNoLeader, Since: since,
		Detail: fmt.Sprintf("%s; none was found since %s", e.refusal.Message, since.Time().Format(time.RFC3339)),
		Change: "most of the shard's replicas run and reach each other: pawl cluster status"}
}
