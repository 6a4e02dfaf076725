package outbox

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
)

// SchemaVersion is the version of the tables that this package reads and writes.
const SchemaVersion = 1

//go:embed schema/*.sql
var schemaFiles embed.FS

// Schema returns the statements that create the tables of an outbox, up to SchemaVersion.
func Schema(d Dialect) (string, error) { return Upgrade(d, 0) }

// Upgrade returns the statements that migrate the tables from an earlier version to SchemaVersion; "" if there is nothing to do.
// Version 0 means no tables.
func Upgrade(d Dialect, from int) (string, error) {
	if _, err := ParseDialect(string(d)); err != nil {
		return "", err
	}
	if from < 0 || from > SchemaVersion {
		return "", fmt.Errorf("outbox: schema version %d is not between 0 and %d", from, SchemaVersion)
	}
	var b strings.Builder
	for v := from + 1; v <= SchemaVersion; v++ {
		step, err := schemaFiles.ReadFile(fmt.Sprintf("schema/%s_%d.sql", d, v))
		if err != nil {
			return "", err
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.Write(step)
	}
	return b.String(), nil
}

// ErrSchema: the tables of the outbox are missing, or have a version that this program can't use. The text says what to run.
var ErrSchema = errors.New("the outbox tables don't match this program")

// checkSchema compares the version of the tables with SchemaVersion. The error is ErrSchema only if the database answers.
func checkSchema(ctx context.Context, db *sql.DB, d Dialect) error {
	version, answered, err := readVersion(ctx, db)
	if err != nil && !answered { // perhaps on a connection from before a restart of the database
		version, answered, err = readVersion(ctx, db)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("outbox: %w", ctx.Err())
	case err != nil && !answered:
		return fmt.Errorf("outbox: read the schema version: %w", err)
	case err != nil:
		return fmt.Errorf("outbox: %w: table pawl_outbox_schema: %w; if it is missing, run what \"pawl-outbox schema --dialect %s\" prints",
			ErrSchema, err, d)
	case version > SchemaVersion:
		return fmt.Errorf("outbox: %w: they have schema version %d, this program supports %d: run a newer version of the program",
			ErrSchema, version, SchemaVersion)
	case version < SchemaVersion:
		return fmt.Errorf("outbox: %w: they have schema version %d, this program needs %d; run what "+
			"\"pawl-outbox schema --dialect %s --from %d\" prints", ErrSchema, version, SchemaVersion, d, version)
	}
	return nil
}

// readVersion reads the version of the tables. With an error, answered reports whether the same connection then
// answered a query that needs no table: if so, the database works, and the tables are at fault.
func readVersion(ctx context.Context, db *sql.DB) (version int, answered bool, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, false, err
	}
	defer conn.Close()
	if err := conn.QueryRowContext(ctx, "SELECT max(version) FROM pawl_outbox_schema").Scan(&version); err != nil {
		var one int
		return 0, conn.QueryRowContext(ctx, "SELECT 1").Scan(&one) == nil, err
	}
	return version, true, nil
}
