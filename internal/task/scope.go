package task

import (
	"context"
	"slices"
	"strings"
)

// Scope limits a call to some queues of its namespace. It comes from the caller's credential and travels in the call's context, on to
// the node that leads the shard, to where tasks are read. The zero value is all queues: what the broker does of its own accord has it.
type Scope struct {
	// Queues are patterns: a name, in which each * stands for any characters, none among them. Nil: all queues.
	Queues []string
}

const (
	// MaxPatterns bounds the patterns of a scope: each is tried for each task that a list looks at.
	MaxPatterns = 32
	// MaxStars bounds the stars of a pattern.
	MaxStars = 8
)

// All says whether the scope is all queues.
func (s Scope) All() bool { return s.Queues == nil }

// Sees says whether a queue is within the scope.
func (s Scope) Sees(queue string) bool {
	return s.Queues == nil || slices.ContainsFunc(s.Queues, func(p string) bool { return Matches(p, queue) })
}

// Covers says whether all queues that o may ever see are within the scope.
func (s Scope) Covers(o Scope) bool {
	if s.Queues == nil {
		return true
	}
	// A star of the other pattern is a character to this one, which only a star matches.
	return o.Queues != nil && !slices.ContainsFunc(o.Queues, func(p string) bool { return !s.Sees(p) })
}

// Equal says whether two scopes are written alike.
func (s Scope) Equal(o Scope) bool {
	return (s.Queues == nil) == (o.Queues == nil) && slices.Equal(s.Queues, o.Queues)
}

// Check refuses patterns outside the rules.
func (s Scope) Check(field string, l Limits) error {
	switch {
	case s.Queues == nil:
		return nil
	case len(s.Queues) == 0 || len(s.Queues) > MaxPatterns:
		return Invalid(field, "%d patterns, 1 to %d are allowed", len(s.Queues), MaxPatterns)
	}
	for _, p := range s.Queues {
		if err := CheckPattern(field, "queue", p, l); err != nil {
			return err
		}
	}
	return nil
}

// CheckPattern refuses what is no pattern of names: a name, in which each * stands for any characters. Of says whose names they are.
func CheckPattern(field, of, pattern string, l Limits) error {
	if strings.Count(pattern, "*") > MaxStars {
		return Invalid(field, "%q has more than %d stars", clip(pattern), MaxStars)
	}
	// With letters for its stars a pattern is a name.
	if CheckQueue(field, strings.ReplaceAll(pattern, "*", "x"), l) != nil {
		return Invalid(field, "%q is no pattern of %s names: letters, digits, . _ - : and *, at most %d bytes", clip(pattern), of, l.Name)
	}
	return nil
}

// Matches says whether a whole name fits a pattern. It goes through the name once for each star at most.
func Matches(pattern, name string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return name == pattern
	}
	name, ok := strings.CutPrefix(name, head)
	for ok {
		if head, rest, star = strings.Cut(rest, "*"); !star {
			return strings.HasSuffix(name, head)
		}
		_, name, ok = strings.Cut(name, head)
	}
	return false
}

type scopeKey struct{}

// WithScope limits a call.
func WithScope(ctx context.Context, s Scope) context.Context {
	if s.All() {
		return ctx
	}
	return context.WithValue(ctx, scopeKey{}, s)
}

// WithoutScope gives the context of what a call needs to find its way, and does not answer.
func WithoutScope(ctx context.Context) context.Context {
	return context.WithValue(ctx, scopeKey{}, Scope{})
}

// ScopeOf is what a call is limited to.
func ScopeOf(ctx context.Context) Scope {
	s, _ := ctx.Value(scopeKey{}).(Scope)
	return s
}
