package fragment

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltest"
)

type Order struct{ ID string }

func (Order) TaskType() string { return "order" }

var (
	ctx context.Context
	tx  *sql.Tx
	mux *pawl.Mux

	pay   func(ctx context.Context, o Order) (string, error)
	print func(ctx context.Context) error
	t     task
)

// task is what a handler has, and a test: the page uses t for both.
type task struct {
	*pawl.Task[Order]
	testing.TB
}
