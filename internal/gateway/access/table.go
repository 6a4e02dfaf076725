package access

import (
	"sync"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
)

// What a call requires of its caller is an option of the rpc in api/pawl/v1/*.proto; for everything else it is in the tables here.
// A call without it is refused to everybody, and a test fails. After a change run `go test ./internal/gateway -run TestAccessTable
// -update`, which writes the table in docs/access.md.

// Reach is what a call is about, which the caller's token must cover.
type Reach uint8

const (
	// Public calls need no token.
	Public Reach = 1 + iota
	// Anyone is for calls that need a token, and reveal nothing of tasks or queues. The node answers them by itself.
	Anyone
	// AnyoneAsking is the same for calls that the node asks shards about.
	AnyoneAsking
	// OfClaims is for calls of a worker about what it has claimed: it sees only the queues of its token.
	OfClaims
	// OfQueues is for calls about queues and their contents: they see only the queues of the token. Queues that a request names are
	// checked by callinfo.MayUse and fanout.Scoped; what has an id is checked where it is read (task.Scope).
	OfQueues
	// OfNamespace is for calls about a namespace as a whole: a token limited to some queues is refused.
	OfNamespace
	// OfCluster is for calls about all namespaces: a token limited to one is refused.
	OfCluster
)

// Need is what a call requires of its caller.
type Need struct {
	Reach Reach
	Roles auth.Roles // any of them suffices; 0: no role is needed
	Lasts bool       // may run for long; ends when the token does
}

// LargestMessage returns how many bytes a message of the call may have.
func (n Need) LargestMessage() int {
	if n.Reach == Public {
		return contract.SmallMessage
	}
	return contract.MaxMessage
}

// countsAsRequest reports whether a caller's call counts towards its namespace's requests per second. Calls of a worker about its
// claims don't, since refusing them would cost an attempt or repeat work: accepted work continues. Only the shard knows whether
// such a claim exists. Nor do calls that this node answers from memory, by which clients find their way, nor those beyond a
// namespace, or an operator could not help.
func (n Need) countsAsRequest(v callinfo.Principal) bool {
	switch n.Reach {
	case OfQueues, OfNamespace:
		return true
	case AnyoneAsking:
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
var scopes = map[pawlv1.Scope]Reach{
	pawlv1.Scope_SCOPE_NODE: Anyone, pawlv1.Scope_SCOPE_SHARDS: AnyoneAsking, pawlv1.Scope_SCOPE_CLAIMS: OfClaims,
	pawlv1.Scope_SCOPE_QUEUES: OfQueues, pawlv1.Scope_SCOPE_NAMESPACE: OfNamespace, pawlv1.Scope_SCOPE_CLUSTER: OfCluster,
}

var roles = map[pawlv1.Role]auth.Roles{
	pawlv1.Role_ROLE_PRODUCE: produce, pawlv1.Role_ROLE_CONSUME: consume, pawlv1.Role_ROLE_OBSERVE: observe,
	pawlv1.Role_ROLE_OPERATE: operate, pawlv1.Role_ROLE_ADMIN: admin,
}

// RPCNeeds returns what the proto files say that each rpc requires, by service and method.
var RPCNeeds = sync.OnceValue(func() map[string]Need {
	needs := map[string]Need{}
	for name, c := range contract.Calls() {
		n := Need{Reach: scopes[c.GetScope()], Lasts: c.GetLong()}
		for _, role := range c.GetRoles() {
			n.Roles |= roles[role]
		}
		needs[name] = n
	}
	return needs
})

// OwnRoutes are routes without an rpc that require something nonetheless.
var OwnRoutes = map[string]Need{
	"GET /metrics": {OfCluster, observe, false}, // covers all namespaces
}

// PublicRoutes reveal nothing private; "other" is a path that does not exist.
var PublicRoutes = []string{"other", "GET /api/v1/openapi.json", "GET /healthz", "GET /readyz"}

// ForeignServices are services of another program's protocol.
var ForeignServices = map[string]Need{"externalscaler.ExternalScaler": {OfQueues, observe, true}}

// PublicServices are gRPC's own: health, and reflection on this program's protocol.
var PublicServices = []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
