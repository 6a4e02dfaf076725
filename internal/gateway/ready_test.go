package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/task"
)

// Everyone may ask whether a node is ready. Only callers who may see the cluster learn why it is not, and who leads which shard.
func TestReadinessDetailsNeedRights(t *testing.T) {
	k := newTokenSet()
	k.add("of all", auth.Rights{Namespace: "*", Roles: auth.Observe})
	k.add("of one", auth.Rights{Namespace: "team", Roles: auth.Admin})
	k.add("of queues", auth.Rights{Namespace: "*", Roles: auth.Admin, Queues: []string{"mail*"}})
	k.secret["of nobody"], k.secret["none"] = bearer.New(), ""
	g := lockedGateway(t, k)
	var why error
	g.cfg.Ready = func() error { return why }
	g.wire()
	for _, c := range []struct {
		why              error
		code             int
		strangers, those string
	}{
		{nil, http.StatusOK, `{"status":"ok"}`, `{"status":"ok","shards":[{"shard":1,"leader":"n1","index":`},
		{task.Unavailable(time.Second, "shard 7: no leader answers"), http.StatusServiceUnavailable, `{"status":"not ready"}`,
			`{"status":"shard 7: no leader answers","shards":[{`},
	} {
		why = c.why
		for who, secret := range k.secret {
			w := knock(g, http.MethodGet, "/readyz", secret, "")
			got := strings.TrimSpace(w.Body.String())
			good := got == c.strangers
			if who == "of all" {
				good = strings.HasPrefix(got, c.those)
			}
			if w.Code != c.code || !good {
				t.Errorf("token %s, readiness %v: %d %s", who, c.why, w.Code, got)
			}
			for name := range w.Header() {
				if strings.HasPrefix(name, "Pawl-") {
					t.Errorf("token %s: the response has the header %s", who, name)
				}
			}
		}
	}
}
