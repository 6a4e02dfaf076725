package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/transport"
	"github.com/pawlq/pawl/internal/webhook"
)

// Config says what a node is to be.
type Config struct {
	// Dir is the data directory. InMemory, for tests, keeps everything in memory instead.
	Dir      string
	InMemory bool

	// Name is the node's name in its cluster, unlike that of any other; "": n1. A directory keeps the name that it was made with.
	Name string

	// Listener takes connections of clients, PeerListener those of other nodes; nil: there are none. Once Start has succeeded
	// the node closes them.
	Listener, PeerListener net.Listener
	// Certificate is what clients are shown at a handshake; it may change from one to the next. Nil: they speak plaintext.
	Certificate func() *tls.Certificate
	// ClientCertificates says which certificates of clients are taken in place of tokens; zero: none.
	ClientCertificates ClientCertificates
	// Debug takes connections for metrics and Profiles, without access control; nil: there are none. The node closes it like Listener.
	Debug net.Listener
	// Profiles answers below /debug/pprof/; nil: not found. They are not the node's own: a program that can make profiles of its memory
	// takes samples all the time.
	Profiles http.Handler
	// APIAddress and PeerAddress are where others reach them; "": where they listen.
	APIAddress, PeerAddress string
	// Join are the addresses for nodes of those that form the cluster together, this one's among them or not, or of some
	// members. A directory that belongs to a cluster does without. With none, a new directory is a cluster of its own.
	Join []string
	// PeerTLS proves to other nodes who this one is, and the other way round; nil: nothing is proved, and all is in the clear.
	PeerTLS *transport.TLS
	// DialPeer connects to other nodes; nil: over TCP.
	DialPeer func(ctx context.Context, address string) (net.Conn, error)
	// SQS opens the door for clients of Amazon SQS, on Listener.
	SQS bool
	// BasePath is a prefix that the paths of REST and of the web UI may have, such as "/pawl", for a proxy; "": none.
	BasePath string
	// Hosts are names by which the node may be called over HTTP while calls need no token, beside that of APIAddress; see ParseHosts.
	Hosts Hosts
	// ReplaceAfter is how long a node must be silent before its replicas are made anew on others; 0: 5 minutes.
	ReplaceAfter time.Duration

	// DataShards is how many data shards the cluster has, 1 to 64, as the flag --shards says; 0: as many as it has, and 1 in a
	// new one. A larger number adds shards, for queues that are new; a smaller one is refused.
	DataShards int

	// Tokens says whether calls need a token.
	Tokens TokenMode
	// AdminToken is the token that may do everything at this node, as it is now; "": there is none. Nil: there is never one.
	AdminToken func() string

	Limits    task.Limits
	MaxQueues int
	// MaxConnsPerAddress bounds the API's connections from one address, but for those of this machine; default 5,000.
	MaxConnsPerAddress int

	// WebhookNetworks are those that notices of webhooks may go to beside the public internet; see ParseNetworks.
	WebhookNetworks []netip.Prefix
	dialWebhook     func(ctx context.Context, network, address string) (net.Conn, error) // of tests; nil: the network

	// MinFree is how many bytes of disk must be free for enqueues to be taken.
	MinFree   int64
	diskBytes func(dir string) (free, total int64, err error) // of tests; nil: the disk is asked

	ArchiveMaxBytes int64
	ArchiveMaxAge   int // days

	// AcceptDataLoss opens what is left of a log that is ErrDamaged, under a new epoch, which makes all claims void. Lost is
	// what was answered from the damage on and had not been flushed to a shard's state.
	AcceptDataLoss bool

	Version string
	Logger  *slog.Logger
	// LogHeaders names the headers that the log line of a dead letter has, see ParseLogHeaders; nil: DefaultLogHeaders, empty: none.
	LogHeaders []string
	Tracers    trace.TracerProvider // nil: no spans
	Time       store.TimeSource
	// Fatal is called, at most once, when the node can't go on. The process should end at once: it may hold in memory
	// what its disk does not.
	Fatal func(error)
}

// TokenMode says whether calls need a token.
type TokenMode = auth.Mode

// Whether calls need a token: as the cluster says, which begins with no; yes, and the cluster is told so; no, and so is the cluster,
// though not those of its nodes that were told otherwise.
const (
	TokensAsCluster = auth.AsCluster
	TokensAlways    = auth.Always
	TokensNever     = auth.Never
)

// ClientCertificates says which certificates clients may show.
type ClientCertificates = gateway.ClientCertificates

// Hosts are names of a server.
type Hosts = gateway.Hosts

// ParseHosts reads names such as pawl.example.com, and .example.com for that name and all below it.
func ParseHosts(texts []string) (Hosts, error) { return gateway.ParseHosts(texts) }

// NewToken makes a token that stands in no table: for Config.AdminToken.
func NewToken() string { return auth.NewSecret() }

// CheckToken refuses what can't be a token.
func CheckToken(token string) error { return auth.CheckSecret(token) }

// ParseNetworks reads networks such as 10.1.0.0/16.
func ParseNetworks(texts []string) ([]netip.Prefix, error) { return webhook.ParseNetworks(texts) }

// DefaultLogHeaders are the headers that the log line of a dead letter has by default.
func DefaultLogHeaders() []string { return broker.DefaultLogHeaders() }

// ParseLogHeaders reads names of headers for Config.LogHeaders.
func ParseLogHeaders(texts []string) ([]string, error) { return broker.ParseLogHeaders(texts) }

// Defaults of Config.
const (
	DefaultName               = "n1"
	DefaultMinFree            = 256 << 20
	DefaultArchiveDays        = 90
	maxDataShards             = 64
	systemShard        uint32 = 0
)

func (c *Config) setDefaults() error {
	if c.DataShards < 0 || c.DataShards > maxDataShards {
		return fmt.Errorf("shards: %d is not between 1 and %d", c.DataShards, maxDataShards)
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
	if c.Limits == (task.Limits{}) {
		c.Limits = task.DefaultLimits()
	}
	if c.MinFree == 0 {
		c.MinFree = DefaultMinFree
	}
	if c.diskBytes == nil {
		c.diskBytes = diskBytes
	}
	if c.ArchiveMaxAge == 0 {
		c.ArchiveMaxAge = DefaultArchiveDays
	}
	if c.LogHeaders == nil {
		c.LogHeaders = DefaultLogHeaders()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Time.Wall == nil {
		c.Time = store.SystemTime()
	}
	if c.Fatal == nil {
		c.Fatal = func(err error) { panic(err) }
	}
	return nil
}

// tracer makes the spans of the broker; nil: there are none.
func (c *Config) tracer() trace.Tracer {
	if c.Tracers == nil {
		return nil
	}
	return c.Tracers.Tracer("github.com/pawlq/pawl/internal/broker", trace.WithInstrumentationVersion(c.Version), trace.WithSchemaURL(semconv.SchemaURL))
}

// basePath is what a prefix of paths looks like: segments of letters, digits and a few signs.
var basePath = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

func checkBasePath(p string) error {
	if p == "" || len(p) <= maxBasePath && basePath.MatchString(p) && !strings.HasPrefix(p+"/", "/api/") {
		return nil
	}
	return fmt.Errorf("base path: %q is not one such as /pawl or /tools/pawl: it has segments of letters, digits and . _ ~ -, no slash at its end, "+
		"at most %d bytes, and does not begin with /api", p, maxBasePath)
}

const maxBasePath = 200
