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

// Config is what REST is made of.
type Config struct {
	// Register registers the services of the API: REST makes their calls as a client of gRPC would.
	Register func(grpc.ServiceRegistrar)
	// Events is EventService.WatchEvents: it calls open when the request was found good, and send for each frame.
	Events func(ctx context.Context, r *pawlv1.WatchEventsRequest, open func(), send func(*pawlv1.WatchEventsResponse) error) error
	// Call runs each request.
	Call Call
	// Ready says whether the node should get calls now, and more to who may know it.
	Ready func(context.Context) (Readiness, error)
	Batch int // tasks that one request may enqueue

	// Large is the room for large bodies, and Extra that of those that take more than their length lets expect. Messages of gRPC share both.
	Large, Extra *admission.MemoryPool
	// Namespace is that of a call.
	Namespace func(context.Context) string

	// Misdirected refuses a request for another host than this one, before anything else is looked at; nil: all are for this one.
	Misdirected func(r *http.Request) error

	// Pages answers what is not the API's. Nil: not found.
	Pages http.Handler
	// Metrics answers /metrics. Nil: not found.
	Metrics http.Handler
	// BasePath is a prefix that paths may have, such as "/pawl"; "": none.
	BasePath string
}

// Readiness is what is said of whether a node should get calls.
type Readiness struct {
	OK     bool
	Status string              // "ok", or why not
	Shards []*pawlv1.ShardInfo // nil: who asks may not know
}

// Call runs a request as every call is run, whichever its face: it lets the caller in or not, calls handle with a context limited to
// what the caller may see, and tells what came of it. A panic of handle ends this call only.
type Call func(r *http.Request, on *Route, handle func(context.Context) error) Outcome

// Outcome is what came of a call.
type Outcome struct {
	Refusal *task.Error // nil: it was served
	// Shard, Index and Time say which moments of which shards the answer tells of; "": none was asked.
	Shard, Index, Time string
}

// face serves REST.
type face struct {
	Config
	methods methods
	guard   *http.CrossOriginProtection
}

// New serves REST, and what is not the API's beside it.
func New(cfg Config) http.Handler {
	mux := http.NewServeMux()
	f := &face{Config: cfg, methods: methods{}, guard: http.NewCrossOriginProtection()}
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
	return punctual(f.ours(underBase(cfg.BasePath, mux)))
}

// ours answers what is for this host.
func (f *face) ours(h http.Handler) http.Handler {
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

// underBase serves paths below a prefix as they are without it. Those without it are served too: there are proxies that strip it. An
// untidy path leads to the tidy one, with the prefix whatever the proxy did with it: a browser follows.
func underBase(base string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came := r.URL.EscapedPath()
		path := tidyPath(came)
		_, below := strings.CutPrefix(path, base+"/")
		switch {
		case r.Method == http.MethodConnect || came == "*": // they have no path
			h.ServeHTTP(w, r)
		case path == base:
			lead(w, r, base+"/")
		case path != came && below:
			lead(w, r, path)
		case path != came:
			lead(w, r, base+path)
		case below && base != "":
			h.ServeHTTP(w, without(base, r))
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// tidyPath is a path without empty segments and dots, as net/http wants to see them.
func tidyPath(p string) string {
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	tidy := path.Clean(p)
	if strings.HasSuffix(p, "/") && tidy != "/" {
		tidy += "/"
	}
	return tidy
}

// lead sends the client to another path, which is escaped.
func lead(w http.ResponseWriter, r *http.Request, to string) {
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	http.Redirect(w, r, to, http.StatusTemporaryRedirect)
}

// without is a request for a path below a prefix, without the prefix, of which nothing needs escapes.
func without(base string, r *http.Request) *http.Request {
	inner, address := *r, *r.URL
	address.Path, address.RawPath = strings.TrimPrefix(address.Path, base), strings.TrimPrefix(address.RawPath, base)
	inner.URL = &address
	return &inner
}

func isAPI(path string) bool { return strings.HasPrefix(path, "/api/") }

// methodsOf are the methods that a path knows, if it knows any.
func methodsOf(mux *http.ServeMux, r *http.Request) (allowed []string) {
	for _, method := range []string{"GET", "POST", "", "PUT", "PATCH", "DELETE"} {
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
	return task.Invalid("method", "%s is not one that this path knows", x.r.Method)
}
