package serve

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/node"
	"github.com/pawlq/pawl/internal/transport"
	"github.com/spf13/pflag"
)

// peerFlags are the settings of a server that is part of a cluster.
type peerFlags struct {
	node, listen, advertise, apiAdvertise string
	join                                  []string
	tls                                   transport.TLS
	plaintext                             bool
}

func (p *peerFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&p.node, "node", node.DefaultName, "name of this node, unique in the cluster: a-z, 0-9 and -")
	flags.StringVar(&p.listen, "peer-listen", "", "address for other nodes; without it the server runs alone")
	flags.StringSliceVar(&p.join, "join", nil, "peer addresses of the nodes that form the cluster, or of some of its members")
	flags.StringVar(&p.advertise, "peer-advertise", "", "where other nodes reach this one (default --peer-listen)")
	flags.StringVar(&p.apiAdvertise, "advertise", "", "where clients reach this node (default --listen)")
	flags.StringVar(&p.tls.CertFile, "peer-cert", "", "certificate `file` of this node, made by pawl cert node")
	flags.StringVar(&p.tls.KeyFile, "peer-key", "", "private key of that certificate")
	flags.StringVar(&p.tls.CAFile, "peer-ca", "", "certificate of the authority that signs node certificates")
	flags.BoolVar(&p.plaintext, "insecure-peers-in-plaintext", false,
		"allow --peer-listen without certificates where other machines reach it, or with --auth: whoever reaches it can do anything")
}

// apply sets the node's peer settings and opens the listener for other nodes. tokens says that calls of clients need a token.
func (p *peerFlags) apply(cfg *node.Config, tokens bool) error {
	cfg.Name, cfg.Join, cfg.PeerAddress, cfg.APIAddress = p.node, p.join, p.advertise, p.apiAdvertise
	set := 0
	for _, file := range []string{p.tls.CertFile, p.tls.KeyFile, p.tls.CAFile} {
		if file != "" {
			set++
		}
	}
	switch {
	case set != 0 && set != 3:
		return cli.Usage("--peer-cert, --peer-key and --peer-ca go together: give all three or none")
	case set == 3:
		cfg.PeerTLS = &p.tls
	}
	if p.apiAdvertise != "" {
		if err := checkReachable(p.apiAdvertise); err != nil {
			return cli.Usage("--advertise %q %w", p.apiAdvertise, err)
		}
	}
	if p.listen == "" {
		if len(p.join) > 0 || set > 0 || p.advertise != "" {
			return cli.Usage("--join, --peer-advertise and the certificate of a node need --peer-listen")
		}
		return nil
	}
	for _, address := range p.join {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return cli.Usage("--join %q is not HOST:PORT: %w", address, err)
		}
	}
	return p.open(cfg, tokens)
}

// checkReachable returns why clients can't use an advertised address. The address has no https://: clients use TLS if
// they connected with it.
func checkReachable(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || n == 0 || host == "" ||
		strings.ContainsAny(host, "/@ ") {
		return errors.New("is not HOST:PORT with a port from 1 to 65535")
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return errors.New("is not a single address")
	}
	return nil
}

// open opens the listener for other nodes. It rejects an address that other machines can reach in plaintext, and one on
// this machine if calls need a token: any local user could pass for a node, which needs none.
func (p *peerFlags) open(cfg *node.Config, tokens bool) error {
	at, err := net.ResolveTCPAddr("tcp", p.listen)
	if err != nil {
		return cli.Usage("--peer-listen %q: %w", p.listen, err)
	}
	switch {
	case !at.IP.IsLoopback() && cfg.PeerTLS == nil && !p.plaintext:
		return fmt.Errorf("--peer-listen %q can be reached by other machines, and nodes would communicate in plaintext: give --peer-cert, "+
			"--peer-key and --peer-ca (`pawl cert` makes them), or add --insecure-peers-in-plaintext if the network is private", p.listen)
	case tokens && cfg.PeerTLS == nil && !p.plaintext:
		return fmt.Errorf("--peer-listen %q has no certificates, so every user of this machine could pass for a node, without a "+
			"token: give --peer-cert, --peer-key and --peer-ca (`pawl cert` makes them), or add --insecure-peers-in-plaintext if all of "+
			"them are trusted",
			p.listen)
	case at.IP == nil || at.IP.IsUnspecified():
		if p.advertise == "" {
			return cli.Usage("--peer-listen %q is not a single address: give the one at which other nodes reach this node with "+
				"--peer-advertise",
				p.listen)
		}
	}
	if api, ok := cfg.Listener.Addr().(*net.TCPAddr); ok && api.IP.IsUnspecified() && p.apiAdvertise == "" {
		return cli.Usage("--listen is not a single address: give the one at which clients reach this node with --advertise")
	}
	cfg.PeerListener, err = net.ListenTCP("tcp", at)
	return err
}

// closeAll closes the listeners of a node that didn't start.
func closeAll(cfg *node.Config) error {
	err := closed(cfg.Listener)
	if cfg.PeerListener != nil {
		err = errors.Join(err, closed(cfg.PeerListener))
	}
	if cfg.Debug != nil {
		err = errors.Join(err, closed(cfg.Debug))
	}
	return err
}
