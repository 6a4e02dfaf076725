package node

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/store"
)

// server is a node under test, reached over a pipe.
type server struct {
	*Node
	t       *testing.T
	pipe    *bufconn.Listener
	crashed atomic.Bool // the test itself ends it
}

// tryStart starts a node, with test defaults for what cfg leaves out. It stops with the test.
func tryStart(t *testing.T, cfg Config) (*server, error) {
	t.Helper()
	begin := time.Now()
	s := &server{t: t, pipe: bufconn.Listen(64 << 10)}
	cfg.Listener = s.pipe
	cfg.MinFree = 1
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { t.Errorf("node: %v", err) }
	}
	// The clocks of package time are fake in a bubble, the system's never are.
	cfg.Time = store.TimeSource{Wall: time.Now, Elapsed: func() time.Duration { return time.Since(begin) }}
	var err error
	if s.Node, err = Start(t.Context(), cfg); err != nil {
		return nil, errors.Join(err, s.pipe.Close())
	}
	t.Cleanup(s.end)
	return s, nil
}

func start(t *testing.T, cfg Config) *server {
	t.Helper()
	s, err := tryStart(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// end stops the node, once.
func (s *server) end() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		s.t.Errorf("stop: %v", err)
	}
}

// client returns a client that is closed with the test, before its node is stopped.
func (s *server) client() *pawl.Client {
	s.t.Helper()
	c, err := pawl.Dial("node", pawl.DialOptions{Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
		return s.pipe.DialContext(ctx)
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// refused fails the test unless Start fails with all of the words in its error.
func refused(t *testing.T, cfg Config, words ...string) {
	t.Helper()
	s, err := tryStart(t, cfg)
	if err == nil {
		s.end()
		t.Errorf("started, want an error with %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("refused with %q, want %q in it", err, w)
		}
	}
}
