package verb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/task"
)

// WhyLate is why a shard or a node is missing that took too long.
const WhyLate = "did not answer in time"

// PartTime is how long a call that is useful without some of its shards or nodes waits for them.
const PartTime = 2 * time.Second

// Partial is what several shards or nodes have answered, and who has not.
type Partial[T any] struct {
	Value   T
	Missing []Missing
	err     error // of the first that is missing, and did not just take too long
}

// Missing is a shard or a node that did not answer in time.
type Missing struct {
	Node  string // its name; "": it is a shard
	Shard uint32
	Why   string // what it did instead, such as WhyLate
}

func (m Missing) compare(o Missing) int {
	return cmp.Or(cmp.Compare(len(o.Node), 0)-cmp.Compare(len(m.Node), 0), strings.Compare(m.Node, o.Node), cmp.Compare(m.Shard, o.Shard))
}

// NodeText names a node in a message.
func NodeText(name string) string { return fmt.Sprintf("node %q", name) }

func (m Missing) String() string {
	if m.Node != "" {
		return NodeText(m.Node)
	}
	return fmt.Sprintf("shard %d", m.Shard)
}

// Explained is who is missing, and why.
func (m Missing) Explained() string {
	return m.String() + ": " + strings.TrimPrefix(m.Why, m.String()+": ")
}

// JoinMissing returns who is missing in at least one of several results, each once: first the nodes by name, then the shards by number.
func JoinMissing(lists ...[]Missing) []Missing {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, Missing.compare)
	return slices.CompactFunc(all, func(a, b Missing) bool { return a.compare(b) == 0 })
}

// LacksNode notes that a node is missing because of an error.
func (p *Partial[T]) LacksNode(name string, err error) { p.lacks(Missing{Node: name}, err) }

func (p *Partial[T]) lacks(m Missing, err error) {
	m.Why = strings.TrimPrefix(whyMissing(err), m.String()+" ")
	p.Missing = append(p.Missing, m)
	if p.err == nil && !late(err) {
		p.err = err
	}
}

// CheckAny returns an error if none of n shards or nodes has answered: then there is nothing to return.
func (p Partial[T]) CheckAny(n int) error {
	if n == 0 || len(p.Missing) < n {
		return nil
	}
	if p.err != nil {
		return p.err
	}
	return task.Unavailable(retryMissing, "%s", p.Missing[0].Explained())
}

// retryMissing is when a caller whom nobody answered may retry.
const retryMissing = 500 * time.Millisecond

func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// OfShard is what a node reports on a shard that it leads.
type OfShard[T any] struct {
	Shard uint32
	Term  uint64 // two nodes may report on the same shard: the one with the higher term leads it
	Value T
}

// MayLack is an answer of all shards that is useful without some of them: it says which are missing.
type MayLack interface{ lack([]Missing) }

// Lack is the part of such an answer that says it.
type Lack struct{ Missing []Missing }

func (l *Lack) lack(missing []Missing) { l.Missing = missing }

// Sum is what all nodes together report.
type Sum[T any] struct {
	Value T
	Lack
}

// Partial returns the sum as a Partial.
func (s Sum[T]) Partial() Partial[T] { return Partial[T]{Value: s.Value, Missing: s.Missing} }

// AskShards asks shards in parallel. The value of its result has an answer for each, the zero value for those that are
// missing. It fails if ctx ends, and with a refusal, since what one shard refuses for the request's sake, all do.
func AskShards[R any](ctx context.Context, shards []uint32, ask func(ctx context.Context, i int) (R, error)) (Partial[[]R], error) {
	answers, errs := parallel.Ask(ctx, PartTime, len(shards), ask)
	return joinShards(ctx, shards, answers, errs)
}

// RunOnShards runs what may take long on shards, in parallel. Each is probed first: one that does not answer that in time is missing, and
// the others have until ctx ends. It fails as AskShards does.
func RunOnShards(ctx context.Context, shards []uint32, probe, run func(ctx context.Context, i int) error) (Partial[[]struct{}], error) {
	errs := parallel.Each(len(shards), func(i int) error {
		soon, cancel := context.WithTimeout(ctx, PartTime)
		defer cancel()
		if err := probe(soon, i); err != nil {
			return err
		}
		return run(ctx, i)
	})
	return joinShards(ctx, shards, make([]struct{}, len(shards)), errs)
}

func joinShards[R any](ctx context.Context, shards []uint32, answers []R, errs []error) (out Partial[[]R], err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	for i, err := range errs {
		if err == nil {
			continue
		}
		_, bug := errors.AsType[*parallel.Panic](err)
		if refused, ok := task.AsError(err); bug || ok && refused.Code != task.CodeUnavailable {
			return Partial[[]R]{}, err
		}
		answers[i] = *new(R)
		out.lacks(Missing{Shard: shards[i]}, err)
	}
	out.Value, out.Missing = answers, JoinMissing(out.Missing)
	return out, nil
}

// whyMissing returns why a shard or a node is missing. Like every answer to a caller, it does not disclose internal errors.
func whyMissing(err error) string {
	if e, ok := task.AsError(err); ok {
		return e.Message
	}
	if late(err) {
		return WhyLate
	}
	return "failed with an internal error"
}
