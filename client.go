package pawl

import (
	"github.com/pawlq/pawl/internal/client"
	"github.com/pawlq/pawl/internal/client/gather"
	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Client is the way to a broker, or to the nodes of a cluster. Its methods may be called by any number of goroutines.
//
// A call that finds the broker unavailable is repeated with growing pauses until it is answered, its context ends, or
// DialOptions.RetryFor is over, if a repeat can do no harm. A call whose context ended may still have happened.
type Client struct {
	core     *client.Client
	producer pawlv1.ProducerServiceClient
	group    pawlv1.GroupServiceClient
	gather   *gather.Gatherer
}

// Dial makes a client of the broker at addr: "host:port", "host" (port 7295), "https://host:port" or "unix:///path". It does
// not wait for a connection: that is made by the first call, and made anew whenever it breaks. Close it when done. Of several options the
// later ones count where both are set.
//
// A cluster is given as a list with commas, "n1:7295,n2:7295,n3:7295": the client talks to one of its nodes, and goes on with
// another when that is gone. Any node takes any call, and sends it on to the leader of its shard. The client learns of that
// and connects to such leaders itself, at the addresses that they advertise; where it can't, nothing is lost but a detour. NoRouting
// switches that off.
//
// Connections are in plaintext to this machine; to others Dial wants https://, TLS or Plaintext. That holds for addresses
// that nodes advertise, too. A client with TLS never speaks plaintext. The server's certificate must be for the host of the address
// that is dialled.
func Dial(addr string, opts ...DialOptions) (*Client, error) {
	var all DialOptions
	for i := range opts {
		all.merge(&opts[i])
	}
	core, err := client.Dial(addr, all.config())
	if err != nil {
		return nil, err
	}
	c := &Client{core: core, producer: pawlv1.NewProducerServiceClient(core), group: pawlv1.NewGroupServiceClient(core)}
	c.gather = gather.New(core.Caller, c.producer, all.eager)
	return c, nil
}

// Conn is the connection of the client, for services of the API that have no method here: pawlv1.NewProducerServiceClient(client.Conn()). What
// it returns are errors of gRPC, and it repeats nothing.
func (c *Client) Conn() grpc.ClientConnInterface { return c.core }

// Close ends the calls that are under way and the connections. Workers must have been drained before.
func (c *Client) Close() error {
	c.core.End()
	c.gather.Close()
	return c.core.Close()
}
