// Package client is the core of the SDK's clients: the connection, its calls and their telemetry. Each concern has a package below. It
// does not know tasks and handlers as users see them.
package client

import (
	"fmt"
	"log/slog"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/encrypt"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/route"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/internal/client/telemetry"
	"github.com/pawlq/pawl/keyring"
)

// Config configures a Client.
type Config struct {
	Route     route.Config
	Keys      *keyring.Keyring // nil: nothing is encrypted
	RetryFor  time.Duration    // how long a call is retried while the broker is unavailable
	Telemetry telemetry.Config
}

// Client is a connection with retries, encryption and telemetry, as configured.
type Client struct {
	*rpc.Caller
	Router    *route.Router // nil: calls go only to the addresses given to Dial
	Telemetry *telemetry.Telemetry
	Log       *slog.Logger
	// NewClaim returns a *pawl.Claim. unreadable is why its contents could not be decrypted; nil: they could be.
	NewClaim func(task *pawlv1.ClaimedTask, holder lease.Holder, unreadable error) any
}

// Dial returns a Client of the broker at an address, or of a cluster at a comma-separated list of addresses.
func Dial(addr string, cfg *Config) (*Client, error) {
	observe, err := telemetry.New(cfg.Telemetry, telemetry.Server(route.Address(addr))...)
	if err != nil {
		return nil, fmt.Errorf("pawl: metrics: %w", err)
	}
	conn, router, err := route.Open(addr, &cfg.Route)
	if err != nil {
		return nil, err
	}
	if cfg.Keys != nil {
		conn = encrypt.Over(conn, cfg.Keys, cfg.Route.Namespace)
	}
	return &Client{Caller: rpc.NewCaller(conn, cfg.RetryFor), Router: router, Telemetry: observe, Log: cfg.Route.Log}, nil
}

// Inside is embedded in the SDK's Client. It lets the packages of the SDK get at the core, and users not.
type Inside struct{ core *Client }

// Inside returns what an SDK client embeds.
func (c *Client) Inside() Inside { return Inside{c} }

func (i Inside) inner() *Client { return i.core }

// Of returns the core of an SDK client.
func Of(c interface{ inner() *Client }) *Client { return c.inner() }
