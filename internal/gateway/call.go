package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
)

// call is the state of a call: its caller, and which state of which shards its answer reflects.
type call struct {
	namespace string
	principal principal
	web       *http.Request // nil: a gRPC call
	// How the call is counted.
	face, method string
	kind         callKind
	frame        bool      // one of many on a stream, whose headers say nothing about it
	receiver     *receiver // for a stream: the source of its messages

	mu     sync.Mutex
	stamps []broker.Stamp // one per shard, the latest
}

type callKey struct{}

// begin creates the call of a request, which has no caller until it is admitted. The namespace comes from the credential, never
// from the body.
func begin(ctx context.Context, face, method string) (context.Context, *call) {
	c := newCall()
	c.face, c.method = face, method
	return context.WithValue(ctx, callKey{}, c), c
}

func newCall() *call {
	return &call{namespace: auth.DefaultNamespace, principal: principal{Principal: auth.Anonymous}}
}

func callOf(ctx context.Context) *call {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return newCall()
	}
	return c
}

func namespaceOf(ctx context.Context) string { return callOf(ctx).namespace }

// noteStamp records which state of a shard the answer reflects.
func noteStamp(ctx context.Context, at broker.Stamp) { callOf(ctx).noteStamp(at) }

func (c *call) noteStamp(at broker.Stamp) {
	if at.Index == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.stamps {
		if c.stamps[i].Shard == at.Shard {
			if at.Index >= c.stamps[i].Index {
				c.stamps[i] = at
			}
			return
		}
	}
	c.stamps = append(c.stamps, at)
}

// stamp returns the values of the three headers of REST, and trailers of gRPC, separated by commas if there are several shards; not
// ok if no shard was asked.
func (c *call) stamp() (shard, index, at string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch len(c.stamps) {
	case 0:
		return "", "", "", false
	case 1:
		shard, index, at = stampOf(c.stamps[0])
		return shard, index, at, true
	}
	var shards, indexes, times []string
	for _, s := range c.stamps {
		shard, index, at := stampOf(s)
		shards, indexes, times = append(shards, shard), append(indexes, index), append(times, at)
	}
	return strings.Join(shards, ", "), strings.Join(indexes, ", "), strings.Join(times, ", "), true
}

func stampOf(s broker.Stamp) (shard, index, at string) {
	return strconv.FormatUint(uint64(s.Shard), 10), strconv.FormatUint(s.Index, 10), s.Time.Time().Format(time.RFC3339Nano)
}

// In gRPC, an answer from a single shard that another node leads names that node in trailerLeader, so that a direct client picks
// the right one next time. A stream in a cluster of several nodes begins with headerNode, which names this one.
const (
	trailerLeader = "pawl-leader"
	headerNode    = "pawl-node"
)

// trailer returns the trailers of a gRPC call; nil if no shard was asked.
func (g *Gateway) trailer(c *call) metadata.MD {
	shard, index, at, ok := c.stamp()
	if !ok {
		return nil
	}
	md := metadata.MD{"pawl-shard": {shard}, "pawl-index": {index}, "pawl-time": {at}}
	if leader := g.leaderElsewhere(c); leader != "" {
		md[trailerLeader] = []string{leader}
	}
	return md
}

// stampsOf returns the contents of a call's trailers, for a frame of a stream.
func (g *Gateway) stampsOf(c *call) []*pawlv1.ShardStamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stamps) == 0 {
		return nil
	}
	out := make([]*pawlv1.ShardStamp, len(c.stamps))
	for i, s := range c.stamps {
		out[i] = &pawlv1.ShardStamp{Shard: s.Shard, Index: s.Index, Time: timeProto(s.Time), Leader: g.nodeName(g.broker.LeaderElsewhere(s.Shard))}
	}
	return out
}

// leaderElsewhere returns the other node that leads the one shard that a call asked; "": this node does, or it asked several.
func (g *Gateway) leaderElsewhere(c *call) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stamps) != 1 {
		return ""
	}
	return g.nodeName(g.broker.LeaderElsewhere(c.stamps[0].Shard))
}
