package node

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/pawlq/pawl/internal/gateway/listen"
)

const (
	// debugHeaders is how long a request for profiles or metrics may take to send its headers.
	debugHeaders = 5 * time.Second
	// maxDebugHeaders bounds their size.
	maxDebugHeaders = 32 << 10
)

// debugServer serves profiles and metrics on Config.Debug, without access control: its callers are on this machine, and no web page
// in a browser gets through, whatever name resolves to this address.
type debugServer struct {
	cfg    Config
	server *http.Server // nil: there is none
}

func newDebugServer(cfg Config, page http.Handler) *debugServer {
	if cfg.Debug == nil {
		return &debugServer{}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page)
	if cfg.Profiles != nil {
		mux.Handle("GET /debug/pprof/", cfg.Profiles)
	}
	return &debugServer{cfg, &http.Server{Handler: listen.OnlyLocal(mux), ReadHeaderTimeout: debugHeaders, MaxHeaderBytes: maxDebugHeaders}}
}

// serve serves until stop is called.
func (d *debugServer) serve() {
	if d.server == nil {
		return
	}
	if err := d.server.Serve(d.cfg.Debug); !errors.Is(err, http.ErrServerClosed) {
		d.cfg.Logger.Error("profiles and metrics are no longer served", "error", fmt.Errorf("serve on %s: %w", d.cfg.Debug.Addr(), err))
	}
}

func (d *debugServer) stop() {
	if d.server != nil {
		_ = d.server.Close()
	}
}
