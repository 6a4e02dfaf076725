package fragment

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/outbox/pgxoutbox"
)

type SendReceipt struct{ Order, Account string }

func (SendReceipt) TaskType() string { return "receipt" }

type Credit struct {
	Account string
	Amount  int
}

func (Credit) TaskType() string { return "credit" }

var (
	ctx        context.Context
	db         *sql.DB
	box        *outbox.Outbox
	client     *pawl.Client
	mux        *pawl.Mux
	dsn, order string
)
