package pawl

import (
	"github.com/pawlq/pawl/internal/client"
	"github.com/pawlq/pawl/internal/client/gather"
	"github.com/pawlq/pawl/internal/client/lease"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Client is a client of a broker or of a cluster. Its methods are safe for concurrent use.
//
// If the broker is unavailable, a call that is safe to repeat is retried with growing pauses until it succeeds, its context ends, or
// DialOptions.RetryFor has passed. A call whose context ended may still have taken effect.
type Client struct {
	inside
	core     *client.Client
	producer pawlv1.ProducerServiceClient
	group    pawlv1.GroupServiceClient
	gather   *gather.Gatherer
}

type inside = client.Inside

// Dial returns a client of the broker at addr: "host:port", "host" (port 7295), "https://host:port" or "unix:///path".
// It does not wait for a connection: the client connects with the first call, and again whenever the connection breaks.
// Close it when done. If several opts set the same field, the last one wins; GRPC options add up.
//
// For a cluster, list the nodes separated by commas, "n1:7295,n2:7295,n3:7295": the client talks to one of them, and
// switches to another when that one is gone. Any node accepts any call, and forwards it to the leader of its shard. The
// client learns which nodes lead, and connects to them itself, at the addresses that they advertise; where it can't,
// its calls just take the extra hop. NoRouting disables that.
//
// Connections to this machine are in plaintext; for others, Dial requires https://, TLS or Plaintext. The same holds
// for addresses that nodes advertise. A client with TLS never uses plaintext. The server's certificate must be for the
// host of the address that is dialled.
func Dial(addr string, opts ...DialOptions) (*Client, error) {
	var all DialOptions
	for i := range opts {
		all.merge(&opts[i])
	}
	core, err := client.Dial(addr, all.config())
	if err != nil {
		return nil, err
	}
	c := &Client{inside: core.Inside(), core: core, producer: pawlv1.NewProducerServiceClient(core),
		group: pawlv1.NewGroupServiceClient(core)}
	core.NewClaim = func(task *pawlv1.ClaimedTask, holder lease.Holder, unreadable error) any {
		return newClaim(task, holder, unreadable)
	}
	c.gather = gather.New(core.Caller, c.producer, c.laneOf)
	return c, nil
}

// laneOf returns which enqueues are sent together with those to a queue: the ones to its shard, so that none waits for
// a shard that is not its own.
func (c *Client) laneOf(queue string) gather.Lane {
	if c.core.Router == nil {
		return gather.Lane{Queue: queue}
	}
	if shard, known := c.core.Router.OnlyShardOf(queue); known {
		return gather.Lane{Shard: shard}
	}
	return gather.Lane{Queue: queue}
}

// Close cancels the calls in flight and closes the connections. Drain the workers first.
func (c *Client) Close() error {
	c.core.End()
	c.gather.Close()
	return c.core.Close()
}
