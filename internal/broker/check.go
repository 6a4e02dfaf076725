package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/policies"
	"github.com/pawlq/pawl/internal/store"
)

// Check reads all of a shard's state, at some moment during the call, and lists the inconsistencies. It remembers every row that it
// expects to find, so its memory grows with the number of tasks.
func (b *Broker) Check(ctx context.Context, shardID uint32) (problems []string, at Stamp, err error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	return read(ctx, r, func(from store.Reader) (problems []string, err error) {
		for _, ns := range b.cfg.Namespaces() {
			problems = append(problems, policies.Check(from, ns)...)
		}
		problems = append(problems, actions.Check(from)...)
		return problems, nil
	})
}
