package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
	"google.golang.org/grpc/metadata"
)

// What a call shows of its caller: headers in REST, metadata in gRPC. Who may go to any namespace says to which; else it is the
// default.
const (
	headerToken     = "Authorization"
	headerNamespace = "Pawl-Namespace"

	metaToken     = "authorization"
	metaNamespace = "pawl-namespace"
)

// bearer begins the value of headerToken; its case does not matter.
const bearer = "bearer "

// shown is what a call shows of its caller.
type shown struct {
	tokens, namespaces []string
	certificate        *auth.Certificate // at the handshake; nil: none
}

func shownByREST(r *http.Request) shown {
	return shown{r.Header[headerToken], r.Header[headerNamespace], certificateOfREST(r.Context())}
}

func shownByGRPC(ctx context.Context) shown {
	return shown{metadata.ValueFromIncomingContext(ctx, metaToken), metadata.ValueFromIncomingContext(ctx, metaNamespace), certificateOfGRPC(ctx)}
}

// token reads the token; "" for none. What is no token is refused where it is looked up.
func (s shown) token() (string, error) {
	said, err := onlyOne("authorization", headerToken, s.tokens)
	if err != nil || len(s.tokens) == 0 {
		return "", err
	}
	if len(said) < len(bearer) || !strings.EqualFold(said[:len(bearer)], bearer) {
		return "", &task.Error{Code: task.CodeUnauthenticated, Field: "authorization", Message: "authorization: the scheme is not Bearer: send \"Authorization: Bearer pawl_…\""}
	}
	return strings.TrimSpace(said[len(bearer):]), nil
}

// admit lets a call in that wants something, or says why not. It fills in whose the call is, and limits its context to what its token
// may see. Leave must be called at the end of the call.
func (g *Gateway) admit(ctx context.Context, c *call, n need, s shown) (_ context.Context, leave func(), err error) {
	leave = func() {}
	if n.reach == public {
		return ctx, leave, nil
	}
	v, err := g.visitor(s)
	if err == nil {
		if err = v.may(n); err != nil {
			g.keeper.Denied()
		}
	}
	if err != nil {
		g.refused(ctx, c, err, len(s.tokens) > 0)
		return ctx, leave, err
	}
	if c.namespace, err = g.namespace(v, s); err != nil {
		return ctx, leave, err
	}
	if n.countsAsRequest(v) {
		if err := g.rates.take(c.namespace, g.keeper.Quotas(c.namespace), 1, 0); err != nil {
			return ctx, leave, err
		}
	}
	if ok, own := g.calls.TryAcquire(c.namespace); !ok {
		return ctx, leave, tooManyCalls(g.calls, own)
	}
	leave = func() { g.calls.Release(c.namespace) }
	c.visitor, ctx = v, task.WithScope(ctx, v.Scope())
	if n.lasts { // also while no token is wanted: that may change
		var gone func()
		ctx, gone = g.keeper.Stay(ctx, v.Visitor, v.certificate)
		leave = func() { gone(); g.calls.Release(c.namespace) }
	}
	return ctx, leave, nil
}

// admitFrame lets in a frame of a stream whose caller was admitted with the stream. Leave must be called at its end.
func (g *Gateway) admitFrame(c *call) (leave func(), err error) {
	if err := g.rates.take(c.namespace, g.keeper.Quotas(c.namespace), 1, 0); err != nil {
		return nil, err
	}
	if ok, own := g.calls.TryAcquire(c.namespace); !ok {
		return nil, tooManyCalls(g.calls, own)
	}
	c.visitor.Use(time.Now())
	return func() { g.calls.Release(c.namespace) }, nil
}

// maxCalls bounds the calls that a node runs at once, workers' streams and long polls among them.
const maxCalls = 100_000

// callRest is when a call that was one too many may be made again.
const callRest = 5 * time.Second

func tooManyCalls(s *admission.Slots, own bool) error {
	if own {
		return task.Unavailable(callRest, "the namespace has %d calls under way at this node, and can have no more", s.PerNamespace())
	}
	return task.Unavailable(callRest, "%d calls are under way at this node, and no more can be", s.Size())
}

// visitor is who makes a call.
type visitor struct {
	*auth.Visitor
	certificate *auth.Certificate // by which it is known; nil: by a token, or not at all
}

// visitor finds out who calls. A token that was sent decides alone: it was chosen for this call, and a certificate is shown with all.
func (g *Gateway) visitor(s shown) (visitor, error) {
	if !g.keeper.On() {
		return visitor{Visitor: auth.Anybody}, nil
	}
	token, err := s.token()
	if err != nil {
		return visitor{}, err
	}
	if len(s.tokens) == 0 && s.certificate != nil {
		v, err := g.keeper.AdmitCertificate(s.certificate)
		return visitor{v, s.certificate}, err
	}
	v, err := g.keeper.Admit(token)
	return visitor{Visitor: v}, err
}

// may says whether the visitor's roles and the reach of its token are enough for a call.
func (v visitor) may(n need) error {
	switch {
	case n.reach == 0:
		return denied("nobody may make this call: it has no row in the table of access")
	case n.roles != 0 && !v.Roles.HasAny(n.roles):
		return denied("token %q has the role %s, and this call needs %s", v.Name, v.Roles, strings.Join(n.roles.Names(), " or "))
	case n.reach >= ofNamespace && !v.Scope().All():
		return denied("token %q is limited to the queues %s, and this call is about more than queues", v.Name, strings.Join(v.Queues, ", "))
	case n.reach == ofCluster && !v.InAll():
		return denied("token %q is limited to namespace %q, and this call is about the whole cluster", v.Name, v.Namespace)
	}
	return nil
}

// namespace is that of the call: the token's, or the one that is asked for.
func (g *Gateway) namespace(v visitor, s shown) (string, error) {
	asked, err := onlyOne("namespace", headerNamespace, s.namespaces)
	switch {
	case err != nil:
		return "", err
	case asked == "" && v.InAll():
		return auth.DefaultNamespace, nil
	case asked == "" || asked == v.Namespace:
		return v.Namespace, nil
	}
	if err := auth.CheckNamespace("namespace", asked); err != nil {
		return "", err
	}
	if !v.InAll() {
		return "", denied("token %q is limited to namespace %q", v.Name, v.Namespace)
	}
	return asked, g.keeper.CheckNamespace(asked)
}

func denied(format string, args ...any) error {
	return &task.Error{Code: task.CodePermissionDenied, Message: fmt.Sprintf(format, args...)}
}

// mayUse refuses a queue that the caller's token is not good for, whether there is such a queue or not.
func mayUse(ctx context.Context, queue string) error {
	scope := task.ScopeOf(ctx)
	if scope.Sees(queue) {
		return nil
	}
	return denied("token %q is limited to the queues %s, and %q is not one of them", callOf(ctx).visitor.Name, strings.Join(scope.Queues, ", "), task.Cut(queue, 64))
}

// mayEnqueue refuses a task, or one that is to follow it, in a queue that the caller's token is not good for.
func mayEnqueue(ctx context.Context, s *task.Spec) error {
	if task.ScopeOf(ctx).All() {
		return nil
	}
	if err := mayUse(ctx, s.Queue); err != nil {
		return err
	}
	return mayFollow(ctx, s)
}

func mayFollow(ctx context.Context, s *task.Spec) error {
	for i := range s.Then {
		if err := mayEnqueue(ctx, &s.Then[i]); err != nil {
			return contract.FieldOf(contract.Item("then", i), err)
		}
	}
	return nil
}

// scopedQueues is a Cluster for calls that may be limited to some queues.
type scopedQueues struct{ Cluster }

func (c scopedQueues) Place(ctx context.Context, ns, queue string) (cluster.Queue, error) {
	if err := mayUse(ctx, queue); err != nil {
		return cluster.Queue{}, err
	}
	return c.Cluster.Place(ctx, ns, queue)
}

func (c scopedQueues) Queue(ctx context.Context, ns, name string) (cluster.Queue, bool, error) {
	if err := mayUse(ctx, name); err != nil {
		return cluster.Queue{}, false, err
	}
	return c.Cluster.Queue(ctx, ns, name)
}

func (c scopedQueues) PutQueue(ctx context.Context, action cluster.AuditedAction, ns, name string, change func(*task.QueueConfig) error) (cluster.Queue, error) {
	if err := mayUse(ctx, name); err != nil {
		return cluster.Queue{}, err
	}
	return c.Cluster.PutQueue(ctx, action, ns, name, change)
}

func (c scopedQueues) DropQueue(ctx context.Context, by task.Author, ns, name string) error {
	if err := mayUse(ctx, name); err != nil {
		return err
	}
	return c.Cluster.DropQueue(ctx, by, ns, name)
}

func (c scopedQueues) Spread(ctx context.Context, by task.Author, ns, name string, target cluster.SpreadTarget) (cluster.Queue, error) {
	if err := mayUse(ctx, name); err != nil {
		return cluster.Queue{}, err
	}
	return c.Cluster.Spread(ctx, by, ns, name, target)
}

// Queues reads those that the call may see.
func (c scopedQueues) Queues(ctx context.Context, ns string, of cluster.QueueQuery) ([]cluster.Queue, error) {
	of.Within = task.ScopeOf(ctx)
	return c.Cluster.Queues(ctx, ns, of)
}

// refusals keep the log from being flooded by callers who are not let in.
type refusals struct {
	mu     sync.Mutex
	logged time.Time
	passed int // since then
}

// refusalRest lies between two lines of the log about callers who were not let in.
const refusalRest = time.Second

// refused logs that a caller was not let in, and how many were not since the line before. One that has shown a wrong token may have to wait.
func (g *Gateway) refused(ctx context.Context, c *call, err error, shown bool) {
	e, ok := task.AsError(err)
	if !ok || e.Code == task.CodeUnavailable {
		return
	}
	face, address := sourceOf(ctx, c)
	g.keeper.From(address)
	if others, ok := g.refusals.turn(); ok {
		g.log.Warn("a caller was not let in", "code", string(e.Code), "reason", e.Message, "face", string(face), "address", address, "others", others)
	}
	if shown && e.Code == task.CodeUnauthenticated {
		g.throttle.wait(ctx, address)
	}
}

// turn says whether the log may have a line now, and how many it did not have since the one before.
func (r *refusals) turn() (others int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.logged) < refusalRest {
		r.passed++
		return 0, false
	}
	others = r.passed
	r.logged, r.passed = now, 0
	return others, true
}

// needOfRoute is what a route wants.
func needOfRoute(r *rest.Route) need {
	if r.RPC != "" {
		return rpcNeeds()[r.RPC]
	}
	if n, ok := ownRoutes[r.String()]; ok {
		return n
	}
	if slices.Contains(publicRoutes, r.String()) {
		return need{reach: public}
	}
	return need{}
}

// apiPackage begins the names of our own rpcs.
const apiPackage = "/pawl.v1."

// needOfRPC is what an rpc wants, by its full name.
func needOfRPC(method string) need {
	if ours, ok := strings.CutPrefix(method, apiPackage); ok {
		return rpcNeeds()[ours]
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if n, ok := foreignServices[service]; ok {
		return n
	}
	if slices.Contains(publicServices, service) {
		return need{reach: public}
	}
	return need{}
}
