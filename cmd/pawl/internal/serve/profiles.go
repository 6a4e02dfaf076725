package serve

import (
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"

	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/internal/node"
)

// memProfileRate is one sample of the memory that is allocated in so many bytes: as it comes.
var memProfileRate = runtime.MemProfileRate

// A program that can make profiles of its memory takes samples all the time, for which it walks the stack: a hundredth of what a busy
// server does. Only one that was asked for profiles does.
func init() { runtime.MemProfileRate = 0 }

// profiles answers below /debug/pprof/.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// openDebug opens the address for profiles and metrics, which only this machine may reach: profiles tell much, and cost time.
func (s *flags) openDebug(cfg *node.Config) error {
	if s.debug == "" {
		return nil
	}
	addr, err := net.ResolveTCPAddr("tcp", s.debug)
	if err != nil {
		return cli.Usage("--debug-listen %q: %w", s.debug, err)
	}
	if !addr.IP.IsLoopback() {
		return cli.Usage("--debug-listen %q is reached by other machines, and has no access control: give an address such as 127.0.0.1:7297", s.debug)
	}
	runtime.MemProfileRate = memProfileRate
	cfg.Profiles = profiles()
	cfg.Debug, err = net.ListenTCP("tcp", addr)
	return err
}
