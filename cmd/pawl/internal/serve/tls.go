package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/internal/node"
	"github.com/spf13/pflag"
)

// tlsFlags configure the server's certificate and what it requires of clients' certificates.
type tlsFlags struct{ cert, key, dir, clientCA, clientAuth string }

func (t *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&t.cert, "tls-cert", "", "serve clients over TLS with this certificate (PEM, followed by its intermediates)")
	flags.StringVar(&t.key, "tls-key", "", "private key of that certificate")
	flags.StringVar(&t.dir, "tls-dir", "",
		"serve clients over TLS with a certificate that the server makes in this directory, for localhost, this machine's name "+
			"and that of --advertise; clients need its ca.crt (--tls-ca)")
	flags.StringVar(&t.clientCA, "client-ca", "", "accept client certificates from the authorities in this file (PEM) instead of tokens: "+
		"see pawl token add --certificate")
	flags.StringVar(&t.clientAuth, "client-auth", clientAuthOptional,
		"with --client-ca: optional, or require, which refuses clients without a certificate")
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
		return c, cli.Usage("--client-ca %q needs --tls-cert and --tls-key, or --tls-dir: client certificates require TLS", t.clientCA)
	}
	authorities, err := certs.OpenAuthorities(t.clientCA, log)
	if err != nil {
		return c, fmt.Errorf("--client-ca: %w", err)
	}
	return node.ClientCertificates{Authorities: authorities.Now, Until: authorities.Until, Required: t.clientAuth == clientAuthRequire}, nil
}

func (t *tlsFlags) on() bool { return t.cert != "" || t.dir != "" }

// open reads the certificate and key before anything else is opened, and makes those of --tls-dir. Nil means that clients use plaintext.
func (t *tlsFlags) open(hosts []string, log *slog.Logger) (*certs.KeyPair, error) {
	switch {
	case t.dir != "" && (t.cert != "" || t.key != ""):
		return nil, cli.Usage("--tls-dir %q and --tls-cert exclude each other: omit one of them", t.dir)
	case t.dir != "":
		file, err := t.renew(hosts, log)
		if err != nil {
			return nil, fmt.Errorf("--tls-dir: %w", err)
		}
		t.cert, t.key = file, file
	case t.cert == "" && t.key == "":
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

// renew makes the certificate of --tls-dir if it is missing, half of its time has passed, or it is for other hosts. It returns its file.
func (t *tlsFlags) renew(hosts []string, log *slog.Logger) (string, error) {
	file, made, err := certs.KeepServer(t.dir, time.Now(), hosts)
	if made && err == nil {
		log.Info("a server certificate was made: clients verify it with ca.crt of the same directory (--tls-ca)",
			"file", file, "hosts", hosts)
	}
	return file, err
}

// keep renews the certificate of --tls-dir until ctx is done. The server notices the new file by itself.
func (t *tlsFlags) keep(ctx context.Context, hosts []string, log *slog.Logger) {
	if t.dir == "" {
		return
	}
	repeat(ctx, renewEvery, func() {
		if _, err := t.renew(hosts, log); err != nil {
			log.Error("the server's certificate can't be renewed", "tls_dir", t.dir, "error", err)
		}
	})
}

// renewEvery is how often the age of the certificate of --tls-dir is checked.
const renewEvery = 24 * time.Hour

// certified returns the hosts for which the certificate of --tls-dir is made.
func (s *flags) certified() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	name, _ := os.Hostname()
	advertised, _, _ := net.SplitHostPort(s.peers.apiAdvertise)
	for _, host := range []string{name, advertised} {
		if certs.CheckHost(host) == nil && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// apply sets the node's certificate. For a node of a cluster, it warns if the certificate doesn't match the advertised
// address: clients then reach this node only by way of another.
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
		log.Warn("clients that verify names can't connect to this node directly: its certificate is not valid for the advertised address "+
			"(--advertise)",
			"address", address, "error", err)
	}
}

// advertised returns the address that clients get instead of the listener's: that of --advertise; or the name in
// --listen, for clients that verify names; or the host name, if a single server listens on all addresses of its
// machine. "" means none. A node of a cluster that listens on all addresses needs --advertise: see peerFlags.open.
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
