// Package pgxoutbox adds pgx to package outbox: its transactions, and PostgreSQL's notifications of committed rows.
package pgxoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawlq/pawl/outbox"
)

// channel is the channel that the table's trigger notifies.
const channel = "pawl_outbox"

// Tx wraps a pgx transaction for Enqueue and Effect of package outbox:
//
//	_, err = box.Enqueue(ctx, pgxoutbox.Tx(tx), args)
func Tx(tx pgx.Tx) outbox.Tx { return transaction{tx} }

type transaction struct{ tx pgx.Tx }

func (t transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return result{tag}, err
}

// ScanRow reads the one row of a query.
func (t transaction) ScanRow(ctx context.Context, query string, args, to []any) error {
	return t.tx.QueryRow(ctx, query, args...).Scan(to...)
}

type result struct{ tag pgconn.CommandTag }

func (r result) RowsAffected() (int64, error) { return r.tag.RowsAffected(), nil }

// LastInsertId returns an error, as with every driver for PostgreSQL.
func (r result) LastInsertId() (int64, error) {
	return 0, errors.New("pgxoutbox: PostgreSQL has no LastInsertId")
}

// Listen is for RelayConfig.Listen: it notifies a relay of committed rows. It opens its own connection, since the connections of a pool
// that shares them between transactions, such as PgBouncer's, get no notifications.
//
//	config, err := pgx.ParseConfig(dsn)
//	relay, err := outbox.NewRelay(box, client, outbox.RelayConfig{Listen: pgxoutbox.Listen(config)})
func Listen(config *pgx.ConnConfig) func(ctx context.Context, wake func()) error {
	return func(ctx context.Context, wake func()) error {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return fmt.Errorf("pgxoutbox: %w", err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return fmt.Errorf("pgxoutbox: listen: %w", err)
		}
		wake() // rows committed before sent no notification here
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return fmt.Errorf("pgxoutbox: notifications: %w", err)
			}
			wake()
		}
	}
}
