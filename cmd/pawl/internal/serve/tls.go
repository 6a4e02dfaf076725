package serve

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/internal/node"
	"github.com/spf13/pflag"
)

// tlsFlags configure the server's certificate and what it requires of clients' certificates.
type tlsFlags struct{ cert, key, clientCA, clientAuth string }

func (t *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&t.cert, "tls-cert", "", "serve clients over TLS with this certificate (PEM, followed by its intermediates)")
	flags.StringVar(&t.key, "tls-key", "", "private key of that certificate")
	flags.StringVar(&t.clientCA, "client-ca", "", "accept client certificates from the authorities in this file (PEM) instead of tokens: see pawl token add --certificate")
	flags.StringVar(&t.clientAuth, "client-auth", clientAuthOptional, "with --client-ca: optional, or require, which refuses clients without a certificate")
}

// Values of --client-auth.
const (
	clientAuthOptional = "optional"
	clientAuthRequire  = "require"
)

// openClients reads the CA certificates by which client certificates are verified.
func (t *tlsFlags) openClients(log *slog.Logger) (c node.ClientCertificates, err error) {
	if t.clientAuth != clientAuthOptional && t.clientAuth != clientAuthRequire {
		return c, cli.Usage("--client-auth %q is neither %s nor %s", t.clientAuth, clientAuthOptional, clientAuthRequire)
	}
	switch {
	case t.clientCA == "" && t.clientAuth == clientAuthRequire:
		return c, cli.Usage("--client-auth %s needs --client-ca", t.clientAuth)
	case t.clientCA == "":
		return c, nil
	case !t.on():
		return c, cli.Usage("--client-ca %q needs --tls-cert and --tls-key: client certificates require TLS", t.clientCA)
	}
	authorities, err := certs.OpenAuthorities(t.clientCA, log)
	if err != nil {
		return c, fmt.Errorf("--client-ca: %w", err)
	}
	return node.ClientCertificates{Authorities: authorities.Now, Required: t.clientAuth == clientAuthRequire}, nil
}

func (t *tlsFlags) on() bool { return t.cert != "" }

// open reads the certificate and key, before anything else is opened. Nil means that clients use plaintext.
func (t *tlsFlags) open(log *slog.Logger) (*certs.KeyPair, error) {
	if t.cert == "" && t.key == "" {
		return nil, nil
	}
	if t.cert == "" || t.key == "" {
		return nil, cli.Usage("--tls-cert %q and --tls-key %q go together: give both or neither", t.cert, t.key)
	}
	pair, err := certs.OpenKeyPair(t.cert, t.key, log)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %q with --tls-key %q: %w", t.cert, t.key, err)
	}
	return pair, nil
}

// apply sets the node's certificate. For a node of a cluster, it warns if the certificate doesn't match the advertised address: clients then reach
// this node only by way of another.
func (t *tlsFlags) apply(cfg *node.Config, pair *certs.KeyPair, log *slog.Logger) {
	if pair == nil {
		return
	}
	cfg.Certificate = pair.Now
	address := cfg.APIAddress
	if address == "" {
		address = cfg.Listener.Addr().String()
	}
	host, _, err := net.SplitHostPort(address)
	if err == nil {
		err = pair.Now().Leaf.VerifyHostname(host)
	}
	if err != nil && cfg.PeerListener != nil {
		log.Warn("clients that verify names can't connect to this node directly: its certificate is not valid for the advertised address (--advertise)",
			"address", address, "error", err)
	}
}

// advertised returns the address that clients get instead of the listener's: that of --advertise; or the name in --listen, for clients that
// verify names; or the host name, if a single server listens on all addresses of its machine. "" means none. A node of a cluster that listens on all
// addresses needs --advertise: see peerFlags.open.
func (s *flags) advertised(listener net.Listener) string {
	host, _, err := net.SplitHostPort(s.listen)
	at, ok := listener.Addr().(*net.TCPAddr)
	if s.peers.apiAdvertise != "" || err != nil || !ok {
		return s.peers.apiAdvertise
	}
	named := host != "" && net.ParseIP(host) == nil
	switch {
	case at.IP.IsUnspecified() && s.peers.listen == "":
		if host, err = os.Hostname(); err != nil {
			return ""
		}
	case !s.tls.on() || !named:
		return ""
	}
	address := net.JoinHostPort(host, strconv.Itoa(at.Port)) // --listen may have port 0
	if checkReachable(address) != nil {
		return ""
	}
	return address
}
