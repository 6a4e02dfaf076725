package ui

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/internal/ui/web"
)

// Config configures a UI.
type Config struct {
	// Dial connects to the API on behalf of a client host.
	Dial func(ctx context.Context, from string) (net.Conn, error)
	// BasePath is the prefix of all URL paths that browsers see, such as "/pawl"; "": none. It is stripped from
	// requests before they get here.
	BasePath string
	Logger   *slog.Logger // nil: none
	// LoggedIn, if not nil, is called when a visitor has logged in with a token, from a host.
	LoggedIn func(host string, me *admin.Identity)
	// OpenAPI returns the OpenAPI document, for the API reference.
	OpenAPI func() []byte
	// FindSession returns the key with an id, as for visitor.NewSessions.
	FindSession func(auth.SessionID) (auth.SessionKey, error)
	// EndSession ends a session on all nodes.
	EndSession func(context.Context, auth.Session) error
	// Idle is after how long without use a visitor's session ends, from MinIdle to MaxIdle; 0: DefaultIdle.
	Idle time.Duration
}

// The limits of Config.Idle.
const (
	DefaultIdle = visitor.DefaultIdle
	MinIdle     = visitor.MinIdle
	MaxIdle     = visitor.MaxAge
)

// UI serves the web pages. It is safe for concurrent use.
type UI = web.Server

// New returns a UI. It connects to the API on the first request.
func New(cfg Config) *UI {
	return web.New(web.Config{Dial: cfg.Dial, BasePath: cfg.BasePath, Logger: cfg.Logger, LoggedIn: cfg.LoggedIn,
		Sessions: visitor.NewSessions(cfg.FindSession, cfg.EndSession, cfg.Idle)}, sets(cfg.OpenAPI)...)
}
