package gateway

import (
	"sync"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/contract"
)

// What a call wants of its caller stands beside it in api/pawl/v1/*.proto, and here for what is no rpc of ours. A call that says nothing is
// refused to everybody, and a test fails. After a change run `go test ./internal/gateway -run TestAccessTable -update`, which writes the table
// of docs/access.md.

// reach is what a call is about, which the caller's token must be good for.
type reach uint8

const (
	// public calls want no token.
	public reach = 1 + iota
	// anyone's calls want a token, and tell nothing of tasks or queues. The node answers them by itself.
	anyone
	// anyoneAsking is for such calls for which shards are asked.
	anyoneAsking
	// ofClaims is for calls of a worker about what it has claimed: it sees the queues of its token only.
	ofClaims
	// ofQueues is for calls about queues and what lies in them: they see the queues of the token only. What names a queue is checked
	// by mayUse and scopedQueues, what has an id where it is read (task.Scope).
	ofQueues
	// ofNamespace is for calls about a namespace as a whole: a token that is limited to some queues is refused.
	ofNamespace
	// ofCluster is for calls about all namespaces: a token that is limited to one is refused.
	ofCluster
)

// need is what a call wants.
type need struct {
	reach reach
	roles auth.Roles // one of them is enough; 0: whichever
	lasts bool       // it may go on for long, and ends when its token does
}

// countsAsRequest says whether a call of a visitor takes of its namespace's requests per second. Those of a worker about what it has
// claimed do not, since a refusal would cost an attempt, or have the work done again: what was accepted goes on. Whether there is such a
// claim only its shard knows. Nor do calls that this node answers from what it has in memory, by which clients find their way, nor those about
// more than a namespace, or an operator could not help.
func (n need) countsAsRequest(v visitor) bool {
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

// scopes are the reaches of calls as the proto files have them.
var scopes = map[pawlv1.Scope]reach{
	pawlv1.Scope_SCOPE_NODE: anyone, pawlv1.Scope_SCOPE_SHARDS: anyoneAsking, pawlv1.Scope_SCOPE_CLAIMS: ofClaims,
	pawlv1.Scope_SCOPE_QUEUES: ofQueues, pawlv1.Scope_SCOPE_NAMESPACE: ofNamespace, pawlv1.Scope_SCOPE_CLUSTER: ofCluster,
}

var roles = map[pawlv1.Role]auth.Roles{
	pawlv1.Role_ROLE_PRODUCE: produce, pawlv1.Role_ROLE_CONSUME: consume, pawlv1.Role_ROLE_OBSERVE: observe, pawlv1.Role_ROLE_OPERATE: operate,
	pawlv1.Role_ROLE_ADMIN: admin,
}

// rpcNeeds is what the proto files say that each rpc wants of its caller, by service and method.
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

// ownRoutes stand for no rpc, and want something all the same.
var ownRoutes = map[string]need{
	"GET /metrics": {ofCluster, observe, false}, // of all namespaces
}

// publicRoutes say nothing that is anybody's; "other" is a path that there is not.
var publicRoutes = []string{"other", "GET /api/v1/openapi.json", "GET /healthz", "GET /readyz"}

// foreignServices are those whose protocol is another program's.
var foreignServices = map[string]need{"externalscaler.ExternalScaler": {ofQueues, observe, true}}

// publicServices are those of gRPC itself: whether the server lives, and what this program's protocol is.
var publicServices = []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
