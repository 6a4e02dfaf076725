package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Role is a set of calls that a token may make.
type Role string

// The roles. RoleOperate includes RoleObserve, and RoleAdmin includes all others.
const (
	RoleProduce Role = "produce" // enqueue
	RoleConsume Role = "consume" // claim, and settle what was claimed
	RoleObserve Role = "observe" // read
	RoleOperate Role = "operate" // cancel, retry, pause, purge, settings, schedules
	RoleAdmin   Role = "admin"   // tokens; if the token is valid for all namespaces, also namespaces and the cluster
)

// NeverExpires is the lifetime of a token that does not expire.
const NeverExpires time.Duration = -1

// AllNamespaces is the namespace of tokens that are valid in all namespaces.
const AllNamespaces = "*"

// TokenSpec describes a token to create. The token belongs to the client's namespace (pawl.DialOptions) unless AllNamespaces is set.
type TokenSpec struct {
	Name          string   // letters, digits and . _ - :, up to 64; unique in its namespace
	Roles         []Role   // at least one
	Queues        []string // patterns, at least one, in which * matches any characters; {"*"}: all queues
	AllNamespaces bool
	Life          time.Duration // at most 10 years, or NeverExpires; 0: 90 days, but NeverExpires with Certificate
	// Certificate makes a token without a secret, for callers that present a client certificate with this name:
	// "uri:spiffe://example.com/billing", "dns:billing.example.com", "email:ops@example.com" or
	// "subject:CN=billing,O=Example", the whole subject as in RFC 2253. A name can belong to one token only, and only an
	// admin of all namespaces and queues may create such a token.
	Certificate string
	// SQS also gives the token an access key, with which Amazon SQS clients sign their requests. It can't be combined with Certificate.
	SQS bool
	// RequestID is a UUID that identifies the call. To retry after a lost response, repeat the call with the same RequestID within 10 minutes:
	// it returns a new secret and invalidates the lost one. "": the client generates one, for its own retries.
	RequestID string
}

// TokenName identifies a token: one of the client's namespace, or one of all namespaces.
type TokenName struct {
	Name          string
	AllNamespaces bool
}

// Token is everything that is stored about a token except its hash.
type Token struct {
	Name      string
	Namespace string // AllNamespaces: all
	Roles     []Role
	Queues    []string // nil: all
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	RotatedAt time.Time // zero: never
	OldUntil  time.Time // until then, the secret from before the last rotation is still valid
	UsedAt    time.Time // to the minute, recorded some minutes late; zero: never
	// Certificate is the name of the client certificate that stands in for a secret; "": the token has a secret.
	Certificate string
	AccessKeyID string // for Amazon SQS clients; "": the token has no access key
}

// NewToken is a token that was just created or rotated. This is the only time its secret is shown.
type NewToken struct {
	Token
	Secret string // for pawl.DialOptions; "" with Certificate
	// SecretAccessKey belongs to AccessKeyID; "" if there is none.
	SecretAccessKey string
	Unconfirmed     []string // nodes that did not acknowledge it within a second
}

// Rotation describes how a token's secret is replaced.
type Rotation struct {
	Life    time.Duration  // from now on; at most 10 years, or NeverExpires; 0: 90 days
	Overlap *time.Duration // how long the old secret stays valid; nil: 24 h; at most 30 days
	// RequestID is as in TokenSpec. However often the call is repeated, the secret from before the rotation stays valid.
	RequestID string
}

// Identity describes the client's token and its rights.
type Identity struct {
	TokenRequired bool   // false: anyone may make any call, and there is no name
	Name          string // of the token
	Roles         []Role // including those that other roles include
	Namespace     string // of the client's calls
	AllNamespaces bool
	Queues        []string  // nil: all
	ExpiresAt     time.Time // zero: never
	Certificate   string    // the name of the client certificate that identifies the client; "": the client sends a token
}

// WhoAmI returns the client's identity and rights.
func (a Access) WhoAmI(ctx context.Context) (*Identity, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).WhoAmI, &pawlv1.WhoAmIRequest{})
	if err != nil {
		return nil, fmt.Errorf("who am I: %w", err)
	}
	return &Identity{TokenRequired: p.GetTokenRequired(), Name: p.GetName(), Roles: rolesOf(p.GetRoles()), Namespace: p.GetNamespace(),
			AllNamespaces: p.GetAllNamespaces(), Queues: p.GetQueues(), ExpiresAt: convert.Time(p.GetExpiresAt()), Certificate: p.GetCertificate()},
		nil
}

func rolesOf(names []string) (roles []Role) {
	for _, name := range names {
		roles = append(roles, Role(name))
	}
	return roles
}

// life returns a lifetime as the two fields of the API.
func life(d time.Duration) (in *durationpb.Duration, never bool) {
	if d == NeverExpires {
		return nil, true
	}
	return convert.Duration(d), false
}

// requestID returns the given id, or a new one if it is empty.
func requestID(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("request id: %w", err)
	}
	return id.String(), nil
}

// CreateToken creates a token. It can't have more rights than the client's own token. A retry after a lost response returns a new secret,
// which replaces the lost one.
func (a Access) CreateToken(ctx context.Context, t TokenSpec) (*NewToken, error) {
	request, err := requestID(t.RequestID)
	if err != nil {
		return nil, err
	}
	req := &pawlv1.AddTokenRequest{Name: t.Name, Queues: t.Queues, AllNamespaces: t.AllNamespaces, Certificate: convert.Text(t.Certificate),
		Sqs: t.SQS, RequestId: convert.Text(request)}
	for _, role := range t.Roles {
		req.Roles = append(req.Roles, string(role))
	}
	req.ExpiresIn, req.NeverExpires = life(t.Life)
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).AddToken, req)
	if err != nil {
		return nil, fmt.Errorf("add token %q: %w", t.Name, err)
	}
	return &NewToken{*tokenInfoOf(p.GetToken()), p.GetSecret(), p.GetSecretAccessKey(), p.GetUnconfirmedNodes()}, nil
}

// RotateToken replaces a token's secret. The old secret stays valid for a while, so that its users can switch. A token for a certificate
// has no secret: ErrWrongState. A retry after a lost response returns a new secret, which replaces the lost one.
func (a Access) RotateToken(ctx context.Context, of TokenName, r Rotation) (*NewToken, error) {
	request, err := requestID(r.RequestID)
	if err != nil {
		return nil, err
	}
	req := &pawlv1.RotateTokenRequest{Name: of.Name, AllNamespaces: of.AllNamespaces, RequestId: convert.Text(request)}
	req.ExpiresIn, req.NeverExpires = life(r.Life)
	if r.Overlap != nil {
		req.Overlap = durationpb.New(*r.Overlap)
	}
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).RotateToken, req)
	if err != nil {
		return nil, fmt.Errorf("rotate token %q: %w", of.Name, err)
	}
	return &NewToken{*tokenInfoOf(p.GetToken()), p.GetSecret(), p.GetSecretAccessKey(), p.GetUnconfirmedNodes()}, nil
}

// RevokeToken revokes a token and ends the streams and waiting calls that use it. unconfirmed lists the nodes that did not acknowledge it
// within a second; a node that hears nothing from the cluster for 10 s stops accepting tokens.
func (a Access) RevokeToken(ctx context.Context, of TokenName) (unconfirmed []string, err error) {
	p, err := operate(ctx, a.calls, false, pawlv1.NewAccessServiceClient(a.rpc).RevokeToken, &pawlv1.RevokeTokenRequest{Name: of.Name,
		AllNamespaces: of.AllNamespaces})
	if err != nil {
		return nil, fmt.Errorf("revoke token %q: %w", of.Name, err)
	}
	return p.GetUnconfirmedNodes(), nil
}

// GetToken returns a token, or ErrNotFound if there is none.
func (a Access) GetToken(ctx context.Context, of TokenName) (*Token, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).GetToken, &pawlv1.GetTokenRequest{Name: of.Name,
		AllNamespaces: of.AllNamespaces})
	if err != nil {
		return nil, fmt.Errorf("token %q: %w", of.Name, err)
	}
	return tokenInfoOf(p.GetToken()), nil
}

// TokenFilter selects tokens.
type TokenFilter struct {
	// AllNamespaces selects tokens of every namespace. Otherwise the list has those of the client's namespace and those that are valid in all.
	AllNamespaces bool
	Pattern       string // of names, in which * matches any characters; "": all
}

// ListTokens iterates over the tokens that the client's own token covers, by namespace and name.
func (a Access) ListTokens(ctx context.Context, f TokenFilter) iter.Seq2[*Token, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Token], error) {
		return a.ListTokensPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListTokensPage returns one page of tokens.
func (a Access) ListTokensPage(ctx context.Context, f TokenFilter, page pawltype.PageRequest) (pawltype.Page[*Token], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).ListTokens, &pawlv1.ListTokensRequest{
		AllNamespaces: f.AllNamespaces, Pattern: convert.Text(f.Pattern), Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Token]{}, fmt.Errorf("list tokens: %w", err)
	}
	return convert.Page(resp, tokenInfoOf), nil
}

func tokenInfoOf(p *pawlv1.Token) *Token {
	return &Token{Name: p.GetName(), Namespace: p.GetNamespace(), Roles: rolesOf(p.GetRoles()), Queues: p.GetQueues(),
		CreatedBy: p.GetCreatedBy(), CreatedAt: convert.Time(p.GetCreatedAt()), ExpiresAt: convert.Time(p.GetExpiresAt()),
		RotatedAt: convert.Time(p.GetRotatedAt()), OldUntil: convert.Time(p.GetOldUntil()), UsedAt: convert.Time(p.GetUsedAt()),
		Certificate: p.GetCertificate(), AccessKeyID: p.GetAccessKeyId()}
}
