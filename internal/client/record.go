package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/client/rpc"
)

// Record has note called with the answer of every unary call from now on, as the caller gets it: decrypted. method is the rpc as
// Service/Method, without its package.
func (c *Client) Record(note func(method string, answer proto.Message)) {
	c.Conn = &recorded{c.Conn, note}
}

type recorded struct {
	rpc.Conn
	note func(method string, answer proto.Message)
}

func (c *recorded) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	err := c.Conn.Invoke(ctx, method, req, resp, opts...)
	if answer, ok := resp.(proto.Message); err == nil && ok {
		c.note(method[len("/pawl.v1."):], answer)
	}
	return err
}
