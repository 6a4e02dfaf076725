package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/node"
	"github.com/spf13/pflag"
)

// authFlags configure who may call the server.
type authFlags struct {
	flags   *pflag.FlagSet
	on      bool
	file    string // with the admin token
	without bool
	plain   bool
}

func (f *authFlags) add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.BoolVar(&f.on, "auth", false, "require a token for every call, on all nodes (--auth=false: stop requiring one; if not "+
		"given: unchanged)")
	flags.StringVar(&f.file, "admin-token-file", "", "file with a token that may do anything on this node; with --auth it is "+
		"created if missing")
	flags.BoolVar(&f.plain, "listen-plaintext", false, "with --auth: serve plaintext on a --listen address that other machines can reach, "+
		"behind a proxy that adds TLS or in a private network")
	flags.BoolVar(&f.without, "insecure-listen-without-auth", false,
		"allow a --listen address that other machines can reach, without --auth: they can do anything")
}

// mode returns the node's token mode. If no flag is given, the cluster decides.
func (f *authFlags) mode() node.TokenMode {
	switch {
	case f.on:
		return node.TokensAlways
	case f.flags.Changed("auth"):
		return node.TokensNever
	}
	return node.TokensAsCluster
}

// apply sets the node's token mode and admin token. With --auth it creates the token file if it is missing. It never logs the token.
func (f *authFlags) apply(cfg *node.Config, log *slog.Logger) error {
	cfg.Tokens = f.mode()
	if f.file == "" {
		if f.on {
			log.Info("calls need a token; to create the first one, start with --admin-token-file")
		}
		return nil
	}
	if f.on {
		made, err := cli.MakeTokenFile(f.file)
		if err != nil {
			return fmt.Errorf("--admin-token-file: %w", err)
		}
		if made {
			log.Info("a new token with all rights was written to the file", "file", f.file)
		}
	}
	file, err := cli.OpenTokenFile(f.file, log)
	if err != nil {
		return fmt.Errorf("--admin-token-file: %w", err)
	}
	cfg.AdminToken = func() string { token, _ := file.Now(); return token } // errors are logged
	return nil
}

// checkListen rejects an address that other machines can reach, unless calls need a token over TLS, or a flag allows it.
func (s *flags) checkListen(addr *net.TCPAddr) error {
	switch {
	case s.auth.on && s.auth.without:
		return errors.New("--insecure-listen-without-auth contradicts --auth: omit one of them; to serve tokens without TLS, add " +
			"--listen-plaintext")
	case s.auth.plain && s.tls.on():
		return errors.New("--listen-plaintext contradicts --tls-cert and --tls-dir: omit one of them")
	case addr.IP.IsLoopback() || s.auth.without || s.auth.on && (s.tls.on() || s.auth.plain):
		return nil
	case s.auth.on:
		return fmt.Errorf("--listen %q can be reached by other machines, and tokens would be sent in plaintext: "+
			"add --tls-dir, or --tls-cert and --tls-key, or listen on 127.0.0.1, "+
			"or add --listen-plaintext if a proxy adds TLS or the network is private", s.listen)
	}
	lacks := "calls need no token and nothing is encrypted"
	if s.tls.on() {
		lacks = "calls need no token"
	}
	return fmt.Errorf("--listen %q can be reached by other machines, and %s: add --auth, and --tls-cert with --tls-key, or listen "+
		"on 127.0.0.1, or add --insecure-listen-without-auth if the network is private", s.listen, lacks)
}

// warnEvery is how often the log warns of an insecure setting.
const warnEvery = time.Hour

// warn logs repeatedly what --listen-plaintext and --insecure-listen-without-auth allow, until ctx is done.
func (s *flags) warn(ctx context.Context, log *slog.Logger) {
	if !s.auth.without && !s.auth.plain {
		return
	}
	warn := func() {
		if s.auth.on {
			log.Warn("serving without TLS: anyone on the network path to this address can read the tokens of its callers",
				"listen", s.listen)
		} else {
			log.Warn("serving without access control: anyone who reaches this address can read, run and delete every task", "listen",
				s.listen, "tls", s.tls.on())
		}
	}
	warn()
	repeat(ctx, warnEvery, warn)
}

// repeat calls do at each interval, the first time after one, until ctx is done.
func repeat(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}
