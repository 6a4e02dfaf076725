package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// A gateway without a cluster reports nothing about one and refuses to change it.
func TestWithoutACluster(t *testing.T) {
	f := newFake()
	cfg := f.config()
	cfg.NodeName = func(n uint64) string { return fmt.Sprint("node-", n) }
	g := New(cfg)
	calls := unaryCalls{}
	g.services.register(calls)
	for name, call := range calls {
		if !strings.HasPrefix(name, "ClusterService/") {
			continue
		}
		if _, err := call(t.Context(), (&stage{names: strings.NewReplacer()}).fill(goodCalls[name])); !errors.Is(err, task.ErrWrongState) ||
			!strings.Contains(err.Error(), "does not offer the calls for a cluster") {
			t.Errorf("%s without a cluster: %v, want wrong state", name, err)
		}
	}
	if err := (g.services.cluster).Backup(nil, nil); !errors.Is(err, task.ErrWrongState) || !strings.Contains(err.Error(),
		"does not offer the calls for a cluster") {
		t.Errorf("Backup without a cluster: %v, want wrong state", err)
	}
	g.services.worker.sendNode(&pipeStream{ctx: t.Context()}) // there is no node to report
	hooks := g.services.webhook
	ctx, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
	_, add := hooks.AddWebhook(ctx, &pawlv1.AddWebhookRequest{Name: "w", Url: "https://example.com"})
	_, set := hooks.SetWebhook(ctx, &pawlv1.SetWebhookRequest{Name: "w", Url: new("https://example.com")})
	_, try := hooks.TestWebhook(ctx, &pawlv1.TestWebhookRequest{Name: "w"})
	for _, err := range []error{add, set, try} {
		if e, _ := task.AsError(err); e == nil || e.Code != task.CodePermissionDenied {
			t.Errorf("webhook call without a cluster: %v, want permission denied", err)
		}
	}
	if got := g.leaders.NodeName(7) + g.leaders.NodeName(0); got != "node-7" {
		t.Errorf("names of nodes 7 and 0 = %q, want node-7 only", got)
	}
}
