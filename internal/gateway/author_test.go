package gateway

import (
	"context"
	"testing"

	"google.golang.org/grpc/peer"

	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/task"
)

// A call without a peer has no address.
func TestCallsFromNowhere(t *testing.T) {
	for _, ctx := range []context.Context{t.Context(), peer.NewContext(t.Context(), &peer.Peer{})} {
		ctx, c := callinfo.Begin(ctx, "grpc", "test")
		if iface, address := callinfo.Source(ctx, c); iface != task.InterfaceGRPC || address != "" || callinfo.Address(ctx) != "" {
			t.Errorf("source of a call without a peer = %q over %s", address, iface)
		}
	}
	ctx, c := callinfo.Begin(peer.NewContext(t.Context(), &peer.Peer{Addr: listen.InProcessAddr("192.0.2.7:5")}), "grpc", "test")
	if iface, address := callinfo.Source(ctx, c); iface != task.InterfaceUI || address != "192.0.2.7" || callinfo.Address(ctx) != address {
		t.Errorf("source of an in-process call = %q over %s", address, iface)
	}
	g := newGateway(newFake())
	_, call := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
	if stamps, trailer := g.leaders.Stamps(call), g.leaders.Trailer(call); stamps != nil || trailer != nil {
		t.Errorf("a call that asked no shard has the stamps %v and the trailers %v", stamps, trailer)
	}
}
