package listen

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

// Hosts are the names accepted in HTTP's Host header by a server that requires no tokens, besides IP addresses, localhost and names
// that end in .localhost. Anybody can make a name of their own resolve to this machine, and a browser then treats their page as one
// of this server (DNS rebinding): only the Host header of its requests reveals it. The zero value has no further names.
type Hosts struct{ names []string } // lower case; .example.com means example.com and all below it

const (
	maxHosts    = 100
	maxHostName = 253 // of DNS
)

// hostName is the form of a host name, as browsers send it.
var hostName = regexp.MustCompile(`^\.?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// ParseHosts parses names such as pawl.example.com, and .example.com for that name and all below it.
func ParseHosts(texts []string) (h Hosts, err error) {
	if len(texts) > maxHosts {
		return Hosts{}, fmt.Errorf("%d names, more than %d", len(texts), maxHosts)
	}
	for _, text := range texts {
		name := tidyHost(text)
		_, notAddress := netip.ParseAddr(name)
		if notAddress != nil && (len(name) > maxHostName || !hostName.MatchString(name)) {
			return Hosts{}, fmt.Errorf("%q is not a name such as pawl.example.com, or .example.com for all below it: it has "+
				"letters, digits, - and _ between its dots, others as browsers send them (xn--…), no scheme, no port and no path",
				task.Cut(text, 300))
		}
		h.names = append(h.names, name)
	}
	return h, nil
}

// With adds the host of an address, HOST:PORT, if it names one.
func (h Hosts) With(address string) Hosts {
	host, _, err := net.SplitHostPort(address)
	if err != nil || tidyHost(host) == "" {
		return h
	}
	return Hosts{append(slices.Clip(h.names), tidyHost(host))}
}

// tidyHost normalizes a host name for comparison: case and a trailing dot do not matter.
func tidyHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// Have reports whether a request is for this server, by its Host with or without a port. A request without one comes from no
// browser: it is HTTP/1.0, as some probes use it.
func (h Hosts) Have(host string) bool {
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

// OnlyLocal serves only requests for an IP address or localhost: it is for what has no access control at all.
func OnlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !(Hosts{}).Have(r.Host) {
			http.Error(w, fmt.Sprintf("host %q: use an IP address or localhost here, and no other name", task.Cut(r.Host, 300)),
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
