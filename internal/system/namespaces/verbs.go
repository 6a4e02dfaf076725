package namespaces

import (
	"context"

	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on namespaces. Those that change some wait for the nodes to learn of it, and name those that have not confirmed it.
var Verbs verb.Table[*Namespaces]

// A namespace that was removed can't be removed again, so Remove is not repeated.
var (
	Add = verb.New(&Verbs, verb.SystemRule("add-namespace"),
		func(s *Namespaces, ctx context.Context, q Call) (behind []string, err error) {
			version, err := s.Add(ctx, q)
			return s.shard.Confirmed(ctx, version, err)
		})
	Remove = verb.New(&Verbs, verb.Rule{Name: "remove-namespace", Where: verb.System},
		func(s *Namespaces, ctx context.Context, q Change) (behind []string, err error) {
			version, err := s.Remove(ctx, q.By, q.Name)
			return s.shard.Confirmed(ctx, version, err)
		})
	SetQuotas = verb.New(&Verbs, verb.SystemRule("set-quotas"),
		func(s *Namespaces, ctx context.Context, q Change) (behind []string, err error) {
			version, err := s.SetQuotas(ctx, q.By, q.Name, q.Quotas)
			return s.shard.Confirmed(ctx, version, err)
		})
	List = verb.New(&Verbs, verb.SystemRule("namespaces"),
		func(s *Namespaces, ctx context.Context, _ verb.Nothing) ([]Info, error) { return s.List(ctx) })
)

// Change is a call on an existing namespace.
type Change struct {
	By     task.Author
	Name   string
	Quotas task.QuotaChange
}
