package cluster

import (
	"context"

	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on the system shard that are described once, here: beside each stand its request and its answer.
var Verbs verb.Table

// Do implements verb.Runner for a system shard that is led here.
func (c *Control) Do(ctx context.Context, call verb.Call) error { return call.Run(ctx, c) }
