package webhook

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/task"
)

// maxURL bounds a URL, in bytes.
const maxURL = 2 << 10

// Networks are the networks that notifications of each namespace may go to besides the public internet. Plain HTTP is allowed to them.
type Networks map[string][]netip.Prefix

// ParseNetworks parses networks such as shop=10.1.0.0/16, *=fd00::/8 for all namespaces, and 10.1.0.0/16 for the default namespace.
func ParseNetworks(texts []string) (Networks, error) {
	n := Networks{}
	for _, text := range texts {
		ns, network, named := strings.Cut(text, "=")
		if !named {
			ns, network = auth.DefaultNamespace, text
		}
		if ns != auth.AllNamespaces {
			if err := auth.CheckNamespace("namespace", ns); err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
		}
		p, err := netip.ParsePrefix(network)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not a network such as 10.1.0.0/16", text)
		case p.Addr().Is4In6():
			return nil, fmt.Errorf("%q is an IPv4 network in the form of IPv6: write it as IPv4", text)
		case p != p.Masked():
			return nil, fmt.Errorf("%q has bits set outside its mask: the network is %s", text, p.Masked())
		}
		n[ns] = append(n[ns], p)
	}
	return n, nil
}

// of returns the networks of a namespace.
func (n Networks) of(ns string) networks { return slices.Concat(n[auth.AllNamespaces], n[ns]) }

// networks are the networks that one namespace may call.
type networks []netip.Prefix

// contains reports whether an address is in one of the networks.
func (n networks) contains(a netip.Addr) bool {
	for _, p := range n {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// CheckURL rejects a URL of a webhook in a namespace by its form. The addresses behind a name are checked when it is dialled.
func CheckURL(field, ns, text string, allow Networks) error {
	return checkURL(field, text, allow.of(ns))
}

func checkURL(field, text string, allow networks) error {
	u, err := parseURL(field, text)
	if err != nil {
		return err
	}
	if u.Scheme == "http" && len(allow) == 0 {
		return task.Invalid(field, "it is http, and only https is allowed: "+
			"http needs servers with --webhook-allow-network for this namespace")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := checkAddress(a, u.Scheme == "https", allow); err != nil {
			return task.Invalid(field, "%v", err)
		}
	}
	return nil
}

// parseURL parses a URL in one of the allowed forms. Its errors do not quote others: they may contain secrets.
func parseURL(field, text string) (*url.URL, error) {
	switch {
	case text == "":
		return nil, task.Invalid(field, "is required")
	case len(text) > maxURL:
		return nil, task.Invalid(field, "%d bytes, at most %d are allowed", len(text), maxURL)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return nil, task.Invalid(field, "it has spaces, control characters or non-ASCII characters: write them as %%20 in a path, as "+
			"xn-- in a host")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, task.Invalid(field, "it is not a URL such as https://example.com/hook")
	}
	host := u.Hostname()
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, task.Invalid(field, "it begins with %q, and must begin with https, or with http to go to a network of "+
			"--webhook-allow-network", task.Cut(u.Scheme, 16))
	case u.User != nil:
		return nil, task.Invalid(field, "it has a user or password, which is not allowed: the signature proves who sent it")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return nil, task.Invalid(field, "it has a fragment after #, which is never sent")
	case host == "" || u.Opaque != "":
		return nil, task.Invalid(field, "it has no host")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, task.Invalid(field, "port %q is not between 1 and 65535", task.Cut(port, 16))
		}
	}
	return u, checkHost(field, host)
}

// checkHost rejects what some resolvers take for an IPv4 address: 2130706433, 0x7f.1, 127.1, 0177.0.0.1.
func checkHost(field, host string) error {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return task.Invalid(field, "host %q has a zone, which is valid on one machine only", task.Cut(host, 64))
		}
		return nil
	}
	if len(host) > 253 || strings.ContainsFunc(host, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	}) {
		return task.Invalid(field, "host %q has characters other than letters, digits, . - and _, or more than 253", task.Cut(host, 64))
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	last := strings.ToLower(labels[len(labels)-1])
	if last == "" || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") &&
		strings.Trim(last[2:], "0123456789abcdef") == "" {
		return task.Invalid(field, "host %q is neither a name nor an address such as 192.0.2.1", task.Cut(host, 64))
	}
	return nil
}

// Redacted returns the beginning of a URL, which is not secret: the rest often is.
func Redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	shown := u.Scheme + "://" + u.Host
	if rest := strings.TrimPrefix(text, shown); rest != "" && rest != "/" {
		shown += "/…"
	}
	return shown
}

// special are the addresses that notifications must not go to unless their network is allowed: those outside the public internet,
// those that embed another address, and those of cloud providers' internal services.
var special = parsed(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32",                                     // of a cloud provider, for its own machines
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", // within the public range of IPv6
)

// public is the public range of IPv6. Loopback, link-local, site-local, unique local, multicast, NAT64 and IPv4-mapped addresses
// are outside it.
var public = parsed("2000::/3")

func parsed(texts ...string) (n networks) {
	for _, text := range texts {
		n = append(n, netip.MustParsePrefix(text))
	}
	return n
}

// plain returns an address in the form in which networks contain it.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// checkAddress returns an error if notifications must not go to an address.
func checkAddress(a netip.Addr, secure bool, allow networks) error {
	a = plain(a)
	switch {
	case !a.IsValid():
		return fmt.Errorf("it is not an address")
	case allow.contains(a):
		return nil
	case special.contains(a) || a.Is6() && !public.contains(a):
		return fmt.Errorf("%s is not an address of the public internet: "+
			"to send there, start the servers with --webhook-allow-network for this namespace", a)
	case !secure:
		return fmt.Errorf("%s is in no network of --webhook-allow-network for this namespace: only https may go there", a)
	}
	return nil
}
