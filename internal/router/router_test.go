package router_test

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
)

// A router has the calls of its parts, and not what they are made with.
func TestRouterHasOnlyCalls(t *testing.T) {
	of := reflect.TypeFor[*router.Router]()
	if _, ok := of.MethodByName("Enqueue"); !ok {
		t.Error("a router has no Enqueue")
	}
	life := reflect.TypeFor[*forward.Lifetime]()
	for i := range life.NumMethod() {
		if name := life.Method(i).Name; name != "Close" && name != "Draining" { // which are the router's own
			if _, ok := of.MethodByName(name); ok {
				t.Errorf("a router has the method %s of its lifetime", name)
			}
		}
	}
}

// The reason that a call of OnShard carries is known to the node that runs it, which logs it.
func TestReasonIsForwarded(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		logs, call := map[uint32]*bytes.Buffer{}, map[uint32]func(context.Context, uint32, string) (struct{}, error){}
		for _, number := range []uint32{1, 2} {
			logs[number] = new(bytes.Buffer)
			log := slog.New(slog.NewTextHandler(logs[number], nil))
			local := routertest.FakeBroker{M: f.Nodes[number]}
			call[number] = forward.OnShard(f.Nodes[number].Forwarder, "touch", true, func(ctx context.Context, shard uint32, what string) (struct{}, error) {
				if leader, _, _ := local.Leader(shard); leader != uint64(number) {
					return struct{}{}, &broker.NotLeader{Shard: shard, Node: uint32(leader)}
				}
				log.Info("touched", "what", what, "reason", forward.Reason(ctx))
				return struct{}{}, nil
			})
		}
		for _, reason := range []string{"balance", ""} {
			logs[1].Reset()
			if _, err := call[2](forward.WithReason(context.Background(), reason), 1, "shard"); err != nil {
				t.Fatal(err)
			}
			if want := `msg=touched what=shard reason=` + map[bool]string{true: `""`, false: reason}[reason == ""]; !strings.Contains(logs[1].String(), want) || logs[2].Len() != 0 {
				t.Errorf("for the reason %q: node 1 logs %q, want %q; node 2 logs %q", reason, logs[1], want, logs[2])
			}
		}
	})
}
