package task

import (
	"context"
	"slices"
	"strings"
)

// Scope limits a call to some queues of its namespace. It comes from the caller's credential and travels in the call's context, on to
// the node that leads the shard, to where tasks are read. The zero value is all queues, which also holds for what the broker does of its
// own accord.
type Scope struct {
	// Queues are patterns: names in which each * stands for any number of characters, including none. Nil: all queues.
	Queues []string
}

const (
	// MaxPatterns bounds the patterns of a scope: each is tried for every task that a list reads.
	MaxPatterns = 32
	// MaxStars bounds the stars in a pattern.
	MaxStars = 8
)

// All reports whether the scope is all queues.
func (s Scope) All() bool { return s.Queues == nil }

// Sees reports whether a queue is within the scope.
func (s Scope) Sees(queue string) bool {
	return s.Queues == nil || slices.ContainsFunc(s.Queues, func(p string) bool { return Matches(p, queue) })
}

// Covers reports whether all queues that o may ever see are within the scope.
func (s Scope) Covers(o Scope) bool {
	if s.Queues == nil {
		return true
	}
	// For this pattern, a star of the other one is just a character, which only a star matches.
	return o.Queues != nil && !slices.ContainsFunc(o.Queues, func(p string) bool { return !s.Sees(p) })
}

// Equal reports whether two scopes have the same patterns.
func (s Scope) Equal(o Scope) bool {
	return (s.Queues == nil) == (o.Queues == nil) && slices.Equal(s.Queues, o.Queues)
}

// Check refuses patterns that break a rule.
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

// CheckPattern refuses an invalid pattern: a pattern is a name in which each * stands for any characters. of says what the names are of.
func CheckPattern(field, of, pattern string, l Limits) error {
	if strings.Count(pattern, "*") > MaxStars {
		return Invalid(field, "%q has more than %d stars", clip(pattern), MaxStars)
	}
	// With a letter for each star a pattern is a name.
	if CheckQueue(field, strings.ReplaceAll(pattern, "*", "x"), l) != nil {
		return Invalid(field, "%q is not a pattern of %s names: letters, digits, . _ - : and *, at most %d bytes",
			clip(pattern), of, l.Name)
	}
	return nil
}

// Matches reports whether a whole name matches a pattern. It scans the name at most once per star.
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

// WithScope limits the calls of a context.
func WithScope(ctx context.Context, s Scope) context.Context {
	if s.All() {
		return ctx
	}
	return context.WithValue(ctx, scopeKey{}, s)
}

// WithoutScope returns a context for the reads that a call needs internally, whose results it does not return.
func WithoutScope(ctx context.Context) context.Context {
	return context.WithValue(ctx, scopeKey{}, Scope{})
}

// ScopeOf returns the scope of a call.
func ScopeOf(ctx context.Context) Scope {
	s, _ := ctx.Value(scopeKey{}).(Scope)
	return s
}
