package relay

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/testdb"
	"github.com/pawlq/pawl/outbox"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// reaches opens the database of a DSN and pings it.
func reaches(t *testing.T, dsn string, want outbox.Dialect) {
	t.Helper()
	file := t.TempDir() + "/dsn"
	if err := os.WriteFile(file, []byte(dsn+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.PingContext(t.Context()); err != nil || db.dialect != want || (db.listen != nil) != (want == outbox.Postgres) {
		t.Errorf("%s: %v, the dialect is %s, and it sends notifications: %v", dsn, err, db.dialect, db.listen != nil)
	}
}

func TestOpenPostgres(t *testing.T) {
	var host, name string
	if _, err := fmt.Sscanf(testdb.Postgres(t), "host=%s user=pawl dbname=%s", &host, &name); err != nil {
		t.Fatal(err)
	}
	reaches(t, "postgres://pawl@/"+name+"?host="+host, outbox.Postgres)
	reaches(t, "postgresql:///"+name+"?host="+host+"&user=pawl", outbox.Postgres)
}

func TestOpenMariaDB(t *testing.T) {
	socket, name, _ := strings.Cut(strings.TrimPrefix(testdb.MariaDB(t), "root@unix("), ")/")
	reaches(t, "mysql://root@/"+name+"?socket="+socket, outbox.MySQL)
}

func TestOpenSQLite(t *testing.T) {
	file := t.TempDir() + "/a b?c.db"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reaches(t, "sqlite:"+file, outbox.SQLite)
	reaches(t, "sqlite://"+file, outbox.SQLite)
}

func TestMySQLConfig(t *testing.T) {
	c, err := mysqlConfig("mysql://re%40lay:p%2F%40s:s@db:3307/my%2Fshop?tls=true&readTimeout=5s")
	if err != nil || c.User != "re@lay" || c.Passwd != "p/@s:s" || c.Net != "tcp" || c.Addr != "db:3307" || c.DBName != "my/shop" ||
		c.TLSConfig != "true" || c.ReadTimeout != 5e9 {
		t.Errorf("mysqlConfig = %+v, %v", c, err)
	}
	if c, err := mysqlConfig("mysql://relay@db/shop"); err != nil || c.Addr != "db:3306" {
		t.Errorf("mysqlConfig without a port = %+v, %v, want port 3306", c, err)
	}
	for _, bad := range []string{"mysql://db/shop", "mysql://relay@db", "mysql://relay@db/", "mysql://relay@/shop",
		"mysql://relay@db/shop?readTimeout=soon", "mysql://relay@db:x/shop"} {
		if c, err := mysqlConfig(bad); err == nil {
			t.Errorf("mysqlConfig(%s) = %+v, want an error", bad, c)
		}
	}
}
