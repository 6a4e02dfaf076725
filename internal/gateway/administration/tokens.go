package administration

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// AccessService implements AccessService.
type AccessService struct {
	pawlv1.UnimplementedAccessServiceServer
	Auth    *auth.Authenticator
	Verbs   verb.Runner
	Cluster fanout.Cluster
	Limits  task.Limits
	Bounds  []Bound // of requests
	Log     *slog.Logger
}

// WhoAmI describes what the caller's token allows.
func (g *AccessService) WhoAmI(ctx context.Context, _ *pawlv1.WhoAmIRequest) (*pawlv1.WhoAmIResponse, error) {
	c := callinfo.Of(ctx)
	v := c.Principal
	return &pawlv1.WhoAmIResponse{TokenRequired: g.Auth.TokensRequired(), Name: v.Name, Roles: v.Roles.Full().Names(),
		Namespace: c.Namespace, AllNamespaces: v.InAll(), Queues: v.Queues, ExpiresAt: apiproto.WallProto(v.ExpiresAt()),
		Certificate: v.Certificate()}, nil
}

// ListTokens returns a page of the tokens that the caller's rights cover.
func (g *AccessService) ListTokens(ctx context.Context, r *pawlv1.ListTokensRequest) (*pawlv1.ListTokensResponse, error) {
	n, after, err := apiproto.PageOf(r, apiproto.TokenCursor)
	if err != nil {
		return nil, err
	}
	all, err := g.visible(ctx, r.GetAllNamespaces())
	if err == nil {
		all, err = likeNamed(all, "token", r.GetPattern(), g.Limits, func(t auth.Token) string { return t.Name })
	}
	if err != nil {
		return nil, err
	}
	items, next := pageAfter(all, string(after), n, placeOfToken)
	out := &pawlv1.ListTokensResponse{Items: make([]*pawlv1.Token, len(items)), NextCursor: apiproto.NextCursor(apiproto.TokenCursor, next)}
	for i := range items {
		out.Items[i] = tokenProto(&items[i])
	}
	return out, nil
}

// visible returns the tokens that the caller may know of: of all namespaces, or only those of the call's namespace and those for
// all namespaces.
func (g *AccessService) visible(ctx context.Context, inAll bool) ([]auth.Token, error) {
	c := callinfo.Of(ctx)
	all, err := tokens.List.Call(ctx, g.Verbs, c.Principal.Rights)
	if !inAll {
		all = slices.DeleteFunc(all, func(t auth.Token) bool { return t.Namespace != c.Namespace && !t.InAll() })
	}
	return all, err
}

// likeNamed returns the items whose names match a pattern; "": all.
func likeNamed[T any](all []T, of, pattern string, l task.Limits, nameOf func(T) string) ([]T, error) {
	if pattern == "" {
		return all, nil
	}
	if err := task.CheckPattern("pattern", of, pattern, l); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(t T) bool { return !task.Matches(pattern, nameOf(t)) }), nil
}

func placeOfToken(t auth.Token) string { return t.Namespace + "\x00" + t.Name }

// pageAfter returns up to n items of a sorted list after a place, and the place where the next page begins; "": it is the last.
func pageAfter[T any](all []T, after string, n int, placeOf func(T) string) (page []T, next string) {
	from := 0
	if after != "" {
		from, _ = slices.BinarySearchFunc(all, after, func(t T, at string) int {
			if placeOf(t) <= at {
				return -1
			}
			return 1
		})
	}
	if page = all[from:]; len(page) > n {
		page = page[:n]
		next = placeOf(page[n-1])
	}
	return page, next
}

// GetToken returns one token.
func (g *AccessService) GetToken(ctx context.Context, r *pawlv1.GetTokenRequest) (*pawlv1.GetTokenResponse, error) {
	of, err := nameOf(ctx, r)
	if err != nil {
		return nil, err
	}
	all, err := g.visible(ctx, true)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].ID() == of {
			return &pawlv1.GetTokenResponse{Token: tokenProto(&all[i])}, nil
		}
	}
	return nil, task.NotFound("token", of.Name)
}

// named is what requests about one token have in common.
type named interface {
	GetName() string
	GetAllNamespaces() bool
}

// nameOf returns the token that a request is about. Its namespace is the call's, so that it comes from the credential.
func nameOf(ctx context.Context, r named) (auth.TokenName, error) {
	of := auth.TokenName{Namespace: callinfo.Namespace(ctx), Name: r.GetName()}
	if r.GetAllNamespaces() {
		of.Namespace = auth.AllNamespaces
	}
	return of, auth.CheckName(of.Name)
}

// again sets the request id of a call that sets a token's secret.
func again(c *tokens.Call, id string) (err error) {
	if c.Request, err = apiproto.OptionalID("request_id", id); id != "" {
		c.Asked = time.Now()
	}
	return err
}

// tokenCall decodes what requests that change a token have in common.
func tokenCall(ctx context.Context, r named) (c tokens.Call, err error) {
	of, err := nameOf(ctx, r)
	if err != nil {
		return c, err
	}
	c.By, c.Token.Name, c.Token.Namespace = callinfo.Of(ctx).Principal.Rights, of.Name, of.Namespace
	c.Author, err = callinfo.Author(ctx, "")
	return c, err
}

// lifeOf returns the lifetime of a token; 0: unlimited, which must be requested explicitly.
func lifeOf(in *durationpb.Duration, never bool) (time.Duration, error) {
	life, err := apiproto.SpanOf("expires_in", in)
	switch {
	case err != nil:
		return 0, err
	case never && in != nil:
		return 0, task.Invalid("never_expires", "is given together with expires_in: only one of them is allowed")
	case never:
		return 0, nil
	case in == nil:
		return auth.DefaultLife, nil
	case life < time.Second || life > auth.MaxLife:
		return 0, task.Invalid("expires_in", "%v is not between 1s and %v (10 years)", life, auth.MaxLife)
	}
	return life, nil
}

// AddToken creates a token within the rights of its creator.
func (g *AccessService) AddToken(ctx context.Context, r *pawlv1.AddTokenRequest) (*pawlv1.AddTokenResponse, error) {
	c, err := tokenCall(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := again(&c, r.GetRequestId()); err != nil {
		return nil, err
	}
	if c.Life, err = lifeOf(r.GetExpiresIn(), r.GetNeverExpires() || r.GetCertificate() != "" && r.GetExpiresIn() == nil); err != nil {
		return nil, err
	}
	t := &c.Token
	if t.Roles, err = auth.ParseRoles("roles", r.GetRoles()); err != nil {
		return nil, err
	}
	if t.Queues = r.GetQueues(); len(t.Queues) == 0 { // such as a list that was not filled
		return nil, task.Invalid("queues", "is required: patterns of queues, or * for all queues")
	}
	if err := t.Check(g.Limits); err != nil {
		return nil, err
	}
	if slices.Contains(t.Queues, "*") {
		t.Queues = nil
	}
	if !c.By.Covers(t.Rights) {
		return nil, checkWithin(callinfo.Of(ctx).Principal, t.Rights)
	}
	if t.SQS = r.GetSqs(); t.SQS && r.GetCertificate() != "" {
		return nil, task.Invalid("sqs", "is given together with certificate: an access key belongs to a token with a secret")
	}
	secret, err := g.proofOf(ctx, t, r.GetCertificate())
	if err != nil {
		return nil, err
	}
	done, err := tokens.Add.Call(ctx, g.Verbs, c)
	if err != nil {
		return nil, err
	}
	made, unconfirmed := done.Token, done.Unconfirmed
	g.Log.Info("token added", "token", made.Name, "namespace", made.Namespace, "roles", made.Roles.String(),
		"certificate", made.Certificate, "unconfirmed", unconfirmed, "by", c.Author)
	return &pawlv1.AddTokenResponse{Token: tokenProto(&made), Secret: secret, UnconfirmedNodes: unconfirmed,
		SecretAccessKey: accessKeyOf(&made).Secret}, nil
}

// proofOf sets how callers prove that they are a new token: by a secret, or by a certificate's name. Which certificates exist
// concerns the cluster: otherwise an administrator of one namespace could take over another's certificate, whose calls would then
// go to this namespace.
func (g *AccessService) proofOf(ctx context.Context, t *auth.Token, certificate string) (secret string, err error) {
	if certificate == "" {
		secret = bearer.New()
		t.Hash = auth.HashOf(secret)
		return secret, nil
	}
	if err := auth.CheckCertificate("certificate", certificate); err != nil {
		return "", err
	}
	if v := callinfo.Of(ctx).Principal; !v.InAll() || !v.Scope().All() {
		return "", callinfo.Denied("token %q is limited to a namespace or to queues, and can't make a token for a certificate", v.Name)
	}
	t.Certificate, t.Hash = certificate, auth.HashOfCertificate(certificate)
	return "", nil
}

// checkWithin refuses a token with more rights than its creator.
func checkWithin(v callinfo.Principal, r auth.Rights) error {
	switch {
	case !v.InAll() && r.Namespace != v.Namespace:
		return callinfo.Denied("token %q is limited to namespace %q, and can't make one that is not", v.Name, v.Namespace)
	case !v.Scope().Covers(r.Scope()):
		return callinfo.Denied("token %q is limited to the queues %s, and can't make one that sees others", v.Name,
			strings.Join(v.Queues, ", "))
	}
	return callinfo.Denied("token %q has the role %s, and can't make one that has %s", v.Name, v.Roles, r.Roles)
}

// overlapOf returns how long the previous secret stays valid after a rotation.
func overlapOf(in *durationpb.Duration) (time.Duration, error) {
	overlap, err := apiproto.SpanOf("overlap", in)
	if in == nil {
		overlap = auth.DefaultOverlap
	}
	if err == nil && (overlap < 0 || overlap > auth.MaxOverlap) {
		err = task.Invalid("overlap", "%v is not between 0s and %v (30 days)", overlap, auth.MaxOverlap)
	}
	return overlap, err
}

// RotateToken replaces the secret of a token.
func (g *AccessService) RotateToken(ctx context.Context, r *pawlv1.RotateTokenRequest) (*pawlv1.RotateTokenResponse, error) {
	c, err := tokenCall(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := again(&c, r.GetRequestId()); err != nil {
		return nil, err
	}
	if c.Life, err = lifeOf(r.GetExpiresIn(), r.GetNeverExpires()); err != nil {
		return nil, err
	}
	if c.Overlap, err = overlapOf(r.GetOverlap()); err != nil {
		return nil, err
	}
	secret := bearer.New()
	c.Token.Hash = auth.HashOf(secret)
	done, err := tokens.Rotate.Call(ctx, g.Verbs, c)
	if err != nil {
		return nil, err
	}
	now, unconfirmed := done.Token, done.Unconfirmed
	g.Log.Info("token rotated", "token", now.Name, "namespace", now.Namespace, "unconfirmed", unconfirmed, "by", c.Author)
	return &pawlv1.RotateTokenResponse{Token: tokenProto(&now), Secret: secret, UnconfirmedNodes: unconfirmed,
		SecretAccessKey: accessKeyOf(&now).Secret}, nil
}

// RevokeToken revokes a token.
func (g *AccessService) RevokeToken(ctx context.Context, r *pawlv1.RevokeTokenRequest) (*pawlv1.RevokeTokenResponse, error) {
	c, err := tokenCall(ctx, r)
	if err != nil {
		return nil, err
	}
	done, err := tokens.Revoke.Call(ctx, g.Verbs, c)
	if err != nil {
		return nil, err
	}
	g.Log.Info("token revoked", "token", c.Token.Name, "namespace", c.Token.Namespace, "unconfirmed", done.Unconfirmed, "by", c.Author)
	return &pawlv1.RevokeTokenResponse{UnconfirmedNodes: done.Unconfirmed}, nil
}

// accessKeyOf returns the access key of a token that has one.
func accessKeyOf(t *auth.Token) (k auth.AccessKey) {
	if t.SQS {
		k = auth.AccessKeyOf(t.Hash)
	}
	return k
}

func tokenProto(t *auth.Token) *pawlv1.Token {
	return &pawlv1.Token{Name: t.Name, Namespace: t.Namespace, Roles: t.Roles.Names(), Queues: t.Queues, CreatedBy: t.CreatedBy,
		CreatedAt: apiproto.TimeProto(t.CreatedAt), ExpiresAt: apiproto.TimeProto(t.ExpiresAt), RotatedAt: apiproto.TimeProto(t.RotatedAt),
		OldUntil: apiproto.TimeProto(t.OldUntil), UsedAt: apiproto.TimeProto(t.UsedAt), Certificate: t.Certificate,
		AccessKeyId: accessKeyOf(t).ID}
}

// ListNamespaces returns a page of the namespaces that the caller may use.
func (g *AccessService) ListNamespaces(ctx context.Context, r *pawlv1.ListNamespacesRequest) (*pawlv1.ListNamespacesResponse, error) {
	n, after, err := apiproto.PageOf(r, apiproto.NamespaceCursor)
	if err != nil {
		return nil, err
	}
	nameOf := func(n namespaces.Info) string { return n.Name }
	all, err := g.usableNamespaces(ctx)
	if err == nil {
		all, err = likeNamed(all, "namespace", r.GetPattern(), g.Limits, nameOf)
	}
	if err != nil {
		return nil, err
	}
	items, next := pageAfter(all, string(after), n, nameOf)
	return &pawlv1.ListNamespacesResponse{Items: g.withUsage(ctx, items), NextCursor: apiproto.NextCursor(apiproto.NamespaceCursor, next)},
		nil
}

// usableNamespaces returns the namespaces that the caller may use.
func (g *AccessService) usableNamespaces(ctx context.Context) ([]namespaces.Info, error) {
	all, err := namespaces.List.Call(ctx, g.Verbs, verb.Nothing{})
	if v := callinfo.Of(ctx).Principal; !v.InAll() {
		all = slices.DeleteFunc(all, func(n namespaces.Info) bool { return n.Name != v.Namespace })
	}
	return all, err
}

// AddNamespace creates a namespace.
func (g *AccessService) AddNamespace(ctx context.Context, r *pawlv1.AddNamespaceRequest) (*pawlv1.AddNamespaceResponse, error) {
	quotas, err := quotasOf(r.GetQuotas())
	if err != nil {
		return nil, err
	}
	unconfirmed, err := g.onNamespace(ctx, "namespace added", r.GetName(), "", func(by task.Author) ([]string, error) {
		return namespaces.Add.Call(ctx, g.Verbs, namespaces.Call{By: by, Name: r.GetName(), Quotas: quotas})
	})
	return &pawlv1.AddNamespaceResponse{UnconfirmedNodes: unconfirmed}, err
}

// RemoveNamespace removes an empty namespace.
func (g *AccessService) RemoveNamespace(ctx context.Context, r *pawlv1.RemoveNamespaceRequest) (*pawlv1.RemoveNamespaceResponse, error) {
	unconfirmed, err := g.onNamespace(ctx, "namespace removed", r.GetName(), "", func(by task.Author) ([]string, error) {
		return namespaces.Remove.Call(ctx, g.Verbs, namespaces.Change{By: by, Name: r.GetName()})
	})
	return &pawlv1.RemoveNamespaceResponse{UnconfirmedNodes: unconfirmed}, err
}

func (g *AccessService) onNamespace(ctx context.Context, done, name, reason string, do func(by task.Author) ([]string, error)) ([]string,
	error) {
	if err := auth.CheckNamespace("name", name); err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, reason)
	if err != nil {
		return nil, err
	}
	unconfirmed, err := do(by)
	if err == nil {
		g.Log.Info(done, "namespace", name, "unconfirmed", unconfirmed, "by", by)
	}
	return unconfirmed, err
}
