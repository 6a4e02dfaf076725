package rest

import (
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
)

// listNodes returns all nodes: they are few, and never more than a page.
func listNodes(x *exchange) error {
	return listAll(x, (*pawlv1.GetClusterResponse).GetNodes)
}

func listShards(x *exchange) error {
	return listAll(x, (*pawlv1.GetClusterResponse).GetShards)
}

// listAll answers with a part of the cluster as a list of one page.
func listAll[T proto.Message](x *exchange, of func(*pawlv1.GetClusterResponse) []T) error {
	got, err := ask[*pawlv1.GetClusterRequest, *pawlv1.GetClusterResponse](x, x.on.RPC, func(in *pawlv1.GetClusterRequest) error {
		return x.request(in)
	})
	if err != nil {
		return err
	}
	x.Open('{')
	apijson.List(&x.Writer, "items", of(got))
	x.Str("next_cursor", "")
	x.Close('}')
	return nil
}
