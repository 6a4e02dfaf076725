// Package route connects to a broker, or to the nodes of a cluster, and sends each call to the node that leads its shard. It does not know
// what calls mean, only where they belong.
package route

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/internal/grpcpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

const (
	defaultPort = "7295"
	// The window is the bytes in flight before the receiver reads: a few batches.
	streamWindow = 2 << 20
	connWindow   = 8 << 20
	// A connection that answers no ping for 15 s is dead, and is replaced.
	pingEvery   = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// Config configures connections and the credentials of calls.
type Config struct {
	TLS       *tls.Config            // nil: plaintext
	Plaintext bool                   // allow it to addresses that are not on this machine
	Token     func() (string, error) // nil: none
	Namespace string
	Log       *slog.Logger
	Dialer    func(context.Context, string) (net.Conn, error) // nil: the system's
	Indirect  bool                                            // use only the addresses given to Dial
	GRPC      []grpc.DialOption
}

func (c *Config) credentials() credentials.TransportCredentials {
	if c.TLS != nil {
		return credentials.NewTLS(c.TLS)
	}
	return plain{insecure.NewCredentials()}
}

// grpcOptions returns the options of a connection, except its credentials.
func (c *Config) grpcOptions() []grpc.DialOption {
	opts := append(grpcpool.DialOptions(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rpc.MaxMessage), grpc.MaxCallSendMsgSize(rpc.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDisableServiceConfig(), // retries are decided by package rpc
		grpc.WithDisableRetry(),
	)
	if c.Token != nil || c.Namespace != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(c.caller()))
	}
	if c.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(c.Dialer))
	}
	return append(opts, c.GRPC...)
}

// targets checks the address, or the list of addresses, given to Dial.
func (c *Config) targets(addr string) (string, []grpc.DialOption, error) {
	list := strings.Split(addr, ",")
	if err := c.readSchemes(list); err != nil {
		return "", nil, err
	}
	if len(list) > 1 {
		return c.nodes(list)
	}
	target, err := c.target(list[0])
	return target, nil, err
}

// https is the prefix of an address that is reached over TLS.
const https = "https://"

// readSchemes removes https:// from the addresses of a list, and makes the client use TLS if it was there. Either all of them have it or
// none: no call may be sent in plaintext because it happened to go to another node.
func (c *Config) readSchemes(list []string) error {
	with := 0
	for i, addr := range list {
		at, ok := strings.CutPrefix(strings.TrimSpace(addr), https)
		if !ok {
			continue
		}
		_, _, err := net.SplitHostPort(at) // without a port, 443 and 7295 are both plausible: don't guess
		if (err != nil || strings.Contains(at, "/")) && c.Dialer == nil {
			return convert.Invalid("addr", "%q: want https://host:port", addr)
		}
		list[i] = at
		with++
	}
	if with > 0 && with < len(list) {
		return convert.Invalid("addr", "%d of %d addresses have https://: give it to all of them, or to none", with, len(list))
	}
	if with > 0 && c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return nil
}

// maxAddresses is how many addresses a list can have: more than a client would ever try.
const maxAddresses = 32

// nodes converts a list of addresses to gRPC's notation.
func (c *Config) nodes(list []string) (string, []grpc.DialOption, error) {
	if len(list) > maxAddresses {
		return "", nil, convert.Invalid("addr", "%d addresses, at most %d are allowed", len(list), maxAddresses)
	}
	var all []resolver.Address
	for _, addr := range list {
		target, err := c.target(strings.TrimSpace(addr))
		if err != nil {
			return "", nil, err
		}
		at := strings.TrimPrefix(strings.TrimPrefix(target, "dns:///"), "passthrough:///")
		host, _, err := net.SplitHostPort(at)
		if strings.HasPrefix(at, "unix:") || err != nil && c.Dialer == nil {
			return "", nil, convert.Invalid("addr", "%q: a list takes only host:port", addr)
		}
		all = append(all, resolver.Address{Addr: at, ServerName: host})
	}
	return "pawl:///nodes", newAddressList(all).options(), nil
}

// connectTo returns a client of one node, at an address from the cluster's map. What Dial would reject is rejected here, too.
func (c *Config) connectTo(addr string) (*conn, error) {
	if err := checkAdvertised(addr); err != nil {
		return nil, err
	}
	target, err := c.target(addr)
	if err != nil {
		return nil, err
	}
	return c.open(target)
}

// maxAddress bounds an address in a map: a domain name has at most 253 bytes.
const maxAddress = 300

// checkAdvertised rejects anything but the host and port of one node: the map is not trusted.
func checkAdvertised(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || len(addr) > maxAddress {
		return convert.Invalid("addr", "%q is not host:port", convert.CutText(addr, maxAddress))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return convert.Invalid("addr", "%q: the port is not a number from 1 to 65535", addr)
	}
	strange := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_:", r))
	}
	if host == "" || strings.ContainsFunc(host, strange) || net.ParseIP(host).IsUnspecified() {
		return convert.Invalid("addr", "%q has no host", addr)
	}
	return nil
}

// target checks addr ("host", "host:port" or "unix:///path"), from which https:// has been removed, and converts it to gRPC's notation.
func (c *Config) target(addr string) (string, error) {
	if c.Dialer != nil {
		return "passthrough:///" + addr, nil
	}
	if strings.HasPrefix(addr, "unix:") {
		return addr, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = strings.Trim(addr, "[]"), defaultPort
	}
	if host == "" || strings.ContainsAny(host, "/ ") || strings.Contains(port, "/") {
		return "", convert.Invalid("addr", "%q is not host:port", addr)
	}
	if c.TLS == nil && !c.Plaintext && !loopback(host) {
		return "", convert.Invalid("addr", "%q is not on this machine: add https:// or DialOptions.TLS, or DialOptions.Plaintext "+
			"for a network that you trust", addr)
	}
	return "dns:///" + net.JoinHostPort(host, port), nil
}

// Address returns the host and the port of an address given to Dial: for a Unix socket only the path; for several addresses nothing, since
// it is not known beforehand which will answer.
func Address(addr string) (host, port string) {
	addr = strings.TrimPrefix(strings.TrimSpace(addr), https)
	if addr == "" || strings.Contains(addr, ",") {
		return "", ""
	}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return strings.TrimPrefix(path, "//"), ""
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return strings.Trim(addr, "[]"), defaultPort
	}
	return host, port
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// plain is plaintext that returns a helpful error if the server requires TLS.
type plain struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (p plain) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := p.TransportCredentials.ClientHandshake(ctx, authority, conn)
	return &plainConn{Conn: conn}, info, err
}

// Clone implements credentials.TransportCredentials.
func (p plain) Clone() credentials.TransportCredentials { return plain{p.TransportCredentials.Clone()} }

// plainConn checks the first byte that it receives.
type plainConn struct {
	net.Conn
	heard bool // used only by the reader
}

var errNotPlain = errors.New("the server does not speak HTTP/2 in plaintext: if it requires TLS, use https:// or DialOptions.TLS")

// Read implements net.Conn. HTTP/2 starts with the length of a SETTINGS frame, of which the first of three bytes is 0; a server that
// requires TLS sends something else, an alert or a "bad request".
func (c *plainConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.heard && n > 0 {
		if c.heard = true; b[0] != 0 {
			return 0, errNotPlain
		}
	}
	return n, err
}

// caller has the credentials and the namespace of each call.
type caller struct {
	token     func() (string, error) // nil: none
	namespace string
}

// GetRequestMetadata implements credentials.PerRPCCredentials. Health checks are public, and find out who answers: they
// don't have the credentials.
func (c caller) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if of, _ := credentials.RequestInfoFromContext(ctx); of.Method == grpc_health_v1.Health_Check_FullMethodName {
		return nil, nil
	}
	md := map[string]string{}
	if c.namespace != "" {
		md["pawl-namespace"] = c.namespace
	}
	if c.token == nil {
		return md, nil
	}
	token, err := c.secret()
	if err != nil {
		return nil, err
	}
	md["authorization"] = "Bearer " + token
	return md, nil
}

func (c *Config) caller() caller { return caller{c.Token, c.Namespace} }

// secret returns the current token; "": none.
func (c caller) secret() (string, error) {
	if c.token == nil {
		return "", nil
	}
	token, err := c.token()
	if err != nil {
		return "", status.Errorf(codes.Unauthenticated, "no token: %v", err)
	}
	return token, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: Dial has already decided.
func (caller) RequireTransportSecurity() bool { return false }
