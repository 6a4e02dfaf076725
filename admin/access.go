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

// Role is what a token is good for.
type Role string

// The roles. RoleOperate has RoleObserve with it, RoleAdmin has all.
const (
	RoleProduce Role = "produce" // enqueue
	RoleConsume Role = "consume" // claim, and settle what was claimed
	RoleObserve Role = "observe" // read
	RoleOperate Role = "operate" // cancel, retry, pause, purge, settings, schedules
	RoleAdmin   Role = "admin"   // tokens; with all namespaces also namespaces and the cluster
)

// NeverExpires is a life of tokens that has no end.
const NeverExpires time.Duration = -1

// AllNamespaces is the namespace of tokens that are good for all of them.
const AllNamespaces = "*"

// TokenSpec says what a token is to be good for. Its namespace is that of the client (pawl.DialOptions), unless it is good for all.
type TokenSpec struct {
	Name          string   // letters, digits and . _ - :, up to 64; the only one in its namespace
	Roles         []Role   // at least one
	Queues        []string // patterns: names in which * stands for any characters; nil: all queues
	AllNamespaces bool
	Life          time.Duration // 0: 90 days, with Certificate never; at most 10 years; NeverExpires
	// Certificate makes a token without a secret, for who shows a client certificate of that name: "uri:spiffe://example.com/billing",
	// "dns:billing.example.com", "email:ops@example.com" or "subject:CN=billing,O=Example", a subject whole, as in RFC 2253. Only one token may
	// have it, and only an admin of all namespaces and queues may make it.
	Certificate string
	// SQS gives the token an access key, too, with which clients of Amazon SQS sign their calls. Not with Certificate.
	SQS bool
	// RequestID is a UUID that a call which is made again after a lost answer has again, within 10 minutes: it gets another secret, and the
	// one that was lost ends. "": one of its own, so that the client repeats the call by itself.
	RequestID string
}

// TokenName names a token: that of the client's namespace, or that of all namespaces.
type TokenName struct {
	Name          string
	AllNamespaces bool
}

// Token is all that is kept of a token, but for its hash.
type Token struct {
	Name      string
	Namespace string // AllNamespaces: all
	Roles     []Role
	Queues    []string // nil: all
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	RotatedAt time.Time // zero: never
	OldUntil  time.Time // until when the secret before the last rotation is good
	UsedAt    time.Time // to the minute, and noted some minutes late; zero: not yet
	// Certificate is the name of the client certificate whose holder it is for; "": it has a secret.
	Certificate string
	AccessKeyID string // of clients of Amazon SQS; "": it has no access key
}

// NewToken is a token that was made or rotated. The secret is shown this once.
type NewToken struct {
	Token
	Secret string // for pawl.DialOptions; "" with Certificate
	// SecretAccessKey goes with AccessKeyID; "" without.
	SecretAccessKey string
	Unconfirmed     []string // nodes that have not said within a second that they know of it
}

// Rotation says how a token gets another secret.
type Rotation struct {
	Life    time.Duration  // from now on. 0: 90 days; at most 10 years; NeverExpires
	Overlap *time.Duration // how long the secret before is still good; nil: 24 h; at most 30 days
	// RequestID is as in TokenSpec. The secret before the rotation stays good, however often it is asked for.
	RequestID string
}

// Identity is what the client's token is good for.
type Identity struct {
	TokenRequired bool   // false: everybody may do everything, and there is no name
	Name          string // of the token
	Roles         []Role // with those that others bring along
	Namespace     string // of the client's calls
	AllNamespaces bool
	Queues        []string  // nil: all
	ExpiresAt     time.Time // zero: never
	Certificate   string    // the name of the client certificate by which the client is known; "": it sends a token
}

// WhoAmI tells what the client's token is good for.
func (a Access) WhoAmI(ctx context.Context) (*Identity, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).WhoAmI, &pawlv1.WhoAmIRequest{})
	if err != nil {
		return nil, fmt.Errorf("who am I: %w", err)
	}
	return &Identity{TokenRequired: p.GetTokenRequired(), Name: p.GetName(), Roles: rolesOf(p.GetRoles()), Namespace: p.GetNamespace(), AllNamespaces: p.GetAllNamespaces(),
		Queues: p.GetQueues(), ExpiresAt: convert.Time(p.GetExpiresAt()), Certificate: p.GetCertificate()}, nil
}

func rolesOf(names []string) (roles []Role) {
	for _, name := range names {
		roles = append(roles, Role(name))
	}
	return roles
}

// life gives the two fields by which the contract says how long a token lives.
func life(d time.Duration) (in *durationpb.Duration, never bool) {
	if d == NeverExpires {
		return nil, true
	}
	return convert.Duration(d), false
}

// requestID is the one that a call gives, or a new one.
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

// CreateToken makes a token. It can't do more than the client's own. A repeat after a lost answer has another secret, in place of the lost
// one.
func (a Access) CreateToken(ctx context.Context, t TokenSpec) (*NewToken, error) {
	request, err := requestID(t.RequestID)
	if err != nil {
		return nil, err
	}
	req := &pawlv1.AddTokenRequest{Name: t.Name, Queues: t.Queues, AllNamespaces: t.AllNamespaces, Certificate: t.Certificate, Sqs: t.SQS, RequestId: request}
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

// RotateToken gives a token another secret; the one before is good for a while, so that those who have it can be told. One that is for a
// certificate has none: ErrWrongState. A repeat after a lost answer has another secret, in place of the lost one.
func (a Access) RotateToken(ctx context.Context, of TokenName, r Rotation) (*NewToken, error) {
	request, err := requestID(r.RequestID)
	if err != nil {
		return nil, err
	}
	req := &pawlv1.RotateTokenRequest{Name: of.Name, AllNamespaces: of.AllNamespaces, RequestId: request}
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

// RevokeToken ends a token, and what goes on with it. Unconfirmed are the nodes that have not said within a second that they know of
// it: one that hears nothing for 10 s takes no token any more.
func (a Access) RevokeToken(ctx context.Context, of TokenName) (unconfirmed []string, err error) {
	p, err := operate(ctx, a.calls, false, pawlv1.NewAccessServiceClient(a.rpc).RevokeToken, &pawlv1.RevokeTokenRequest{Name: of.Name, AllNamespaces: of.AllNamespaces})
	if err != nil {
		return nil, fmt.Errorf("revoke token %q: %w", of.Name, err)
	}
	return p.GetUnconfirmedNodes(), nil
}

// GetToken gives one token, or ErrNotFound.
func (a Access) GetToken(ctx context.Context, of TokenName) (*Token, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).GetToken, &pawlv1.GetTokenRequest{Name: of.Name, AllNamespaces: of.AllNamespaces})
	if err != nil {
		return nil, fmt.Errorf("token %q: %w", of.Name, err)
	}
	return tokenInfoOf(p.GetToken()), nil
}

// TokenFilter selects tokens.
type TokenFilter struct {
	// AllNamespaces: those of all namespaces; else those of the client's and of none in particular.
	AllNamespaces bool
	Pattern       string // of their names, in which each * stands for any characters; "": all
}

// ListTokens goes over the tokens that the client's own covers, by namespace and name.
func (a Access) ListTokens(ctx context.Context, f TokenFilter) iter.Seq2[*Token, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Token], error) {
		return a.ListTokensPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListTokensPage gives one page of the tokens.
func (a Access) ListTokensPage(ctx context.Context, f TokenFilter, page pawltype.PageRequest) (pawltype.Page[*Token], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).ListTokens, &pawlv1.ListTokensRequest{AllNamespaces: f.AllNamespaces, Pattern: f.Pattern, Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Token]{}, fmt.Errorf("list tokens: %w", err)
	}
	return convert.Page(resp, tokenInfoOf), nil
}

func tokenInfoOf(p *pawlv1.Token) *Token {
	return &Token{Name: p.GetName(), Namespace: p.GetNamespace(), Roles: rolesOf(p.GetRoles()), Queues: p.GetQueues(), CreatedBy: p.GetCreatedBy(),
		CreatedAt: convert.Time(p.GetCreatedAt()), ExpiresAt: convert.Time(p.GetExpiresAt()), RotatedAt: convert.Time(p.GetRotatedAt()), OldUntil: convert.Time(p.GetOldUntil()),
		UsedAt: convert.Time(p.GetUsedAt()), Certificate: p.GetCertificate(), AccessKeyID: p.GetAccessKeyId()}
}
