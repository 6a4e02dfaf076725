package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// The caller's credentials: headers in REST, metadata in gRPC. A caller that may use any namespace says which one it means;
// otherwise it is the default.
const (
	headerToken     = "Authorization"
	headerNamespace = "Pawl-Namespace"

	metaToken     = "authorization"
	metaNamespace = "pawl-namespace"
)

// bearer precedes the token in headerToken; its case does not matter.
const bearer = "bearer "

// callCredentials is the credentials that a call carries.
type callCredentials struct {
	tokens, namespaces []string
	certificate        *auth.Certificate // from the handshake; nil: none
}

func restCredentials(r *http.Request) callCredentials {
	return callCredentials{r.Header[headerToken], r.Header[headerNamespace], certificateOfREST(r.Context())}
}

func grpcCredentials(ctx context.Context) callCredentials {
	return callCredentials{metadata.ValueFromIncomingContext(ctx, metaToken), metadata.ValueFromIncomingContext(ctx, metaNamespace), certificateOfGRPC(ctx)}
}

// token returns the token, "" if there is none. A malformed one is refused when it is looked up.
func (s callCredentials) token() (string, error) {
	said, err := onlyOne("authorization", headerToken, s.tokens)
	if err != nil || len(s.tokens) == 0 {
		return "", err
	}
	if len(said) < len(bearer) || !strings.EqualFold(said[:len(bearer)], bearer) {
		return "", &task.Error{Code: task.CodeUnauthenticated, Field: "authorization", Message: "authorization: the scheme is not Bearer: send \"Authorization: Bearer pawl_…\""}
	}
	return strings.TrimSpace(said[len(bearer):]), nil
}

// admit authenticates and authorizes a call. It records the caller in c, and limits the context to what the token may see. The
// caller must call leave at the end of the call.
func (g *Gateway) admit(ctx context.Context, c *call, n need, s callCredentials) (_ context.Context, leave func(), err error) {
	leave = func() {}
	if n.reach == public {
		return ctx, leave, nil
	}
	v, err := g.authenticate(s)
	if err == nil {
		if err = v.may(n); err != nil {
			g.auth.Denied()
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
		if err := g.rates.take(c.namespace, g.auth.Quotas(c.namespace), 1, 0); err != nil {
			return ctx, leave, err
		}
	}
	if ok, own := g.calls.TryAcquire(c.namespace); !ok {
		return ctx, leave, tooManyCalls(g.calls, own)
	}
	leave = func() { g.calls.Release(c.namespace) }
	c.principal, ctx = v, task.WithScope(ctx, v.Scope())
	if n.lasts { // also while no token is required: that may change
		var gone func()
		ctx, gone = g.auth.Track(ctx, v.Principal, v.certificate)
		leave = func() { gone(); g.calls.Release(c.namespace) }
	}
	return ctx, leave, nil
}

// admitFrame admits a frame of a stream whose caller was admitted with the stream. The caller must call leave at the frame's end.
func (g *Gateway) admitFrame(c *call) (leave func(), err error) {
	if err := g.rates.take(c.namespace, g.auth.Quotas(c.namespace), 1, 0); err != nil {
		return nil, err
	}
	if ok, own := g.calls.TryAcquire(c.namespace); !ok {
		return nil, tooManyCalls(g.calls, own)
	}
	c.principal.Use(time.Now())
	return func() { g.calls.Release(c.namespace) }, nil
}

// maxCalls bounds the concurrent calls of a node, including workers' streams and long polls.
const maxCalls = 100_000

// callRetryAfter is when a call that exceeded the limit may be retried.
const callRetryAfter = 5 * time.Second

func tooManyCalls(s *admission.Slots, own bool) error {
	if own {
		return task.Unavailable(callRetryAfter, "the namespace has %d calls in progress at this node, the maximum", s.PerNamespace())
	}
	return task.Unavailable(callRetryAfter, "%d calls are in progress at this node, the maximum", s.Size())
}

// principal is the caller of a call.
type principal struct {
	*auth.Principal
	certificate *auth.Certificate // that identified it; nil: a token did, or nothing
}

// authenticate identifies the caller. A token takes precedence over a certificate: the token was chosen for this call, while a
// certificate is presented with every call.
func (g *Gateway) authenticate(s callCredentials) (principal, error) {
	if !g.auth.TokensRequired() {
		return principal{Principal: auth.Anonymous}, nil
	}
	token, err := s.token()
	if err != nil {
		return principal{}, err
	}
	if len(s.tokens) == 0 && s.certificate != nil {
		v, err := g.auth.AdmitCertificate(s.certificate)
		return principal{v, s.certificate}, err
	}
	v, err := g.auth.Admit(token)
	return principal{Principal: v}, err
}

// may returns an error unless the principal's roles and the reach of its token suffice for a call.
func (v principal) may(n need) error {
	switch {
	case n.reach == 0:
		return denied("no role allows this call: it is not in the access table")
	case n.roles != 0 && !v.Roles.HasAny(n.roles):
		return denied("token %q has the role %s, and this call needs %s", v.Name, v.Roles, strings.Join(n.roles.Names(), " or "))
	case n.reach >= ofNamespace && !v.Scope().All():
		return denied("token %q is limited to the queues %s, and this call concerns more than queues", v.Name, strings.Join(v.Queues, ", "))
	case n.reach == ofCluster && !v.InAll():
		return denied("token %q is limited to namespace %q, and this call concerns the whole cluster", v.Name, v.Namespace)
	}
	return nil
}

// namespace returns the namespace of the call: the token's, or the requested one.
func (g *Gateway) namespace(v principal, s callCredentials) (string, error) {
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
	return asked, g.auth.CheckNamespace(asked)
}

func denied(format string, args ...any) error {
	return &task.Error{Code: task.CodePermissionDenied, Message: fmt.Sprintf(format, args...)}
}

// mayUse refuses a queue that the caller's token does not cover, whether the queue exists or not.
func mayUse(ctx context.Context, queue string) error {
	scope := task.ScopeOf(ctx)
	if scope.Sees(queue) {
		return nil
	}
	return denied("token %q is limited to the queues %s, and %q is not one of them", callOf(ctx).principal.Name, strings.Join(scope.Queues, ", "), task.Cut(queue, 64))
}

// mayEnqueue refuses a task if it, or a follow-up task, is in a queue that the caller's token does not cover.
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

func (c scopedQueues) Place(ctx context.Context, ns, queue string) (queues.Queue, error) {
	if err := mayUse(ctx, queue); err != nil {
		return queues.Queue{}, err
	}
	return c.Cluster.Place(ctx, ns, queue)
}

func (c scopedQueues) Queue(ctx context.Context, ns, name string) (queues.Queue, bool, error) {
	if err := mayUse(ctx, name); err != nil {
		return queues.Queue{}, false, err
	}
	return c.Cluster.Queue(ctx, ns, name)
}

func (c scopedQueues) PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue, error) {
	if err := mayUse(ctx, name); err != nil {
		return queues.Queue{}, err
	}
	return c.Cluster.PutQueue(ctx, action, ns, name, change)
}

func (c scopedQueues) DropQueue(ctx context.Context, by task.Author, ns, name string) error {
	if err := mayUse(ctx, name); err != nil {
		return err
	}
	return c.Cluster.DropQueue(ctx, by, ns, name)
}

func (c scopedQueues) Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error) {
	if err := mayUse(ctx, name); err != nil {
		return queues.Queue{}, err
	}
	return c.Cluster.Spread(ctx, by, ns, name, target)
}

// Queues returns the queues that the call may see.
func (c scopedQueues) Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error) {
	of.Within = task.ScopeOf(ctx)
	return c.Cluster.Queues(ctx, ns, of)
}

// refusalLog keeps refused callers from flooding the log.
type refusalLog struct {
	mu     sync.Mutex
	logged time.Time
	passed int // since then
}

// refusalLogInterval is the minimum time between two log lines about refused callers.
const refusalLogInterval = time.Second

// refused logs that a caller was refused, and how many were since the previous line. If the caller sent a wrong token, its refusal
// may be delayed.
func (g *Gateway) refused(ctx context.Context, c *call, err error, shown bool) {
	e, ok := task.AsError(err)
	if !ok || e.Code == task.CodeUnavailable {
		return
	}
	face, address := sourceOf(ctx, c)
	g.auth.NoteAddress(address)
	if others, ok := g.refusalLog.turn(); ok {
		g.log.Warn("a caller was refused", "code", string(e.Code), "reason", e.Message, "face", string(face), "address", address, "others", others)
	}
	if shown && e.Code == task.CodeUnauthenticated {
		g.throttle.wait(ctx, address)
	}
}

// turn reports whether a line may be logged now, and how many were left out since the previous one.
func (r *refusalLog) turn() (others int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.logged) < refusalLogInterval {
		r.passed++
		return 0, false
	}
	others = r.passed
	r.logged, r.passed = now, 0
	return others, true
}

// needOfRoute returns what a route requires of its caller.
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

// apiPackage precedes the names of our own rpcs.
const apiPackage = "/pawl.v1."

// needOfRPC returns what an rpc, given by its full name, requires of its caller.
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
