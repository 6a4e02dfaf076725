package listen

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// debugHeaders is how long a request for profiles or metrics may take to send its headers.
	debugHeaders = 5 * time.Second
	// maxDebugHeaders bounds their size.
	maxDebugHeaders = 32 << 10
)

// DebugServer serves profiles and metrics without access control: its callers are on this machine, and no web page in a browser gets
// through, whatever name resolves to this address.
type DebugServer struct {
	listener net.Listener
	log      *slog.Logger
	server   *http.Server // nil: there is none
}

// NewDebugServer returns a server that does not serve yet; one without a listener never does. profiles may be nil.
func NewDebugServer(l net.Listener, page, profiles http.Handler, log *slog.Logger) *DebugServer {
	if l == nil {
		return &DebugServer{}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page)
	if profiles != nil {
		mux.Handle("GET /debug/pprof/", profiles)
	}
	return &DebugServer{l, log, &http.Server{Handler: OnlyLocal(mux), ReadHeaderTimeout: debugHeaders, MaxHeaderBytes: maxDebugHeaders}}
}

// Serve serves until Stop is called.
func (d *DebugServer) Serve() {
	if d.server == nil {
		return
	}
	if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
		d.log.Error("profiles and metrics are no longer served", "error", fmt.Errorf("serve on %s: %w", d.listener.Addr(), err))
	}
}

// Stop ends all requests.
func (d *DebugServer) Stop() {
	if d.server != nil {
		_ = d.server.Close()
	}
}
