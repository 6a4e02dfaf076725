package rest

import (
	"net/http"
	"net/url"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

var accessRoutes = []Route{
	{"GET", "/api/v1/me", "AccessService/WhoAmI", whoAmI},
	{"GET", "/api/v1/tokens", "AccessService/ListTokens", listTokens},
	{"POST", "/api/v1/tokens", "AccessService/AddToken", addToken},
	{"GET", "/api/v1/tokens/{name}", "AccessService/GetToken", getToken},
	{"DELETE", "/api/v1/tokens/{name}", "AccessService/RevokeToken", revokeToken},
	{"POST", "/api/v1/tokens/{name}/rotate", "AccessService/RotateToken", rotateToken},
	{"GET", "/api/v1/namespaces", "AccessService/ListNamespaces", listNamespaces},
	{"POST", "/api/v1/namespaces", "AccessService/AddNamespace", addNamespace},
	{"DELETE", "/api/v1/namespaces/{name}", "AccessService/RemoveNamespace", removeNamespace},
	{"GET", "/api/v1/namespaces/{name}", "AccessService/GetNamespace", getNamespace},
	{"PATCH", "/api/v1/namespaces/{name}", "AccessService/SetQuotas", setQuotas},
	{"GET", "/api/v1/limits", "AccessService/GetLimits", getLimits},
}

func whoAmI(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	me, err := x.API.Access.WhoAmI(x.ctx, &pawlv1.WhoAmIRequest{})
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
	x.opt("certificate", me.GetCertificate())
	x.close('}')
	return nil
}

// flagText reads a parameter that is true or false.
func flagText(q url.Values, name string) (bool, error) {
	switch said := q.Get(name); said {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, task.Invalid(name, "%q is neither true nor false", task.Cut(said, 64))
	}
}

func listTokens(x *exchange) error {
	q, err := x.query("limit", "cursor", "all_namespaces", "pattern")
	if err != nil {
		return err
	}
	all, err := flagText(q, "all_namespaces")
	if err != nil {
		return err
	}
	limit, err := limitText(q)
	if err != nil {
		return err
	}
	got, err := x.API.Access.ListTokens(x.ctx, &pawlv1.ListTokensRequest{AllNamespaces: all, Limit: limit, Cursor: q.Get("cursor"), Pattern: q.Get("pattern")})
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
		all, err = flagText(q, "all_namespaces")
	}
	return x.r.PathValue("name"), all, err
}

func getToken(x *exchange) error {
	name, all, err := x.tokenOf()
	if err != nil {
		return err
	}
	got, err := x.API.Access.GetToken(x.ctx, &pawlv1.GetTokenRequest{Name: name, AllNamespaces: all})
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

func addToken(x *exchange) error {
	req := &pawlv1.AddTokenRequest{}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "name":
			req.Name, err = r.str(name)
		case "roles":
			req.Roles, err = r.strs(name, maxListed)
		case "queues":
			req.Queues, err = r.strs(name, task.MaxPatterns)
		case "all_namespaces":
			err = r.boolean(&req.AllNamespaces, name)
		case "certificate":
			req.Certificate, err = r.str(name)
		case "sqs":
			err = r.boolean(&req.Sqs, name)
		case "request_id":
			req.RequestId, err = r.str(name)
		default:
			var known bool
			if known, err = r.life(name, &req.ExpiresIn, &req.NeverExpires); !known {
				return unknown("", name)
			}
		}
		return err
	})
	if err == nil {
		err = x.fromHeader(&req.RequestId, headerRequestID, "request_id")
	}
	if err != nil {
		return err
	}
	got, err := x.API.Access.AddToken(x.ctx, req)
	if err != nil {
		return err
	}
	x.status = http.StatusCreated
	x.newToken(got.GetToken(), got.GetSecret(), got.GetSecretAccessKey(), got.GetUnconfirmedNodes())
	return nil
}

func rotateToken(x *exchange) error {
	req := &pawlv1.RotateTokenRequest{Name: x.r.PathValue("name")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "all_namespaces":
			err = r.boolean(&req.AllNamespaces, name)
		case "overlap":
			req.Overlap, err = r.span(name)
		case "request_id":
			req.RequestId, err = r.str(name)
		default:
			var known bool
			if known, err = r.life(name, &req.ExpiresIn, &req.NeverExpires); !known {
				return unknown("", name)
			}
		}
		return err
	})
	if err == nil {
		err = x.fromHeader(&req.RequestId, headerRequestID, "request_id")
	}
	if err != nil {
		return err
	}
	got, err := x.API.Access.RotateToken(x.ctx, req)
	if err != nil {
		return err
	}
	x.newToken(got.GetToken(), got.GetSecret(), got.GetSecretAccessKey(), got.GetUnconfirmedNodes())
	return nil
}

// newToken is the only answer that has a secret. Nothing between may keep it.
func (x *exchange) newToken(t *pawlv1.Token, secret, secretAccessKey string, behind []string) {
	x.w.Header().Set("Cache-Control", "no-store")
	x.open('{')
	x.within("token", '{')
	x.token(t)
	x.close('}')
	x.opt("secret", secret)
	x.opt("secret_access_key", secretAccessKey)
	x.strs("unconfirmed_nodes", behind)
	x.close('}')
}

func revokeToken(x *exchange) error {
	name, all, err := x.tokenOf()
	if err != nil {
		return err
	}
	got, err := x.API.Access.RevokeToken(x.ctx, &pawlv1.RevokeTokenRequest{Name: name, AllNamespaces: all})
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
	x.opt("certificate", t.GetCertificate())
	x.opt("access_key_id", t.GetAccessKeyId())
	x.opt("created_by", t.GetCreatedBy())
	x.time("created_at", t.GetCreatedAt())
	x.time("expires_at", t.GetExpiresAt())
	x.time("rotated_at", t.GetRotatedAt())
	x.time("old_until", t.GetOldUntil())
	x.time("used_at", t.GetUsedAt())
}
