package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // "sqlite"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/outbox/pgxoutbox"
	"github.com/spf13/pflag"
)

const (
	// maxDSNFile is the maximum size of a DSN file.
	maxDSNFile = 4 << 10
	// maxConns is enough for a relay: it reads rows, deletes them and renews its lease.
	maxConns = 4
)

// database is a database opened from a DSN.
type database struct {
	*sql.DB
	dialect outbox.Dialect
	listen  func(ctx context.Context, wake func()) error // nil: the database sends no notifications
}

func dsnFlag(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "dsn-file", "", "file with the database: postgres://USER:PASSWORD@HOST/DB, mysql://USER:PASSWORD@HOST/DB or "+
		"sqlite:FILE; only its owner may read it")
}

// open opens the database of a DSN file. Errors don't reveal the file's content, which includes a password.
func open(file string) (*database, error) {
	if file == "" {
		return nil, cli.Usage("--dsn-file is required: a file with the database")
	}
	dsn, err := readDSN(file)
	if err != nil {
		return nil, err
	}
	d, err := parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("DSN file %q: %w", file, err)
	}
	d.SetMaxOpenConns(maxConns)
	return d, nil
}

// openBox opens the outbox in the database of a DSN file. Close the database afterwards.
func openBox(ctx context.Context, file string) (*outbox.Outbox, *database, error) {
	db, err := open(file)
	if err != nil {
		return nil, nil, err
	}
	box, err := outbox.Open(ctx, db.DB, db.dialect)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return box, db, nil
}

func readDSN(path string) (string, error) {
	dsn, err := cli.ReadSecret(path, maxDSNFile)
	if err != nil {
		return "", fmt.Errorf("DSN file %q: %w", path, err)
	}
	return strings.TrimSpace(dsn), nil
}

func parse(dsn string) (*database, error) {
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch scheme {
	case "postgres", "postgresql":
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, errors.New("it is not postgres://USER:PASSWORD@HOST/DB")
		}
		return &database{stdlib.OpenDB(*config), outbox.Postgres, pgxoutbox.Listen(config)}, nil
	case "mysql":
		config, err := mysqlConfig(dsn)
		if err != nil {
			return nil, err
		}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, errors.New("it is not mysql://USER:PASSWORD@HOST/DB")
		}
		return &database{sql.OpenDB(connector), outbox.MySQL, nil}, nil
	case "sqlite":
		return openSQLite(strings.TrimPrefix(rest, "//"))
	}
	return nil, errors.New("it begins with none of postgres://, mysql:// and sqlite:FILE")
}

// mysqlConfig parses mysql://USER:PASSWORD@HOST:PORT/DB?OPTION=VALUE. The options are the driver's, and socket, which replaces the host.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	bad := errors.New("it is not mysql://USER:PASSWORD@HOST/DB, or mysql://USER:PASSWORD@/DB?socket=FILE")
	u, err := url.Parse(dsn)
	if err != nil || u.User == nil || len(u.Path) < 2 {
		return nil, bad
	}
	query := u.Query()
	network, address := "tcp", u.Host
	if socket := query.Get("socket"); socket != "" {
		network, address = "unix", socket
		query.Del("socket")
	}
	if address == "" {
		return nil, bad
	}
	config, err := mysql.ParseDSN(fmt.Sprintf("%s(%s)/%s?%s", network, address, url.PathEscape(u.Path[1:]), query.Encode()))
	if err != nil {
		return nil, bad
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	return config, nil
}

// openSQLite opens an existing file: SQLite itself would create a missing one.
func openSQLite(path string) (*database, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	file := url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: "mode=rw&_pragma=busy_timeout(10000)"}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return nil, err
	}
	return &database{db, outbox.SQLite, nil}, nil
}
