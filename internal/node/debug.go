package node

import (
	"context"
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

// serveDebug serves profiles and metrics on Config.Debug, without access control: its callers are on this machine, and no web page
// in a browser gets through, whatever name resolves to this address.
func (n *Node) serveDebug() {
	if n.cfg.Debug == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", n.metrics)
	if n.cfg.Profiles != nil {
		mux.Handle("GET /debug/pprof/", n.cfg.Profiles)
	}
	server := &http.Server{Handler: listen.OnlyLocal(mux), ReadHeaderTimeout: debugHeaders, MaxHeaderBytes: maxDebugHeaders}
	n.serving.Go(func() {
		if err := server.Serve(n.cfg.Debug); !errors.Is(err, http.ErrServerClosed) {
			n.cfg.Logger.Error("profiles and metrics are no longer served", "error", fmt.Errorf("serve on %s: %w", n.cfg.Debug.Addr(), err))
		}
	})
	context.AfterFunc(n.debugging, func() { _ = server.Close() })
}
