package rest

import (
	"context"
	"net/http"
	"path"
	"strings"

	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/task"
)

// Config holds what REST needs.
type Config struct {
	// Register registers the API's services. REST calls their methods as gRPC's server would.
	Register func(grpc.ServiceRegistrar)
	// Events is EventService.WatchEvents: it calls open once the request has been validated, and send for each frame.
	Events func(ctx context.Context, r *pawlv1.WatchEventsRequest, open func(), send func(*pawlv1.WatchEventsResponse) error) error
	// Call runs every request.
	Call Call
	// Ready reports whether the node is ready for calls, with details for callers who may see them.
	Ready func(context.Context) (Readiness, error)
	Batch int // tasks that one request may enqueue

	// Large is the memory for large bodies, Extra that for bodies which take more than their length suggests. gRPC's messages share
	// both.
	Large, Extra *admission.MemoryPool
	// Sends is called with the size of an answer once it is encoded, in the context of its call.
	Sends func(ctx context.Context, bytes int)
	// Namespace returns the namespace of a call.
	Namespace func(context.Context) string

	// Misdirected refuses a request for another host, before anything else is checked; nil: all hosts are accepted.
	Misdirected func(r *http.Request) error

	// Pages serves everything that is not the API. Nil: not found.
	Pages http.Handler
	// Metrics serves /metrics. Nil: not found.
	Metrics http.Handler
	// BasePath is an optional prefix of paths, such as "/pawl"; "": none.
	BasePath string
}

// Readiness is the answer to whether a node should get calls.
type Readiness struct {
	OK     bool
	Status string              // "ok", or why not
	Shards []*pawlv1.ShardInfo // nil: the caller may not see them
}

// Call runs a request as every call of gRPC and REST is run: it admits the caller or not, calls handle with a context limited to
// what the caller may see, and records the outcome. A panic in handle ends this call only.
type Call func(r *http.Request, on *Route, handle func(context.Context) error) Outcome

// Outcome is the outcome of a call.
type Outcome struct {
	Refusal *task.Error // nil: it succeeded
	// Shard, Index and Time say which state of which shards the answer reflects; "": no shard was asked.
	Shard, Index, Time string
}

// server serves REST.
type server struct {
	Config
	methods methods
	guard   *http.CrossOriginProtection
}

// New returns a handler for REST, and for what Pages and Metrics serve.
func New(cfg Config) http.Handler {
	mux := http.NewServeMux()
	f := &server{Config: cfg, methods: methods{}, guard: http.NewCrossOriginProtection()}
	cfg.Register(f.methods)
	for _, rt := range Routes() {
		mux.HandleFunc(rt.String(), func(w http.ResponseWriter, r *http.Request) { f.exchange(w, r, rt) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allowed := methodsOf(mux, r); len(allowed) > 0 {
			for _, m := range allowed {
				w.Header().Add("Allow", m)
			}
			f.exchange(w, r, &Route{handle: wrongMethod})
			return
		}
		if cfg.Pages != nil && !isAPI(r.URL.Path) {
			cfg.Pages.ServeHTTP(w, r)
			return
		}
		f.exchange(w, r, &Route{handle: func(x *exchange) error { return task.NotFound("path", r.URL.Path) }})
	})
	return withBodyDeadline(f.forThisHost(underBase(cfg.BasePath, mux)))
}

// forThisHost answers requests for this host.
func (f *server) forThisHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Content-Type-Options"] = []string{"nosniff"}
		if f.Misdirected != nil {
			if err := f.Misdirected(r); err != nil {
				f.exchange(w, r, &Route{handle: func(x *exchange) error {
					x.status = http.StatusMisdirectedRequest
					return err
				}})
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// underBase serves paths below a prefix as if they had none. It also serves paths without the prefix, because some proxies strip
// it. A path that is not clean is redirected to the clean one, always with the prefix, since browsers see the path before the
// proxy.
func underBase(base string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came := r.URL.EscapedPath()
		path := cleanPath(came)
		_, below := strings.CutPrefix(path, base+"/")
		switch {
		case r.Method == http.MethodConnect || came == "*": // they have no path
			h.ServeHTTP(w, r)
		case path == base:
			redirect(w, r, base+"/")
		case path != came && below:
			redirect(w, r, path)
		case path != came:
			redirect(w, r, base+path)
		case below && base != "":
			h.ServeHTTP(w, stripPrefix(base, r))
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// cleanPath returns a path without empty segments and dots, the form that net/http expects.
func cleanPath(p string) string {
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	tidy := path.Clean(p)
	if strings.HasSuffix(p, "/") && tidy != "/" {
		tidy += "/"
	}
	return tidy
}

// redirect redirects the client to another path, which is escaped.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	http.Redirect(w, r, to, http.StatusTemporaryRedirect)
}

// stripPrefix returns the request without a prefix of its path. The prefix contains nothing that is escaped.
func stripPrefix(base string, r *http.Request) *http.Request {
	inner, address := *r, *r.URL
	address.Path, address.RawPath = strings.TrimPrefix(address.Path, base), strings.TrimPrefix(address.RawPath, base)
	inner.URL = &address
	return &inner
}

func isAPI(path string) bool { return strings.HasPrefix(path, "/api/") }

// methodsOf returns the methods that a path supports, if any.
func methodsOf(mux *http.ServeMux, r *http.Request) (allowed []string) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		with := *r
		with.Method = method
		if _, pattern := mux.Handler(&with); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

func wrongMethod(x *exchange) error {
	x.status = http.StatusMethodNotAllowed
	return task.Invalid("method", "%s is not allowed for this path", x.r.Method)
}
