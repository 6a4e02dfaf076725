package main

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/certs"
)

const (
	authorityDays = 3650
	nodeDays      = 825
	authorityName = "ca"
	issuedDir     = "issued" // in an authority's directory
)

func newCert(a *app) *cobra.Command {
	return cli.Group("cert", "Create and show certificates of nodes, servers and clients",
		`The nodes of a cluster authenticate each other with certificates from the cluster's own authority.
Create the authority once, then a certificate for each node, and give each node its own two files and
ca.crt. Keep ca.key away from the nodes: whoever has it can join the cluster.

Clients verify a server by its host names and IP addresses. Its certificate comes from a public
authority, or from one of your own: create that in a different directory from the nodes', and give
its ca.crt to clients.

A server can also authenticate clients by certificates ("pawl serve --client-ca"). Use a third
authority for them: whoever has its key can impersonate any client.`,
		newCertCA(a), newCertNode(a), newCertServer(a), newCertClient(a), newCertRevoke(a), newCertShow(a))
}

func newCertCA(a *app) *cobra.Command {
	var out string
	var days int
	cmd := &cobra.Command{
		Use: "ca --out DIR", Short: "Create a certificate authority: ca.crt and ca.key", Args: cli.NoArgs,
		Example: "  pawl cert ca --out /etc/pawl/ca",
	}
	cmd.Flags().StringVar(&out, "out", "", "directory for ca.crt and ca.key")
	cmd.Flags().IntVar(&days, "days", authorityDays, "how long it is valid")
	cmd.RunE = a.Run(func(*cobra.Command, []string) error {
		if err := errors.Join(checkGiven("out", out), checkDays(days)); err != nil {
			return err
		}
		pair, err := certs.NewAuthority(time.Now(), days)
		if err != nil {
			return err
		}
		return a.keepPair(out, authorityName, pair)
	})
	return cmd
}

func newCertNode(a *app) *cobra.Command {
	cmd := newCertOf(a, "node", certs.NewNode)
	cmd.Short = "Create a node's certificate: NAME.crt and NAME.key"
	cmd.Long = `Create a node's certificate: NAME.crt and NAME.key. NAME is that of "pawl serve --node". Nodes verify
each other's names; --host is only for other programs that connect to them.`
	cmd.Example = "  pawl cert node n1 --ca /etc/pawl/ca --out /etc/pawl --host n1.example.com,10.0.0.1"
	return cmd
}

func newCertServer(a *app) *cobra.Command {
	cmd := newCertOf(a, "server", certs.NewServer)
	cmd.Short = "Create a server certificate for clients: NAME.crt and NAME.key"
	cmd.Long = `Create a server certificate for "pawl serve --tls-cert NAME.crt --tls-key NAME.key". --host is
required: all names and IP addresses by which clients reach the server. Clients get the authority's
ca.crt (--tls-ca). Use a different authority from the nodes': a server's authority should not be
able to admit nodes.`
	cmd.Example = "  pawl cert server n1 --ca /etc/pawl/server-ca --out /etc/pawl/tls --host n1.example.com,10.0.0.1"
	return cmd
}

func newCertClient(a *app) *cobra.Command {
	cmd := newCertOf(a, "client", certs.NewClient)
	cmd.Short = "Create a client's certificate: NAME.crt and NAME.key"
	cmd.Long = `Create a client's certificate: NAME.crt and NAME.key, for "pawl --client-cert NAME.crt --client-key NAME.key". A
server started with --client-ca identifies it as uri:pawl://client/NAME, as subject:CN=NAME, and for each --host as
dns:HOST; it has the rights of a token created for one of these names.`
	cmd.Example = `  pawl cert client billing --ca /etc/pawl/clients-ca --out billing
  pawl token add billing --role produce --queue '*' --certificate uri:pawl://client/billing`
	return cmd
}

// newCertOf returns the command that creates certificates of a kind.
func newCertOf(a *app, kind string,
	make func(authority certs.Pair, now time.Time, days int, name string, hosts []string) (certs.Pair, error)) *cobra.Command {
	var ca, out string
	var hosts []string
	var days int
	cmd := &cobra.Command{Use: kind + " NAME --ca DIR --out DIR", Args: cobra.ExactArgs(1)}
	f := cmd.Flags()
	f.StringVar(&ca, "ca", "", "directory with ca.crt and ca.key")
	f.StringVar(&out, "out", "", "directory for NAME.crt and NAME.key")
	f.StringSliceVar(&hosts, "host", nil, "names and IP addresses of the "+kind+", for programs that check them")
	f.IntVar(&days, "days", nodeDays, "how long it is valid, at most as long as the authority")
	cmd.RunE = a.Run(func(_ *cobra.Command, args []string) error {
		name := args[0]
		if err := errors.Join(checkGiven("ca", ca), checkGiven("out", out), checkDays(days), checkCert(kind, name, hosts)); err != nil {
			return err
		}
		authority, err := readPair(ca, authorityName)
		if err != nil {
			return fmt.Errorf("--ca %q: %w", ca, err)
		}
		pair, err := make(authority, time.Now(), days, name, hosts)
		if errors.Is(err, certs.ErrOutlives) {
			return fmt.Errorf("--days %d: %w", days, err)
		}
		copied := ""
		if err == nil {
			copied, err = keepIssued(ca, name, pair.Cert)
		}
		if err != nil {
			return fmt.Errorf("--ca %q: %w", ca, err)
		}
		if err := a.keepPair(out, name, pair); err != nil {
			return errors.Join(err, os.Remove(copied))
		}
		return nil
	})
	return cmd
}

// keepIssued keeps a copy of a certificate with its authority, so that it can be revoked even if all other copies are
// lost. It returns its path.
func keepIssued(ca, name string, cert []byte) (path string, err error) {
	c, err := certs.Parse(cert)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(ca, issuedDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path = filepath.Join(dir, fmt.Sprintf("%s-%x.crt", name, c.SerialNumber))
	return path, certs.Replace(path, cert, 0o644)
}

func newCertRevoke(a *app) *cobra.Command {
	var ca string
	cmd := &cobra.Command{
		Use: "revoke CERT... --ca DIR", Short: "Revoke certificates of nodes or clients", Args: cobra.MinimumNArgs(1),
		Long: `Add certificates to the authority's list of revoked ones, which is in its ca.crt, after its own certificate. Give the new
ca.crt to all servers, in place of the file of --peer-ca or --client-ca: they notice it without a restart, refuse the
revoked certificates within a minute, and close their connections. DIR/issued has the certificates that "pawl cert" made.

Other authorities publish their lists themselves: append the list to the file of --peer-ca or --client-ca, in PEM.`,
		Example: "  pawl cert revoke /etc/pawl/ca/issued/n2-*.crt --ca /etc/pawl/ca",
	}
	cmd.Flags().StringVar(&ca, "ca", "", "directory with ca.crt and ca.key")
	cmd.RunE = a.Run(func(_ *cobra.Command, args []string) error {
		if err := checkGiven("ca", ca); err != nil {
			return err
		}
		unlock, err := certs.Lock(ca) // or one of two lists that are written at the same time would be lost
		if err != nil {
			return fmt.Errorf("--ca %q: %w", ca, err)
		}
		defer unlock()
		authority, err := readPair(ca, authorityName)
		if err != nil {
			return fmt.Errorf("--ca %q: %w", ca, err)
		}
		revoked := make([]*x509.Certificate, len(args))
		for i, path := range args {
			file, err := os.ReadFile(path)
			if err == nil {
				revoked[i], err = certs.Parse(file)
			}
			if err != nil {
				return fmt.Errorf("certificate %q: %w", path, err)
			}
		}
		file, err := certs.Revoke(authority, time.Now(), revoked)
		if err != nil {
			return fmt.Errorf("--ca %q: %w", ca, err)
		}
		path := filepath.Join(ca, authorityName+".crt")
		if err := certs.Replace(path, file, 0o644); err != nil {
			return fmt.Errorf("--ca %q: %w", ca, err)
		}
		return a.Print(map[string]string{"cert": path}, func(w io.Writer) { fmt.Fprintln(w, path) })
	})
	return cmd
}

// certView is the output of "pawl cert show".
type certView struct {
	Node        string    `json:"node,omitempty"`
	Server      bool      `json:"server"`          // usable for server authentication
	Client      bool      `json:"client"`          // usable for client authentication
	Names       []string  `json:"names,omitempty"` // of a client, for pawl token add --certificate
	Authority   bool      `json:"authority"`
	Revoked     int       `json:"revoked,omitempty"` // certificates that the authorities in the file have revoked
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	URIs        []string  `json:"uris,omitempty"`
	Hosts       []string  `json:"hosts,omitempty"`
	From        time.Time `json:"from"`
	Until       time.Time `json:"until"`
	Fingerprint string    `json:"sha256"`
}

func newCertShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "Show whom a certificate is for, and how long it is valid", Args: cobra.ExactArgs(1),
		Example: "  pawl cert show /etc/pawl/n1.crt",
		RunE: a.Run(func(_ *cobra.Command, args []string) error {
			v, err := viewCert(args[0])
			if err != nil {
				return err
			}
			return a.Print(v, func(w io.Writer) { writeCert(w, v) })
		}),
	}
}

func viewCert(path string) (certView, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return certView{}, err
	}
	c, err := certs.Parse(file)
	if err != nil {
		return certView{}, fmt.Errorf("certificate %q: %w", path, err)
	}
	revoked := 0
	if c.IsCA {
		trust, err := certs.ParseTrust(file)
		if err != nil {
			return certView{}, fmt.Errorf("certificate %q: %w", path, err)
		}
		revoked = trust.Revoked()
	}
	sum := sha256.Sum256(c.Raw)
	v := certView{
		Authority: c.IsCA, Revoked: revoked,
		Server:  slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth),
		Client:  slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth),
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Hosts: c.DNSNames,
		From: c.NotBefore, Until: c.NotAfter, Fingerprint: hex.EncodeToString(sum[:]),
	}
	for _, u := range c.URIs {
		v.URIs = append(v.URIs, u.String())
		if name, ok := strings.CutPrefix(u.String(), "pawl://node/"); ok {
			v.Node = name
		}
	}
	for _, ip := range c.IPAddresses {
		v.Hosts = append(v.Hosts, ip.String())
	}
	if v.Client && v.Node == "" {
		v.Names = certs.Names(c)
	}
	return v, nil
}

func writeCert(w io.Writer, v certView) {
	kind, now := "not an authority, a node, a server or a client", time.Now()
	switch {
	case v.Authority:
		kind = "authority"
	case v.Node != "":
		kind = "node " + v.Node
	case v.Server:
		kind = "server"
	case v.Client:
		kind = "client"
	}
	until := text.Clock(v.Until, now)
	if now.After(v.Until) {
		until += ", expired"
	}
	revoked := ""
	if v.Revoked > 0 {
		revoked = text.Count(int64(v.Revoked), "certificate")
	}
	text.Fields(w, "whose", kind, "names", strings.Join(v.Names, ", "), "subject", v.Subject, "issuer", v.Issuer, "uris",
		strings.Join(v.URIs, ", "), "hosts", strings.Join(v.Hosts, ", "), "from", text.Clock(v.From, now), "until", until,
		"revoked", revoked, "sha256", v.Fingerprint)
}

func checkGiven(flag, value string) error {
	if value == "" {
		return cli.Usage("--%s is required: a directory", flag)
	}
	return nil
}

func checkDays(days int) error {
	if days < 1 || days > certs.MaxDays {
		return cli.Usage("--days %d: want 1 to %d", days, certs.MaxDays)
	}
	return nil
}

func checkCert(kind, name string, hosts []string) error {
	if err := certs.CheckName(name); err != nil {
		return cli.Usage("NAME: %w", err)
	}
	if kind == "server" && len(hosts) == 0 {
		return cli.Usage("--host is required: names and IP addresses by which clients reach the server")
	}
	for _, h := range hosts {
		if err := certs.CheckHost(h); err != nil {
			return cli.Usage("--host: %w", err)
		}
	}
	return nil
}

func readPair(dir, name string) (p certs.Pair, err error) {
	if p.Cert, err = os.ReadFile(filepath.Join(dir, name+".crt")); err != nil {
		return p, err
	}
	p.Key, err = os.ReadFile(filepath.Join(dir, name+".key"))
	return p, err
}

// keepPair writes NAME.key, readable by its owner only, and NAME.crt, and prints their paths.
func (a *app) keepPair(dir, name string, p certs.Pair) error {
	cert, key := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out %q: %w", dir, err)
	}
	unlock, err := certs.Lock(dir) // or one of two that are made at the same time could get the key of the other
	if err != nil {
		return fmt.Errorf("--out %q: %w", dir, err)
	}
	defer unlock()
	if _, err := os.Lstat(cert); err == nil {
		return errThere(dir, cert)
	}
	if err := writeNew(dir, key, p.Key, 0o600); err != nil {
		return err
	}
	if err := writeNew(dir, cert, p.Cert, 0o644); err != nil {
		return errors.Join(err, os.Remove(key))
	}
	return a.Print(map[string]string{"cert": cert, "key": key}, func(w io.Writer) { fmt.Fprintf(w, "%s\n%s\n", cert, key) })
}

func errThere(dir, path string) error {
	return fmt.Errorf("--out %q: %s already exists, and is not overwritten", dir, path)
}

// writeNew writes a file, which must not exist yet.
func writeNew(dir, path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return errThere(dir, path)
	}
	if err != nil {
		return fmt.Errorf("--out %q: %w", dir, err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("--out %q: %w", dir, err), os.Remove(path))
	}
	return nil
}
