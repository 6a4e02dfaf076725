// Package callinfo is what a call of the API carries in its context: its caller, its namespace, who acts and why, which queues it may
// use, and which state of which shards its answer reflects. It also converts errors to those that callers get.
//
// It knows how calls came, by gRPC or HTTP, but not whether they are admitted, nor what any of them does.
package callinfo

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
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/receive"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Call is the state of a call: its caller, and which state of which shards its answer reflects.
type Call struct {
	Namespace string
	// Began is when the namespace was added: what happened in it before, happened in an earlier one of its name. Of the
	// default one it is the time of the epoch.
	Began     time.Time
	Principal Principal
	Web       *http.Request // nil: a gRPC call
	// How the call is counted.
	iface    task.Interface // for an HTTP request also the one that the audit log names
	Method   string
	kind     callKind
	Frame    bool              // one of many on a stream, whose headers say nothing about it
	Receiver *receive.Receiver // for a stream: the source of its messages

	from   context.Context // of the request
	mu     sync.Mutex
	stamps []broker.Stamp // one per shard, the latest
	denied error          // the first refusal of an item
	told   bool           // whether a refusal is recorded
}

type callKey struct{}

// Begin creates the call of a request, in the default namespace and without a caller until it is admitted. The namespace comes from the
// credential, never from the body.
func Begin(ctx context.Context, iface task.Interface, method string) (context.Context, *Call) {
	c := &Call{Namespace: auth.DefaultNamespace, Principal: Principal{Principal: auth.Anonymous}, iface: iface, Method: method}
	c.from = ctx
	return context.WithValue(ctx, callKey{}, c), c
}

// Of returns the call of a context. It panics if the context has none: a handler that was reached past Begin has authorized nobody.
func Of(ctx context.Context) *Call {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		panic("callinfo: the context has no call")
	}
	return c
}

// Namespace returns the namespace of the call.
func Namespace(ctx context.Context) string { return Of(ctx).Namespace }

// Note records which state of a shard the answer reflects.
func Note(ctx context.Context, at broker.Stamp) { Of(ctx).noteStamp(at) }

func (c *Call) noteStamp(at broker.Stamp) {
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

// Stamp returns the values of the three headers of REST, and trailers of gRPC, separated by commas if there are several shards; not
// ok if no shard was asked.
func (c *Call) Stamp() (shard, index, at string, ok bool) {
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
// the right one next time. A stream in a cluster of several nodes begins with HeaderNode, which names this one.
const (
	trailerLeader = "pawl-leader"
	HeaderNode    = "pawl-node"
)

// Leaders says which node leads a shard, for clients that go there directly.
type Leaders struct {
	Elsewhere func(shard uint32) (node uint64) // the other node that leads a shard, as far as known; 0: this one, or unknown
	Name      func(node uint64) string         // of a node by its number; nil: "n" and the number
}

// NodeName returns the name of a node by its number; "" for 0, which is none.
func (l Leaders) NodeName(node uint64) string {
	switch {
	case node == 0:
		return ""
	case l.Name != nil:
		return l.Name(node)
	}
	return "n" + strconv.FormatUint(node, 10)
}

// Trailer returns the trailers of a gRPC call; nil if no shard was asked.
func (l Leaders) Trailer(c *Call) metadata.MD {
	shard, index, at, ok := c.Stamp()
	if !ok {
		return nil
	}
	md := metadata.MD{"pawl-shard": {shard}, "pawl-index": {index}, "pawl-time": {at}}
	if leader := l.leaderElsewhere(c); leader != "" {
		md[trailerLeader] = []string{leader}
	}
	return md
}

// Stamps returns the contents of a call's trailers, for a frame of a stream.
func (l Leaders) Stamps(c *Call) []*pawlv1.ShardStamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stamps) == 0 {
		return nil
	}
	out := make([]*pawlv1.ShardStamp, len(c.stamps))
	for i, s := range c.stamps {
		out[i] = &pawlv1.ShardStamp{Shard: s.Shard, Index: s.Index, Time: apiproto.TimeProto(s.Time),
			Leader: l.NodeName(l.Elsewhere(s.Shard))}
	}
	return out
}

// leaderElsewhere returns the other node that leads the one shard that a call asked; "": this node does, or it asked several.
func (l Leaders) leaderElsewhere(c *Call) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stamps) != 1 {
		return ""
	}
	return l.NodeName(l.Elsewhere(c.stamps[0].Shard))
}

// NewFrame returns the context of a frame of a stream's call: client is the context of gRPC's stream, admitted that of the call.
func NewFrame(of *Call, client, admitted context.Context, method string) *Frame {
	return &Frame{Context: client, admitted: admitted,
		Call: Call{Namespace: of.Namespace, Principal: of.Principal, iface: of.iface, Method: method, Frame: true, from: client}}
}

// Principal is the caller of a call.
type Principal struct {
	*auth.Principal
	Presented *auth.Certificate // that identified it; nil: a token did, or nothing
}

// Frame is the context of a frame, with its own call. It has the values of the stream's admission, and ends when the client
// is gone, but not when the token ends, since a frame that has begun is answered.
type Frame struct {
	context.Context // of gRPC's stream
	admitted        context.Context
	Call            Call
}

// Value implements context.Context.
func (c *Frame) Value(key any) any {
	if key == (callKey{}) {
		return &c.Call
	}
	return c.admitted.Value(key)
}

// Header returns a header of a call, "" unless it occurs exactly once.
func Header(ctx context.Context, name string) string { return Of(ctx).header(ctx, name) }

func (c *Call) header(ctx context.Context, name string) string {
	var values []string
	if c.Web != nil {
		values = c.Web.Header.Values(name)
	} else {
		values = metadata.ValueFromIncomingContext(ctx, name)
	}
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// Recorder runs verbs for calls of the API, and records which state of which shards their answers reflect.
type Recorder struct{ verb.Runner }

// Do implements verb.Runner.
func (s Recorder) Do(ctx context.Context, c verb.Call) error {
	err := s.Runner.Do(ctx, c)
	for _, part := range append(c.Parts(), c) {
		if a, ok := part.Answer().(interface{ Stamp() broker.Stamp }); ok {
			Note(ctx, a.Stamp())
		}
	}
	return err
}

// OnShard returns the arguments that address a shard.
func OnShard(ctx context.Context, shard uint32) broker.OnShard {
	return broker.OnShard{Shard: shard, Namespace: Namespace(ctx)}
}

// OnQueue returns the arguments that address the part of a queue in a shard.
func OnQueue(ctx context.Context, shard uint32, name string) broker.OnQueue {
	return broker.OnQueue{OnShard: OnShard(ctx, shard), Queue: name}
}
