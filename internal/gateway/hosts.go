package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/task"
)

// Hosts are the names by which a server that wants no tokens may be called over HTTP, beside IP addresses, localhost and what ends in
// .localhost. Anybody can let a name of their own lead to this machine, and then a browser takes their page for one of this server
// (DNS rebinding): it shows in the Host of the requests alone. The zero value has no further name.
type Hosts struct{ names []string } // in lower case; .example.com is example.com and all below it

const (
	maxHosts    = 100
	maxHostName = 253 // of DNS
)

// hostName is what the name of a host looks like, as browsers send it.
var hostName = regexp.MustCompile(`^\.?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// ParseHosts reads names such as pawl.example.com, and .example.com for that name and all below it.
func ParseHosts(texts []string) (h Hosts, err error) {
	if len(texts) > maxHosts {
		return Hosts{}, fmt.Errorf("%d names, more than %d", len(texts), maxHosts)
	}
	for _, text := range texts {
		name := tidyHost(text)
		_, notAddress := netip.ParseAddr(name)
		if notAddress != nil && (len(name) > maxHostName || !hostName.MatchString(name)) {
			return Hosts{}, fmt.Errorf("%q is no name such as pawl.example.com, or .example.com for all below it: it has letters, digits, - and _ between its dots, "+
				"others as browsers send them (xn--…), no scheme, no port and no path", task.Cut(text, 300))
		}
		h.names = append(h.names, name)
	}
	return h, nil
}

// With also has the host of an address, HOST:PORT, if it names one.
func (h Hosts) With(address string) Hosts {
	host, _, err := net.SplitHostPort(address)
	if err != nil || tidyHost(host) == "" {
		return h
	}
	return Hosts{append(slices.Clip(h.names), tidyHost(host))}
}

// tidyHost is a host as names are compared: whoever is called by a name is also called by it with a dot at its end.
func tidyHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// have says whether a request is for this server, by the host that it names, with a port or without. One that names none comes from no
// browser: HTTP/1.0, as some probes speak it.
func (h Hosts) have(host string) bool {
	if host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	host = tidyHost(host)
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	return slices.ContainsFunc(h.names, func(name string) bool {
		return host == name || name[0] == '.' && (host == name[1:] || strings.HasSuffix(host, name))
	})
}

// misdirected refuses a request that names another host than ours while no token is wanted: tokens may be asked for from one request to
// the next. With them a page by another name gets nowhere: it has no token, and the session's cookie goes to the host that set it.
func (g *Gateway) misdirected(r *http.Request) error {
	if g.keeper.On() || g.cfg.Hosts.have(r.Host) {
		return nil
	}
	err := task.Invalid("host", "%q is no name of this server. While calls need no token it answers to IP addresses, to localhost, and to the hosts of --listen, --advertise and --allowed-hosts",
		task.Cut(r.Host, 300))
	if others, ok := g.strays.turn(); ok {
		g.log.Warn("a request was refused that named another host", "host", task.Cut(r.Host, 300), "address", r.RemoteAddr, "others", others,
			"cure", "if it is a name of this server: --allowed-hosts")
	}
	return err
}

// OnlyLocal serves requests that name an IP address or localhost, and no others: for what has no access control of any kind.
func OnlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !(Hosts{}).have(r.Host) {
			http.Error(w, fmt.Sprintf("host %q: this address is called by an IP address or by localhost, and by no other name", task.Cut(r.Host, 300)), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
