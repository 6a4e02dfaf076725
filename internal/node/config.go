package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker/tasklog"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/transport"
	"github.com/pawlq/pawl/internal/webhook"
)

// Config holds the settings of a node.
type Config struct {
	// Dir is the data directory. InMemory, for tests, keeps everything in memory instead.
	Dir      string
	InMemory bool
	fs       vfs.FS // of Dir, except for archive and statistics; for tests; nil: the operating system's

	// Name is the node's name, unique in its cluster; "": n1. A directory keeps the name that it was created with.
	Name string

	// Listener accepts connections from clients, which get an error until the node serves. Start takes it over: it is closed when Start
	// fails or the node stops. PeerListener accepts connections from other nodes; nil: there are none. Once Start has succeeded the node
	// closes it.
	Listener, PeerListener net.Listener
	// Certificate returns the certificate for a handshake with a client; it may change between handshakes. Nil: clients use
	// plaintext.
	Certificate func() *tls.Certificate
	// ClientCertificates says which client certificates are accepted instead of tokens; zero: none.
	ClientCertificates ClientCertificates
	// Debug accepts connections for metrics and Profiles, without access control; nil: there are none. The node closes it like
	// Listener.
	Debug net.Listener
	// Profiles serves paths below /debug/pprof/; nil: not found. The node has none of its own: a program that links in memory
	// profiling samples allocations all the time.
	Profiles http.Handler
	// APIAddress and PeerAddress are where others reach the listeners; "": where they listen.
	APIAddress, PeerAddress string
	// Join are the peer addresses of the nodes that form the cluster together, with or without this node's, or of some members. A
	// directory that belongs to a cluster needs none. Without any, a new directory becomes a cluster of its own.
	Join []string
	// PeerTLS authenticates this node to other nodes and vice versa; nil: no authentication and no encryption.
	PeerTLS *transport.TLS
	// DialPeer connects to other nodes; nil: over TCP.
	DialPeer func(ctx context.Context, address string) (net.Conn, error)
	// SQS serves clients of Amazon SQS on Listener.
	SQS bool
	// BasePath is an optional prefix of the paths of REST and of the web UI, such as "/pawl", for a proxy; "": none.
	BasePath string
	// UIIdle is after how long without use a visitor of the web UI must log in again; 0: ui.DefaultIdle.
	UIIdle time.Duration
	// Hosts are the names accepted in HTTP's Host header while calls need no token, besides that of APIAddress; see ParseHosts.
	Hosts Hosts

	// DataShards is the number of data shards of the cluster, 1 to 64, as set by the flag --shards; 0: as many as it has, and 1 in
	// a new one. A larger number adds shards, for new queues; a smaller one is refused.
	DataShards int

	// Tokens determines whether calls need a token.
	Tokens TokenMode
	// Trail records logins, refusals and reads; nil: logins and refusals, only in the log.
	Trail *trail.Trail
	// AdminToken returns the current token that may do everything at this node; "": there is none. Nil: there never is.
	AdminToken func() string

	// MaxConnsPerAddress bounds the API's connections from one address, except those from this machine; default 5,000.
	MaxConnsPerAddress int

	// WebhookNetworks are the networks that webhooks of each namespace may be sent to besides the public internet; see ParseNetworks.
	WebhookNetworks webhook.Networks
	dialWebhook     func(ctx context.Context, network, address string) (net.Conn, error) // for tests; nil: the network

	// MinFree is how many bytes of disk must be free for enqueues to be accepted.
	MinFree   int64
	diskBytes func(dir string) (free, total int64, err error) // for tests; nil: asks the disk

	// AcceptDataLoss opens what remains of a log that is ErrDamaged, under a new epoch, which invalidates all claims. Lost is what
	// was acknowledged from the damage on and had not been flushed to a shard's state.
	AcceptDataLoss bool

	Version string
	Logger  *slog.Logger
	// LogHeaders names the headers to include in the log line of a dead letter, see ParseLogHeaders; nil: DefaultLogHeaders, empty:
	// none.
	LogHeaders []string
	Tracers    trace.TracerProvider // nil: no spans
	Time       store.TimeSource
	// Fatal is called, at most once, when the node can't continue. The process should exit immediately: it may hold in memory what
	// its disk does not.
	Fatal func(error)
}

// TokenMode determines whether calls need a token.
type TokenMode = auth.Mode

// The modes: the cluster's setting decides, which is no at first; calls need a token, and the cluster's setting becomes
// yes; they need none, and it becomes no, which does not affect nodes configured otherwise.
const (
	TokensAsCluster = auth.AsCluster
	TokensAlways    = auth.Always
	TokensNever     = auth.Never
)

// ClientCertificates says which certificates clients may present.
type ClientCertificates = listen.ClientCertificates

// Hosts are names of a server.
type Hosts = listen.Hosts

// ParseHosts parses names such as pawl.example.com, and .example.com for that name and all below it.
func ParseHosts(texts []string) (Hosts, error) { return listen.ParseHosts(texts) }

// ParseNetworks parses networks such as shop=10.1.0.0/16; see webhook.ParseNetworks.
func ParseNetworks(texts []string) (webhook.Networks, error) { return webhook.ParseNetworks(texts) }

// DefaultLogHeaders are the headers that the log line of a dead letter has by default.
func DefaultLogHeaders() []string { return tasklog.Default() }

// ParseLogHeaders parses names of headers for Config.LogHeaders.
func ParseLogHeaders(texts []string) ([]string, error) { return tasklog.Parse(texts) }

// Defaults of Config.
const (
	DefaultName           = "n1"
	DefaultMinFree        = 256 << 20
	systemShard    uint32 = 0
)

func (c *Config) setDefaults() error {
	if c.DataShards < 0 || c.DataShards > datadir.MaxShards {
		return fmt.Errorf("shards: %d is not between 1 and %d", c.DataShards, datadir.MaxShards)
	}
	if err := checkBasePath(c.BasePath); err != nil {
		return err
	}
	if c.Name == "" {
		c.Name = DefaultName
	}
	if err := cluster.CheckName(c.Name); err != nil {
		return err
	}
	if c.APIAddress == "" {
		c.APIAddress = c.Listener.Addr().String()
	}
	c.Hosts = c.Hosts.With(c.APIAddress)
	if c.PeerAddress == "" && c.PeerListener != nil {
		c.PeerAddress = c.PeerListener.Addr().String()
	}
	if len(c.Join) > 0 && c.PeerListener == nil {
		return errors.New("--join (Join) is given, but no --peer-listen (PeerListener): other nodes must reach this one")
	}
	if c.fs == nil {
		c.fs = ondisk.OS
	}
	if c.MinFree == 0 {
		c.MinFree = DefaultMinFree
	}
	if c.diskBytes == nil {
		c.diskBytes = datadir.DiskBytes
	}
	if c.LogHeaders == nil {
		c.LogHeaders = DefaultLogHeaders()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Trail == nil {
		c.Trail = trail.New(trail.Config{Kinds: trail.Usual(), Log: c.Logger})
	}
	if c.Time.Wall == nil {
		c.Time = store.SystemTime()
	}
	if c.Fatal == nil {
		c.Fatal = func(err error) { panic(err) }
	}
	return nil
}

// tracer returns the tracer for the broker's spans; nil: there are none.
func (c *Config) tracer() trace.Tracer {
	if c.Tracers == nil {
		return nil
	}
	return c.Tracers.Tracer("github.com/pawlq/pawl/internal/broker", trace.WithInstrumentationVersion(c.Version),
		trace.WithSchemaURL(semconv.SchemaURL))
}

// basePath is the form of a prefix of paths: segments of letters, digits and a few other characters.
var basePath = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

func checkBasePath(p string) error {
	if p == "" || len(p) <= maxBasePath && basePath.MatchString(p) && !strings.HasPrefix(p+"/", "/api/") {
		return nil
	}
	return fmt.Errorf("base path: %q is not a path such as /pawl or /tools/pawl: it has segments of letters, digits and . _ ~ -, no slash "+
		"at its end, at most %d bytes, and does not begin with /api", p, maxBasePath)
}

const maxBasePath = 200
