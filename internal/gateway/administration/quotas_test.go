package administration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

type twoShards struct{ fanout.Cluster }

func (twoShards) Shards() []uint32 { return []uint32{1, 2} }

// The usage of a namespace is that of the shards that answer, and the others are named, also if there is no usage because none answers.
func TestUsageNamesMissingShards(t *testing.T) {
	for _, away := range [][]uint32{nil, {2}, {1, 2}} {
		a := verbtest.Answers{}
		verbtest.On(a, broker.Spaces, func(_ context.Context, q broker.OnSpaces) ([]task.Space, error) {
			if slices.Contains(away, q.Shard) {
				return nil, task.Unavailable(time.Second, "away")
			}
			return []task.Space{{Use: task.Amounts{Backlog: 10}}}, nil
		})
		g := &AccessService{Verbs: a, Cluster: twoShards{}}
		got := g.withUsage(t.Context(), []namespaces.Info{{}})[0]
		var missing []uint32
		for _, m := range got.GetMissing() {
			missing = append(missing, m.GetShard())
		}
		answered := 2 - len(away)
		if fmt.Sprint(missing) != fmt.Sprint(away) || (got.GetUsage() != nil) != (answered > 0) ||
			got.GetUsage().GetBacklog() != int64(10*answered) {
			t.Errorf("without shards %v: usage %v, missing %v", away, got.GetUsage(), got.GetMissing())
		}
	}
}
