package directory

import (
	"context"

	"github.com/pawlq/pawl/internal/router/forward"
)

// EnsureAs1 calls EnsureQueue as a node of feature level 1 does, without a shard.
func (d *Directory) EnsureAs1(ctx context.Context, ns, name string) error {
	_, err := d.ensure.Call(ctx, forward.SystemShard, queueArgs{Namespace: ns, Name: name})
	return err
}
