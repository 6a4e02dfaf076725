// Package outbox enqueues tasks in the transactions of the user's own database. A task is written as a row of the table pawl_outbox, by the
// transaction that writes the application's rows: it exists when that commits, and never did when it is rolled back. A Relay brings committed
// rows to Pawl.
//
//	box, err := outbox.Open(ctx, db, outbox.Postgres)
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	_, err = tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, order)
//	_, err = box.Enqueue(ctx, tx, SendReceipt{Order: order}, pawl.Queue("mail"))
//	err = tx.Commit()
//
// The application depends on its database alone: while Pawl is away, rows wait. Each row is one task, because its id is the request id of
// the enqueue: a relay that dies before it has deleted the row enqueues it again, and is answered with the task that is there.
//
// # Order
//
// Rows of the same queue and the same pawl.Key are enqueued in the order in which they were written, if their transactions follow each
// other: what a transaction writes after another has committed comes after what that one wrote. Transactions that overlap may come in either
// order, unless both lock the same row before they enqueue. A row that Pawl puts off because its queue is full or a quota is used up may be
// overtaken by a row of the same batch.
//
// # What is promised
//
// A committed row becomes one task. Pawl knows a repeated request by its UUIDv7 as long as it has the task, and for at least ten minutes
// after the enqueue. Only if every relay stays away for longer than both, between the answer to an enqueue and the deletion of its rows, is
// a task made a second time.
//
// The package uses database/sql and no driver. Package pgxoutbox is for transactions of pgx, and for PostgreSQL's notifications.
package outbox
