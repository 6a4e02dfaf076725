package gateway

import (
	"sync"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/contract"
)

// What a call requires of its caller is an option of the rpc in api/pawl/v1/*.proto; for everything else it is in the tables here.
// A call without it is refused to everybody, and a test fails. After a change run `go test ./internal/gateway -run TestAccessTable
// -update`, which writes the table in docs/access.md.

// reach is what a call is about, which the caller's token must cover.
type reach uint8

const (
	// public calls need no token.
	public reach = 1 + iota
	// anyone's calls need a token, and reveal nothing of tasks or queues. The node answers them by itself.
	anyone
	// anyoneAsking is the same for calls that the node asks shards about.
	anyoneAsking
	// ofClaims is for calls of a worker about what it has claimed: it sees only the queues of its token.
	ofClaims
	// ofQueues is for calls about queues and their contents: they see only the queues of the token. Queues that a request names are
	// checked by mayUse and scopedQueues; what has an id is checked where it is read (task.Scope).
	ofQueues
	// ofNamespace is for calls about a namespace as a whole: a token limited to some queues is refused.
	ofNamespace
	// ofCluster is for calls about all namespaces: a token limited to one is refused.
	ofCluster
)

// need is what a call requires of its caller.
type need struct {
	reach reach
	roles auth.Roles // any of them suffices; 0: no role is needed
	lasts bool       // may run for long; ends when the token does
}

// countsAsRequest reports whether a caller's call counts towards its namespace's requests per second. Calls of a worker about its
// claims don't, since refusing them would cost an attempt or repeat work: accepted work continues. Only the shard knows whether
// such a claim exists. Nor do calls that this node answers from memory, by which clients find their way, nor those beyond a
// namespace, or an operator could not help.
func (n need) countsAsRequest(v principal) bool {
	switch n.reach {
	case ofQueues, ofNamespace:
		return true
	case anyoneAsking:
		return !v.InAll()
	}
	return false
}

const (
	produce = auth.Produce
	consume = auth.Consume
	observe = auth.Observe
	operate = auth.Operate
	admin   = auth.Admin
)

// scopes maps the proto files' scopes to reaches.
var scopes = map[pawlv1.Scope]reach{
	pawlv1.Scope_SCOPE_NODE: anyone, pawlv1.Scope_SCOPE_SHARDS: anyoneAsking, pawlv1.Scope_SCOPE_CLAIMS: ofClaims,
	pawlv1.Scope_SCOPE_QUEUES: ofQueues, pawlv1.Scope_SCOPE_NAMESPACE: ofNamespace, pawlv1.Scope_SCOPE_CLUSTER: ofCluster,
}

var roles = map[pawlv1.Role]auth.Roles{
	pawlv1.Role_ROLE_PRODUCE: produce, pawlv1.Role_ROLE_CONSUME: consume, pawlv1.Role_ROLE_OBSERVE: observe, pawlv1.Role_ROLE_OPERATE: operate,
	pawlv1.Role_ROLE_ADMIN: admin,
}

// rpcNeeds returns what the proto files say that each rpc requires, by service and method.
var rpcNeeds = sync.OnceValue(func() map[string]need {
	needs := map[string]need{}
	for name, c := range contract.Calls() {
		n := need{reach: scopes[c.GetScope()], lasts: c.GetLong()}
		for _, role := range c.GetRoles() {
			n.roles |= roles[role]
		}
		needs[name] = n
	}
	return needs
})

// ownRoutes are routes without an rpc that require something nonetheless.
var ownRoutes = map[string]need{
	"GET /metrics": {ofCluster, observe, false}, // covers all namespaces
}

// publicRoutes reveal nothing private; "other" is a path that does not exist.
var publicRoutes = []string{"other", "GET /api/v1/openapi.json", "GET /healthz", "GET /readyz"}

// foreignServices are services of another program's protocol.
var foreignServices = map[string]need{"externalscaler.ExternalScaler": {ofQueues, observe, true}}

// publicServices are gRPC's own: health, and reflection on this program's protocol.
var publicServices = []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
