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

// TokenName identifies a token: one of the client's namespace, or one of all namespaces.
type TokenName struct {
	Name          string
	AllNamespaces bool
}

// WhoAmI returns the client's identity and rights.
func (a Access) WhoAmI(ctx context.Context) (*Identity, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).WhoAmI, &pawlv1.WhoAmIRequest{})
	return answer(identityOf, p, err, "who am I")
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
	t.RequestID = request
	req := t.message()
	req.ExpiresIn, req.NeverExpires = life(t.Life)
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).AddToken, req)
	return answer(newTokenOf, p, err, "add token %q", t.Name)
}

// RotateToken replaces a token's secret. The old secret stays valid for a while, so that its users can switch. A token for a certificate
// has no secret: ErrWrongState. A retry after a lost response returns a new secret, which replaces the lost one.
func (a Access) RotateToken(ctx context.Context, of TokenName, r Rotation) (*NewToken, error) {
	request, err := requestID(r.RequestID)
	if err != nil {
		return nil, err
	}
	r.RequestID = request
	req := r.message()
	req.Name, req.AllNamespaces = of.Name, of.AllNamespaces
	req.ExpiresIn, req.NeverExpires = life(r.Life)
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).RotateToken, req)
	return answer(newTokenOf, p, err, "rotate token %q", of.Name)
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
	return answer(tokenOf, p.GetToken(), err, "token %q", of.Name)
}

// ListTokens iterates over the tokens that the client's own token covers, by namespace and name.
func (a Access) ListTokens(ctx context.Context, f TokenFilter) iter.Seq2[*Token, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Token], error) {
		return a.ListTokensPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListTokensPage returns one page of tokens.
func (a Access) ListTokensPage(ctx context.Context, f TokenFilter, page pawltype.PageRequest) (pawltype.Page[*Token], error) {
	req := f.message()
	req.Limit, req.Cursor = convert.Int32(page.Limit), page.Cursor
	resp, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).ListTokens, req)
	return pageOf(tokenOf, resp, err, "list tokens")
}
