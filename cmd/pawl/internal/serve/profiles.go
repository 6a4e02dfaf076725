package serve

import (
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/node"
)

// memProfileRate is Go's default: one sample per that many bytes allocated.
var memProfileRate = runtime.MemProfileRate

// A program that links memory profiling samples allocations all the time and walks the stack for each sample, which
// costs a busy server 1 % of its work. So sampling is on only if profiles were asked for.
func init() { runtime.MemProfileRate = 0 }

// profiles serves /debug/pprof/.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// openDebug opens the listener for profiles and metrics. Only this machine may reach it: profiles reveal a lot and cost CPU time.
func (s *flags) openDebug(cfg *node.Config) error {
	if s.debug == "" {
		return nil
	}
	addr, err := net.ResolveTCPAddr("tcp", s.debug)
	if err != nil {
		return cli.Usage("--debug-listen %q: %w", s.debug, err)
	}
	if !addr.IP.IsLoopback() {
		return cli.Usage("--debug-listen %q can be reached by other machines, and has no access control: use an address such as "+
			"127.0.0.1:7297",
			s.debug)
	}
	runtime.MemProfileRate = memProfileRate
	cfg.Profiles = profiles()
	cfg.Debug, err = net.ListenTCP("tcp", addr)
	return err
}
