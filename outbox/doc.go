// Package outbox enqueues tasks in transactions of the user's own database. The transaction that writes the
// application's rows also writes each task, as a row of the table pawl_outbox: the task exists if the transaction
// commits, and never did if it rolls back. A Relay enqueues committed rows as tasks of Pawl.
//
//	box, err := outbox.Open(ctx, db, outbox.Postgres)
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	_, err = tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, order)
//	_, err = box.Enqueue(ctx, tx, SendReceipt{Order: order}, pawl.Queue("mail"))
//	err = tx.Commit()
//
// The application depends on its database alone: while Pawl is unavailable, rows wait. Each row becomes one task,
// because its id is the request id of the enqueue: if a relay dies before it has deleted the row, the next one enqueues
// it again, and Pawl returns the existing task.
//
// # Order
//
// Rows of the same queue and the same pawl.Key are enqueued in the order in which they were written, unless their
// transactions overlap: what a transaction writes after another has committed follows what that one wrote. Overlapping
// transactions can be enqueued in either order, unless both lock the same row before they enqueue. If Pawl puts a row
// off because its queue is full or a quota is used up, a later row of the same batch may overtake it.
//
// # Guarantees
//
// A committed row becomes one task. Pawl recognizes a repeated request by its UUIDv7 as long as it keeps the task, and
// for at least ten minutes after the enqueue. A task is created twice only if, after the response to an enqueue and
// before the deletion of its rows, all relays are down for longer than both.
//
// The package uses database/sql and no driver. Package pgxoutbox adds transactions of pgx, and PostgreSQL's notifications.
package outbox
