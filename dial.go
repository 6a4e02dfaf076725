package pawl

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

const (
	defaultPort = "7295"
	// maxMessage is the limit of one gRPC message on both sides.
	maxMessage = 16 << 20
	// The window is the bytes in flight before the receiver reads: some batches.
	streamWindow = 2 << 20
	connWindow   = 8 << 20
	// A connection that answers no ping for 15 s is dead, and is made anew.
	pingEvery   = 10 * time.Second
	pingTimeout = 5 * time.Second
	// defaultRetryFor outlasts a restart or a change of leader.
	defaultRetryFor = 30 * time.Second
)

// DialOption configures a Client.
type DialOption func(*dialConfig)

type dialConfig struct {
	tls       *tls.Config
	plaintext bool
	token     func() (string, error) // nil: none
	namespace string
	keys      *Keyring // nil: nothing is encrypted
	actor     string
	reason    string
	log       *slog.Logger
	dialer    func(context.Context, string) (net.Conn, error)
	retryFor  time.Duration
	eager     int
	indirect  bool
	grpc      []grpc.DialOption

	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
	linked     bool
}

// WithTLS encrypts all connections, with the nodes of a cluster too. A nil config means the system's roots; for a private
// authority, give its certificate as RootCAs. Each node must show a certificate for the host of the address by which it is
// reached, unless ServerName names one that all of them have. An address "https://host:port" does the same as WithTLS(nil).
//
// A server that was told whose certificates it may take (pawl serve --client-ca) knows a client by its own, Certificates or
// GetClientCertificate, in place of a token. The latter is asked at each handshake, so that a file that was renewed is taken up.
func WithTLS(config *tls.Config) DialOption {
	return func(c *dialConfig) {
		c.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		if config != nil {
			c.tls = config.Clone()
		}
	}
}

// WithPlaintext allows a connection without TLS to an address that is not on this machine.
func WithPlaintext() DialOption { return func(c *dialConfig) { c.plaintext = true } }

// WithToken sends the token with each call, as "authorization: Bearer token". "" is none.
func WithToken(token string) DialOption {
	if token == "" {
		return func(c *dialConfig) { c.token = nil }
	}
	return WithTokenSource(func() (string, error) { return token, nil })
}

// WithTokenSource asks for the token before each call and each enqueue, so that a token that is replaced while the program runs is taken up: source
// must be fast, and may be called from any goroutine. A call for which it fails is not made.
func WithTokenSource(source func() (string, error)) DialOption {
	return func(c *dialConfig) { c.token = source }
}

// WithNamespace says to which namespace the calls go. It is for tokens that are good for all namespaces; others have one.
func WithNamespace(name string) DialOption { return func(c *dialConfig) { c.namespace = name } }

// WithLogger sets where the client and its workers log. The default is slog.Default at the time of Dial.
func WithLogger(log *slog.Logger) DialOption { return func(c *dialConfig) { c.log = log } }

// WithoutDirect keeps the client to the addresses of Dial, one connection at a time. Without it a client of a cluster also
// connects to the nodes that lead what it works on, at the addresses that they advertise.
func WithoutDirect() DialOption { return func(c *dialConfig) { c.indirect = true } }

// WithDialer makes the connections itself: in-memory pipes, proxies, tunnels. It is given an address of Dial, or one that a
// node of the cluster advertises, and implies WithPlaintext.
func WithDialer(dial func(ctx context.Context, addr string) (net.Conn, error)) DialOption {
	return func(c *dialConfig) { c.dialer = dial }
}

// WithRetryFor sets how long a call is repeated while the broker is unavailable, if its context does not end before.
// The default is 30 s; 0 means that nothing is repeated. Workers reconnect for ever, whatever is set here.
func WithRetryFor(d time.Duration) DialOption { return func(c *dialConfig) { c.retryFor = d } }

// WithGRPC passes options on to grpc.NewClient: interceptors, stats handlers. Enqueues are frames of a stream, ProducerService/Produce: unary
// interceptors don't see them.
func WithGRPC(opts ...grpc.DialOption) DialOption {
	return func(c *dialConfig) { c.grpc = append(c.grpc, opts...) }
}

// withEager sets how many small requests of gathered enqueues may be in flight; for the benchmark that chose eagerRequests.
func withEager(n int) DialOption { return func(c *dialConfig) { c.eager = n } }

// grpcOptions says how connections are made.
func (c *dialConfig) grpcOptions() []grpc.DialOption {
	var creds credentials.TransportCredentials = plain{insecure.NewCredentials()}
	if c.tls != nil {
		creds = credentials.NewTLS(c.tls)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDisableServiceConfig(), // what is repeated, and how, is decided here
		grpc.WithDisableRetry(),
	}
	if c.token != nil || c.namespace != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(c.caller()))
	}
	if c.dialer != nil {
		opts = append(opts, grpc.WithContextDialer(c.dialer))
	}
	return append(opts, c.grpc...)
}

// targets checks the address, or the list of them, that Dial was given.
func (c *dialConfig) targets(addr string) (string, []grpc.DialOption, error) {
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

// https begins an address that is reached over TLS.
const https = "https://"

// readSchemes takes https:// off the addresses of a list, and makes the client use TLS for it. Either all of them have it or
// none: no call must go in plaintext because it happened to take another node.
func (c *dialConfig) readSchemes(list []string) error {
	with := 0
	for i, addr := range list {
		at, ok := strings.CutPrefix(strings.TrimSpace(addr), https)
		if !ok {
			continue
		}
		_, _, err := net.SplitHostPort(at) // without a port: 443 or 7295? Let nobody guess
		if (err != nil || strings.Contains(at, "/")) && c.dialer == nil {
			return invalid("addr", "%q: want https://host:port", addr)
		}
		list[i] = at
		with++
	}
	if with > 0 && with < len(list) {
		return invalid("addr", "%d of %d addresses have https://: give it to all of them, or to none", with, len(list))
	}
	if with > 0 && c.tls == nil {
		WithTLS(nil)(c)
	}
	return nil
}

// maxAddresses is how many nodes a client may be told: more than it would ever try.
const maxAddresses = 32

// nodes gives a list of addresses in gRPC's notation.
func (c *dialConfig) nodes(list []string) (string, []grpc.DialOption, error) {
	if len(list) > maxAddresses {
		return "", nil, invalid("addr", "%d addresses, at most %d are allowed", len(list), maxAddresses)
	}
	var all []resolver.Address
	for _, addr := range list {
		target, err := c.target(strings.TrimSpace(addr))
		if err != nil {
			return "", nil, err
		}
		at := strings.TrimPrefix(strings.TrimPrefix(target, "dns:///"), "passthrough:///")
		host, _, err := net.SplitHostPort(at)
		if strings.HasPrefix(at, "unix:") || err != nil && c.dialer == nil {
			return "", nil, invalid("addr", "%q: a list takes only host:port", addr)
		}
		all = append(all, resolver.Address{Addr: at, ServerName: host})
	}
	return "pawl:///nodes", newAddressList(all).options(), nil
}

// connectTo makes a client of one node, at an address that the cluster's map gave. What Dial would refuse is refused here, too.
func (c *dialConfig) connectTo(addr string) (*grpc.ClientConn, error) {
	if err := checkAdvertised(addr); err != nil {
		return nil, err
	}
	target, err := c.target(addr)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(target, c.grpcOptions()...)
}

// maxAddress bounds an address of a map: a domain name has at most 253 bytes.
const maxAddress = 300

// checkAdvertised refuses what is not the host and port of one node: the map may be anything.
func checkAdvertised(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || len(addr) > maxAddress {
		return invalid("addr", "%q is not host:port", cutText(addr, maxAddress))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return invalid("addr", "%q: the port is not a number from 1 to 65535", addr)
	}
	strange := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_:", r))
	}
	if ip := net.ParseIP(host); host == "" || strings.ContainsFunc(host, strange) || ip != nil && ip.IsUnspecified() {
		return invalid("addr", "%q names no host", addr)
	}
	return nil
}

// target checks addr ("host", "host:port" or "unix:///path"), which has no https:// any more, and gives it in gRPC's notation.
func (c *dialConfig) target(addr string) (string, error) {
	if c.dialer != nil {
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
		return "", invalid("addr", "%q is not host:port", addr)
	}
	if c.tls == nil && !c.plaintext && !loopback(host) {
		return "", invalid("addr", "%q is not on this machine: add https:// or pawl.WithTLS, or pawl.WithPlaintext for a network that you trust", addr)
	}
	return "dns:///" + net.JoinHostPort(host, port), nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// plain is no encryption at all, which says so to who finds that the server wants it.
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

// plainConn looks at the first byte of what comes.
type plainConn struct {
	net.Conn
	heard bool // only its reader asks
}

var errNotPlain = errors.New("the server does not speak HTTP/2 in plaintext: if it wants TLS, use https:// or pawl.WithTLS")

// Read implements net.Conn. HTTP/2 begins with the length of a frame of settings, of which the first of three bytes is 0; a
// server that wants TLS says something else, an alert or that the request is bad.
func (c *plainConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.heard && n > 0 {
		if c.heard = true; b[0] != 0 {
			return 0, errNotPlain
		}
	}
	return n, err
}

// caller is who calls, and where to, as gRPC's credentials of each call.
type caller struct {
	token     func() (string, error) // nil: none
	namespace string
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c caller) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
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

func (c *dialConfig) caller() caller { return caller{c.token, c.namespace} }

// secret is the token at this moment; "": none.
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

// RequireTransportSecurity implements credentials.PerRPCCredentials: Dial has decided already.
func (caller) RequireTransportSecurity() bool { return false }
