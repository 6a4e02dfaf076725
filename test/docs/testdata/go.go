package fragment

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/embedded"
	"github.com/pawlq/pawl/pawltype"
)

type Welcome struct {
	To string `json:"to"`
}

func (Welcome) TaskType() string { return "mail.welcome" }

type Import struct{ Files []string }

func (Import) TaskType() string { return "import" }

type Order struct{ ID string }

func (Order) TaskType() string { return "order" }

type Report struct{}

func (Report) TaskType() string { return "report" }

var (
	ctx                       context.Context
	client                    *pawl.Client
	mux                       *pawl.Mux
	ref                       *pawl.Ref
	id                        string
	errBusy, errNoSuchAddress error

	files []string
	items []pawl.Item

	pay, print func(ctx context.Context, what string) (string, error)

	send      func(ctx context.Context, to string) error
	load      func(ctx context.Context, file string) error
	report    func(ctx context.Context, typ string, err error)
	readToken func() (string, error)
)
