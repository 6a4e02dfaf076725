package gateway

import (
	"net/http"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/task"
)

var accessRoutes = []route{
	{"GET", "/api/v1/me", restWhoAmI},
	{"GET", "/api/v1/tokens", restListTokens},
	{"POST", "/api/v1/tokens", restAddToken},
	{"GET", "/api/v1/tokens/{name}", restGetToken},
	{"DELETE", "/api/v1/tokens/{name}", restRevokeToken},
	{"POST", "/api/v1/tokens/{name}/rotate", restRotateToken},
	{"GET", "/api/v1/namespaces", restListNamespaces},
	{"POST", "/api/v1/namespaces", restAddNamespace},
	{"DELETE", "/api/v1/namespaces/{name}", restRemoveNamespace},
	{"GET", "/api/v1/namespaces/{name}", restGetNamespace},
	{"PATCH", "/api/v1/namespaces/{name}", restSetQuotas},
	{"GET", "/api/v1/limits", restGetLimits},
}

func (x *exchange) keepers() keepers { return keepers{Gateway: x.Gateway} }

func restWhoAmI(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	me, err := x.keepers().WhoAmI(x.ctx, &pawlv1.WhoAmIRequest{})
	if err != nil {
		return err
	}
	x.open('{')
	x.boolean("token_required", me.GetTokenRequired())
	x.opt("name", me.GetName())
	x.strs("roles", me.GetRoles())
	x.str("namespace", me.GetNamespace())
	x.boolean("all_namespaces", me.GetAllNamespaces())
	x.strs("queues", me.GetQueues())
	x.time("expires_at", me.GetExpiresAt())
	x.close('}')
	return nil
}

// inAll reads the parameter all_namespaces.
func inAll(said string) (bool, error) {
	switch said {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, task.Invalid("all_namespaces", "%q is neither true nor false", task.Cut(said, 64))
}

func restListTokens(x *exchange) error {
	q, err := x.query("limit", "cursor", "all_namespaces")
	if err != nil {
		return err
	}
	all, err := inAll(q.Get("all_namespaces"))
	if err != nil {
		return err
	}
	limit, err := limitText(q)
	if err != nil {
		return err
	}
	got, err := x.keepers().ListTokens(x.ctx, &pawlv1.ListTokensRequest{AllNamespaces: all, Limit: limit, Cursor: q.Get("cursor")})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), got.GetNextCursor(), x.token)
	return nil
}

// tokenOf reads which token is meant, of a call without a body.
func (x *exchange) tokenOf() (name string, all bool, err error) {
	q, err := x.query("all_namespaces")
	if err == nil {
		all, err = inAll(q.Get("all_namespaces"))
	}
	return x.r.PathValue("name"), all, err
}

func restGetToken(x *exchange) error {
	name, all, err := x.tokenOf()
	if err != nil {
		return err
	}
	got, err := x.keepers().GetToken(x.ctx, &pawlv1.GetTokenRequest{Name: name, AllNamespaces: all})
	if err != nil {
		return err
	}
	x.open('{')
	x.token(got.GetToken())
	x.close('}')
	return nil
}

// life reads the fields that say how long a token lives.
func (r *jsonReader) life(name string, in **durationpb.Duration, never *bool) (known bool, err error) {
	switch name {
	case "expires_in":
		*in, err = r.span(name)
	case "never_expires":
		err = r.boolean(never, name)
	default:
		return false, nil
	}
	return true, err
}

func restAddToken(x *exchange) error {
	req := &pawlv1.AddTokenRequest{}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "name":
			req.Name, err = r.str(name)
		case "roles":
			req.Roles, err = r.strs(name, len(auth.RoleNames))
		case "queues":
			req.Queues, err = r.strs(name, task.MaxPatterns)
		case "all_namespaces":
			err = r.boolean(&req.AllNamespaces, name)
		default:
			var known bool
			if known, err = r.life(name, &req.ExpiresIn, &req.NeverExpires); !known {
				return unknown("", name)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.keepers().AddToken(x.ctx, req)
	if err != nil {
		return err
	}
	x.status = http.StatusCreated
	x.newToken(got.GetToken(), got.GetSecret(), got.GetUnconfirmedNodes())
	return nil
}

func restRotateToken(x *exchange) error {
	req := &pawlv1.RotateTokenRequest{Name: x.r.PathValue("name")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "all_namespaces":
			err = r.boolean(&req.AllNamespaces, name)
		case "overlap":
			req.Overlap, err = r.span(name)
		default:
			var known bool
			if known, err = r.life(name, &req.ExpiresIn, &req.NeverExpires); !known {
				return unknown("", name)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.keepers().RotateToken(x.ctx, req)
	if err != nil {
		return err
	}
	x.newToken(got.GetToken(), got.GetSecret(), got.GetUnconfirmedNodes())
	return nil
}

// newToken is the only answer that has a secret. Nothing between may keep it.
func (x *exchange) newToken(t *pawlv1.Token, secret string, behind []string) {
	x.w.Header().Set("Cache-Control", "no-store")
	x.open('{')
	x.within("token", '{')
	x.token(t)
	x.close('}')
	x.str("secret", secret)
	x.strs("unconfirmed_nodes", behind)
	x.close('}')
}

func restRevokeToken(x *exchange) error {
	name, all, err := x.tokenOf()
	if err != nil {
		return err
	}
	got, err := x.keepers().RevokeToken(x.ctx, &pawlv1.RevokeTokenRequest{Name: name, AllNamespaces: all})
	return x.confirmed(got.GetUnconfirmedNodes(), err)
}

func (x *exchange) confirmed(behind []string, err error) error {
	if err != nil {
		return err
	}
	x.open('{')
	x.strs("unconfirmed_nodes", behind)
	x.close('}')
	return nil
}

func (x *exchange) token(t *pawlv1.Token) {
	x.str("name", t.GetName())
	x.str("namespace", t.GetNamespace())
	x.strs("roles", t.GetRoles())
	x.strs("queues", t.GetQueues())
	x.opt("created_by", t.GetCreatedBy())
	x.time("created_at", t.GetCreatedAt())
	x.time("expires_at", t.GetExpiresAt())
	x.time("rotated_at", t.GetRotatedAt())
	x.time("old_until", t.GetOldUntil())
	x.time("used_at", t.GetUsedAt())
}
