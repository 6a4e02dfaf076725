// Package serve implements "pawl serve": it reads a server's settings, composes a node and runs it until a signal ends it.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/tracing"
	"github.com/pawlq/pawl/cmd/pawl/internal/config"
	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/node"
	"github.com/pawlq/pawl/internal/ui"
	"github.com/pawlq/pawl/internal/version"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flags are a server's settings.
type flags struct {
	connsPerAddress                                     int
	config, data, listen, basePath, logFormat, logLevel string
	debug                                               string
	shards                                              int
	minFree                                             cli.SizeValue
	drainTimeout, uiIdle                                time.Duration
	acceptDataLoss, sqs                                 bool
	auth                                                authFlags
	tls                                                 tlsFlags
	peers                                               peerFlags
	hookNetworks, hosts, logHeaders, auditEvents        []string
}

func (s *flags) add(flags *pflag.FlagSet) {
	s.minFree = node.DefaultMinFree
	flags.StringVar(&s.config, "config", "", "YAML file with settings, named like the flags (env PAWL_CONFIG)")
	flags.StringVar(&s.data, "data", "./pawl-data", "data directory")
	flags.StringVar(&s.listen, "listen", cli.DefaultServer, "address to serve on")
	flags.IntVar(&s.connsPerAddress, "max-connections-per-address", 5000,
		"maximum client connections per address, except from this machine")
	flags.BoolVar(&s.sqs, "sqs", false, "also serve Amazon SQS clients, on the address of --listen")
	flags.StringVar(&s.basePath, "base-path", "", "path prefix of the web UI and REST behind a proxy, such as /pawl")
	cli.PeriodVar(flags, &s.uiIdle, "ui-idle", ui.DefaultIdle,
		"time without use after which a visitor of the web UI must log in again, 1m to 12h")
	flags.StringSliceVar(&s.hosts, "allowed-hosts", nil,
		"host names that the web UI and REST accept while no token is required, in addition to those of --listen and --advertise; "+
			".example.com includes all subdomains")
	flags.StringVar(&s.debug, "debug-listen", "", "loopback address for profiles (/debug/pprof/) and /metrics, without access control; "+
		"none by default")
	flags.IntVar(&s.shards, "shards", 0, "data shards, 1 to 64; the number can grow (default: that of the data directory; 1 for a new one)")
	flags.StringVar(&s.logFormat, "log-format", "text", "format of the log on standard error: text or json")
	flags.StringVar(&s.logLevel, "log-level", "info", "lowest level to log: debug, info, warn or error")
	flags.StringSliceVar(&s.logHeaders, "log-headers", node.DefaultLogHeaders(),
		"task headers to log with a dead letter, cut to 200 bytes each; '' for none")
	flags.StringSliceVar(&s.auditEvents, "audit-events", []string{"logins", "refusals"},
		"events that change nothing and are recorded nonetheless, in the log and over OTLP: "+
			"logins, refusals, reads (of payloads, results and checkpoints); '' for none")
	flags.Var(&s.minFree, "min-free", "free disk space below which new tasks are refused")
	cli.PeriodVar(flags, &s.drainTimeout, "drain-timeout", 25*time.Second, "how long calls under way may take to end on shutdown")
	flags.BoolVar(&s.acceptDataLoss, "accept-data-loss", false,
		"start with the undamaged part of a log: see the error that reports the damage")
	flags.StringSliceVar(&s.hookNetworks, "webhook-allow-network", nil,
		"[NAMESPACE=]network that webhooks of a namespace may call in addition to the public internet, "+
			"also over http: shop=10.1.0.0/16, *=10.1.0.0/16 for all; repeatable")
	s.auth.add(flags)
	s.tls.add(flags)
	s.peers.add(flags)
}

// New returns the command "pawl serve".
func New(a *cli.App) *cobra.Command {
	var s flags
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a server", Args: cli.NoArgs,
		Long: `Run a server on a data directory. Once it serves, it prints the line "ready" with its address on standard
output. The log goes to standard error; --log-format is the format of both. On SIGTERM or SIGINT it drains:
it hands over its shards, sends workers to other nodes, and gives calls under way up to --drain-timeout to
end. Running tasks keep their claims: workers settle them with another node, or with this one when it is
back. A second signal ends it immediately; nothing that was acknowledged is lost.

Several servers form a cluster: give each its own name (--node), an address for the others
(--peer-listen), and the addresses of all of them (--join). A server added later needs only one of them.

With --tls-cert and --tls-key clients use TLS, for both REST and gRPC ("pawl cert server" creates the
two files). When the files change, the server rereads them without a restart. --tls-dir makes and renews
a certificate of the server's own authority instead.

With --auth every call needs a token. The first one is in the file of --admin-token-file; use it with
"pawl token add" to create others. With --client-ca callers can present certificates instead.
Without tokens, REST and the web UI accept only requests to an IP address, to localhost, or to the
host of --listen, --advertise or --allowed-hosts. Otherwise pages of any website could call them.

Settings come from the file of --config, the environment (PAWL_DATA for --data, and so on) and flags;
later ones take precedence. OpenTelemetry's standard variables, such as OTEL_EXPORTER_OTLP_ENDPOINT,
enable traces, and send audit events as log records.`,
		Example: `  pawl serve
  pawl serve --data /var/lib/pawl --log-format json
  pawl serve --node n1 --peer-listen 10.0.0.1:7296 --join 10.0.0.1:7296,10.0.0.2:7296,10.0.0.3:7296 \
    --peer-cert n1.crt --peer-key n1.key --peer-ca ca.crt
  pawl serve --listen n1.example.com:7295 --tls-cert n1.crt --tls-key n1.key --auth --admin-token-file /etc/pawl/admin.token
  PAWL_LISTEN=127.0.0.1:7000 pawl serve --config /etc/pawl.yaml`,
	}
	s.add(cmd.Flags())
	cmd.RunE = a.Run(func(cmd *cobra.Command, _ []string) error {
		relaxTimers()
		if err := config.Apply(cmd.LocalNonPersistentFlags(), "config"); err != nil {
			return err
		}
		log, err := cli.NewLogger(a.Err, s.logFormat, s.logLevel)
		if err != nil {
			return err
		}
		stop, err := tracing.Start(a, cmd, "pawl", log)
		if err != nil {
			return err
		}
		defer stop()
		export, stopLogs, err := tracing.Logs(cmd.Context(), "pawl", log)
		if err != nil {
			return err
		}
		defer stopLogs()
		ready, err := cli.NewLogger(a.Out, s.logFormat, "info") // whatever --log-level is: programs wait for the line
		if err != nil {
			return err
		}
		return s.run(cmd.Context(), a, log, ready, export)
	})
	return cmd
}

// run runs a node until a signal cancels ctx, and says through ready when it serves. export exports audit events; nil:
// they are only logged.
func (s *flags) run(ctx context.Context, a *cli.App, log, ready *slog.Logger, export tracing.Export) error {
	if s.connsPerAddress < 1 {
		return cli.Usage("--max-connections-per-address %d is less than 1", s.connsPerAddress)
	}
	if s.uiIdle < ui.MinIdle || s.uiIdle > ui.MaxIdle {
		return cli.Usage("--ui-idle %v is not between %v and %v", s.uiIdle, ui.MinIdle, ui.MaxIdle)
	}
	keepFilesPrivate()
	giveHeapRoom()
	hooks, err := node.ParseNetworks(s.hookNetworks)
	if err != nil {
		return cli.Usage("--webhook-allow-network: %v", err)
	}
	hosts, err := node.ParseHosts(s.hosts)
	if err != nil {
		return cli.Usage("--allowed-hosts: %v", err)
	}
	headers, err := node.ParseLogHeaders(s.logHeaders)
	if err != nil {
		return cli.Usage("--log-headers: %v", err)
	}
	events, err := trail.ParseKinds(s.auditEvents)
	if err != nil {
		return cli.Usage("--audit-events: %v", err)
	}
	certified := s.certified()
	pair, err := s.tls.open(certified, log)
	if err != nil {
		return err
	}
	clients, err := s.tls.openClients(log)
	if err != nil {
		return err
	}
	listener, err := s.listenOn()
	if err != nil {
		return err
	}
	s.peers.apiAdvertise = s.advertised(listener)
	cfg := node.Config{
		Dir: s.data, Listener: listener, DataShards: s.shards, MaxConnsPerAddress: s.connsPerAddress,
		BasePath: s.basePath, UIIdle: s.uiIdle, SQS: s.sqs, MinFree: max(int64(s.minFree), 1), // 0 would mean the default
		AcceptDataLoss: s.acceptDataLoss, WebhookNetworks: hooks, Hosts: hosts.With(s.listen),
		Version: version.Version, Logger: log, LogHeaders: headers,
		Trail:   trail.New(trail.Config{Kinds: events, Log: log, Export: export}),
		Tracers: a.Tracers, Fatal: exitOn(log), ClientCertificates: clients,
	}
	if err := s.openDebug(&cfg); err != nil {
		return errors.Join(err, closeAll(&cfg))
	}
	if err := s.peers.apply(&cfg, s.auth.on); err != nil {
		return errors.Join(err, closeAll(&cfg))
	}
	if err := s.auth.apply(&cfg, log); err != nil {
		return errors.Join(err, closeAll(&cfg))
	}
	s.tls.apply(&cfg, pair, log)
	n, err := node.Start(ctx, cfg)
	if err != nil {
		return errors.Join(s.withCure(err), closeAll(&cfg))
	}
	ready.Info("ready", "version", version.Version, "address", listener.Addr().String(), "data", s.data)
	var watch sync.WaitGroup
	watch.Go(func() { s.warn(ctx, log) })
	watch.Go(func() { s.tls.keep(ctx, certified, log) })
	<-ctx.Done()
	watch.Wait()
	return s.drain(n, log)
}

// withCure adds to an error about damage what can be done, and at what cost.
func (s *flags) withCure(err error) error {
	var damage *node.DamageError
	switch {
	case !errors.As(err, &damage):
		return err
	case damage.What == "log" && !s.acceptDataLoss:
		return fmt.Errorf("%w; nothing was changed: put an undamaged copy of %s back, or start once with --accept-data-loss, which "+
			"loses what was acknowledged after the damage and is not in a shard's state yet (tasks accepted then are gone, "+
			"tasks ended then run again) and invalidates workers' claims", err, s.data)
	}
	return fmt.Errorf("%w; nothing was changed: put an undamaged copy of %s back, or restore a backup with `pawl restore` into "+
		"another directory", err, s.data)
}

// listenOn opens the API's listener, unless checkListen rejects the address.
func (s *flags) listenOn() (net.Listener, error) {
	addr, err := net.ResolveTCPAddr("tcp", s.listen)
	if err != nil {
		return nil, cli.Usage("--listen %q: %w", s.listen, err)
	}
	if err := s.checkListen(addr); err != nil {
		return nil, err
	}
	return net.ListenTCP("tcp", addr)
}

func closed(c io.Closer) error {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// drain stops the node. A second signal meanwhile ends the process (see run). That loses nothing: it is the same as a crash.
func (s *flags) drain(n *node.Node, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.drainTimeout)
	defer cancel()
	log.Info("draining", "timeout", s.drainTimeout)
	err := n.Stop(ctx)
	log.Info("stopped")
	return err
}

// exitOn returns a function that ends the process immediately: its memory may hold what its disk does not.
func exitOn(log *slog.Logger) func(error) {
	return func(err error) {
		log.Error("the server can't go on", "error", err)
		os.Exit(cli.ExitRefused)
	}
}
