package access

import (
	"net/http"

	"github.com/pawlq/pawl/internal/task"
)

// CheckHost refuses a request whose Host is not one of ours while no token is required; whether tokens are required may change
// between two requests. With tokens, a page under another name is harmless: it has no token, and the session's cookie is sent only
// to the host that set it.
func (g *Guard) CheckHost(r *http.Request) error {
	if g.auth.TokensRequired() || g.hosts.Have(r.Host) {
		return nil
	}
	err := task.Invalid("host", "%q is not a name of this server. While calls need no token it answers to IP addresses, to localhost, and "+
		"to the hosts of --listen, --advertise and --allowed-hosts",
		task.Cut(r.Host, 300))
	if others, ok := g.misdirected.turn(); ok {
		g.log.Warn("a request for another host was refused", "host", task.Cut(r.Host, 300), "address", r.RemoteAddr, "others", others,
			"cure", "if it is a name of this server: --allowed-hosts")
	}
	return err
}
