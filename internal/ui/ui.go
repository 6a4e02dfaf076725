package ui

import (
	"context"
	"log/slog"
	"net"

	"github.com/pawlq/pawl/internal/ui/pages/queues"
	"github.com/pawlq/pawl/internal/ui/pages/system"
	"github.com/pawlq/pawl/internal/ui/pages/tasks"
	"github.com/pawlq/pawl/internal/ui/web"
)

// Config configures a UI.
type Config struct {
	// Dial connects to the API on behalf of a client host.
	Dial func(ctx context.Context, from string) (net.Conn, error)
	// BasePath is the prefix of all URL paths that browsers see, such as "/pawl"; "": none. It is stripped from requests before they get here.
	BasePath string
	Logger   *slog.Logger // nil: none
	// OpenAPI returns the OpenAPI document, for the API reference.
	OpenAPI func() []byte
}

// UI serves the web pages. It is safe for concurrent use.
type UI = web.Server

// New returns a UI. It connects to the API on the first request.
func New(cfg Config) *UI {
	return web.New(web.Config{Dial: cfg.Dial, BasePath: cfg.BasePath, Logger: cfg.Logger}, sets(cfg.OpenAPI)...)
}

// sets are all pages.
func sets(openAPI func() []byte) []web.Set {
	return []web.Set{tasks.Pages, queues.Pages, system.Pages(openAPI)}
}
