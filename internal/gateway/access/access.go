// Package access decides who may call what: it authenticates callers by tokens, certificates or signatures, authorizes calls by the
// access table, limits the calls and rates of namespaces, throttles and records refusals, and records who read payloads,
// results or checkpoints.
//
// It knows what each call requires of its caller, but not what the call does, nor anything of shards.
package access

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
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
const bearer = "Bearer"

// Credentials is the credentials that a call carries.
type Credentials struct {
	tokens, namespaces []string
	certificate        *auth.Certificate // from the handshake; nil: none
}

func restCredentials(r *http.Request) Credentials {
	return Credentials{r.Header[headerToken], r.Header[headerNamespace], listen.CertificateOfREST(r.Context())}
}

// GRPCCredentials returns the credentials in the metadata of a call of gRPC, and the certificate of its connection.
func GRPCCredentials(ctx context.Context) Credentials {
	return Credentials{metadata.ValueFromIncomingContext(ctx, metaToken), metadata.ValueFromIncomingContext(ctx, metaNamespace),
		listen.CertificateOfGRPC(ctx)}
}

// token returns the token, "" if there is none. A malformed one is refused when it is looked up.
func (s Credentials) token() (string, error) {
	header, err := callinfo.OnlyOne("authorization", headerToken, s.tokens)
	if err != nil || len(s.tokens) == 0 {
		return "", err
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(header), " ")
	if token = strings.TrimSpace(token); token != "" && strings.EqualFold(scheme, bearer) {
		return token, nil
	}
	wrong := "the scheme is not Bearer"
	if strings.EqualFold(scheme, bearer) {
		wrong = "the scheme Bearer has no token"
	}
	return "", &task.Error{Code: task.CodeUnauthenticated, Field: "authorization",
		Message: "authorization: " + wrong + ": send \"Authorization: Bearer pawl_…\""}
}

// Guard admits the calls of a node. Its methods may be called from any goroutine.
type Guard struct {
	auth  *auth.Authenticator
	log   *slog.Logger
	hosts listen.Hosts     // accepted in the Host header while no tokens are required
	Calls *admission.Slots // calls in progress
	Rates *rates

	trail       *trail.Trail
	misdirected refusalLog // requests for other hosts
	throttle    throttle   // of refusals of wrong tokens
}

// NewGuard returns a guard that admits whom an authenticator admits. Payload is the largest of a task, in bytes.
func NewGuard(a *auth.Authenticator, hosts listen.Hosts, payload int, log *slog.Logger, t *trail.Trail) *Guard {
	return &Guard{auth: a, trail: t, log: log, hosts: hosts, Calls: admission.NewSlots(maxCalls), Rates: newRates(payload)}
}

// admit authenticates and authorizes a call. It records the caller in c, and limits the context to what the token may see. The
// caller must call leave at the end of the call.
func (g *Guard) admit(ctx context.Context, c *callinfo.Call, n Need, s Credentials) (_ context.Context, leave func(), err error) {
	leave = func() {}
	if n.Reach == Public {
		return ctx, leave, nil
	}
	v, err := g.Authenticate(s)
	if err == nil {
		c.Principal = v
		err = n.Allows(v)
	}
	if err == nil {
		c.Namespace, err = g.namespace(v, s)
	}
	if err != nil {
		g.refused(ctx, c, err, len(s.tokens) > 0)
		return ctx, leave, err
	}
	c.Began = g.auth.BeganByCopy(c.Namespace)
	if n.countsAsRequest(v) {
		if err := g.Rates.Take(c.Namespace, g.auth.Quotas(c.Namespace), 1, 0); err != nil {
			return ctx, leave, err
		}
	}
	if ok, own := g.Calls.TryAcquire(c.Namespace); !ok {
		return ctx, leave, tooManyCalls(g.Calls, own)
	}
	leave = func() { g.Calls.Release(c.Namespace) }
	ctx = task.WithScope(ctx, v.Scope())
	if n.Lasts { // also while no token is required: that may change
		var gone func()
		ctx, gone = g.auth.Track(ctx, v.Principal, v.Presented)
		leave = func() { gone(); g.Calls.Release(c.Namespace) }
	}
	return ctx, leave, nil
}

// AdmitFrame admits a frame of a stream whose caller was admitted with the stream. The caller must call leave at the frame's end.
func (g *Guard) AdmitFrame(c *callinfo.Call) (leave func(), err error) {
	if err := g.Rates.Take(c.Namespace, g.auth.Quotas(c.Namespace), 1, 0); err != nil {
		return nil, err
	}
	if ok, own := g.Calls.TryAcquire(c.Namespace); !ok {
		return nil, tooManyCalls(g.Calls, own)
	}
	c.Principal.Use(time.Now())
	return func() { g.Calls.Release(c.Namespace) }, nil
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

// Authenticate identifies the caller. A token takes precedence over a certificate: the token was chosen for this call, while a
// certificate is presented with every call.
func (g *Guard) Authenticate(s Credentials) (callinfo.Principal, error) {
	if !g.auth.TokensRequired() {
		return callinfo.Principal{Principal: auth.Anonymous}, nil
	}
	token, err := s.token()
	if err != nil {
		return callinfo.Principal{}, err
	}
	if len(s.tokens) == 0 && s.certificate != nil {
		v, err := g.auth.AdmitCertificate(s.certificate)
		return callinfo.Principal{Principal: v, Presented: s.certificate}, err
	}
	v, err := g.auth.Admit(token)
	return callinfo.Principal{Principal: v}, err
}

// Allows returns an error unless the principal's roles and the reach of its token suffice for a call.
func (n Need) Allows(v callinfo.Principal) error {
	switch {
	case n.Reach == 0:
		return callinfo.Denied("no role allows this call: it is not in the access table")
	case n.Roles != 0 && !v.Roles.HasAny(n.Roles):
		return callinfo.Denied("token %q has the role %s, and this call needs %s", v.Name, v.Roles, strings.Join(n.Roles.Names(), " or "))
	case n.Reach >= OfNamespace && !v.Scope().All():
		return callinfo.Denied("token %q is limited to the queues %s, and this call concerns more than queues", v.Name,
			strings.Join(v.Queues, ", "))
	case n.Reach == OfCluster && !v.InAll():
		return callinfo.Denied("token %q is limited to namespace %q, and this call concerns the whole cluster", v.Name, v.Namespace)
	}
	return nil
}

// namespace returns the namespace of the call: the token's, or the requested one, even if the caller is refused there.
func (g *Guard) namespace(v callinfo.Principal, s Credentials) (string, error) {
	asked, err := callinfo.OnlyOne("namespace", headerNamespace, s.namespaces)
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
		return asked, callinfo.Denied("token %q is limited to namespace %q", v.Name, v.Namespace)
	}
	return asked, g.auth.CheckNamespace(asked)
}

// refusalLog keeps refused requests from flooding the log.
type refusalLog struct {
	mu     sync.Mutex
	logged time.Time
	passed int // since then
}

// refusalLogInterval is the minimum time between two log lines about refused requests.
const refusalLogInterval = time.Second

// refused records that a caller was refused because of its credentials or its rights. If it sent a wrong token, its refusal may be
// delayed. Other errors, such as a namespace that does not exist, are no refusals.
func (g *Guard) refused(ctx context.Context, c *callinfo.Call, err error, shown bool) {
	e, ok := task.AsError(err)
	switch {
	case !ok || e.Code != task.CodeUnauthenticated && e.Code != task.CodePermissionDenied && e.Field != "authorization":
		return
	case e.Code == task.CodePermissionDenied:
		g.auth.Denied()
	}
	_, address := callinfo.Source(ctx, c)
	g.auth.NoteAddress(address)
	c.RecordRefusal(g.trail, e)
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

// NeedOfRoute returns what a route requires of its caller.
func NeedOfRoute(r *rest.Route) Need {
	if r.RPC != "" {
		return RPCNeeds()[r.RPC]
	}
	if n, ok := OwnRoutes[r.String()]; ok {
		return n
	}
	if slices.Contains(PublicRoutes, r.String()) {
		return Need{Reach: Public}
	}
	return Need{}
}

// NeedOfRPC returns what an rpc, given by its full name, requires of its caller.
func NeedOfRPC(method string) Need {
	if ours, ok := strings.CutPrefix(method, APIPackage); ok {
		return RPCNeeds()[ours]
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if n, ok := ForeignServices[service]; ok {
		return n
	}
	if slices.Contains(PublicServices, service) {
		return Need{Reach: Public}
	}
	return Need{}
}

// APIPackage precedes the names of our own rpcs.
const APIPackage = "/pawl.v1."

// RPCName returns the name under which a method is counted: Service/Method.
func RPCName(full string) string {
	if ours, ok := strings.CutPrefix(full, APIPackage); ok {
		return ours
	}
	return strings.TrimPrefix(full, "/")
}

// Slowed returns how many refusals of wrong tokens were delayed since the start.
func (g *Guard) Slowed() uint64 { return g.throttle.slowed.Load() }
