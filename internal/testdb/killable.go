package testdb

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Killable is a database server of one test, which the test may kill. Committed data survives: the process dies, not the machine.
type Killable struct {
	DSN string // of an empty database, for its driver

	t *testing.T
	s *server
}

// KillablePostgres starts a server and creates an empty database, for driver "pgx".
func KillablePostgres(t *testing.T) *Killable { return killable(t, newPostgres()) }

// KillableMariaDB starts a server and creates an empty database, for driver "mysql".
func KillableMariaDB(t *testing.T) *Killable { return killable(t, newMariaDB("2")) }

func killable(t *testing.T, s *server) *Killable {
	t.Helper()
	t.Cleanup(s.stop)
	return &Killable{DSN: s.database(t), t: t, s: s}
}

// Kill kills the server with SIGKILL.
func (k *Killable) Kill() {
	_ = k.s.process.Kill()
	<-k.s.ended
}

// Start restarts the killed server. It waits for what the old one left behind: PostgreSQL's child processes end once they notice.
func (k *Killable) Start() {
	k.t.Helper()
	log, err := os.OpenFile(k.s.dir+"/log", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	defer log.Close()
	as, err := k.s.credential()
	if err != nil {
		k.t.Fatal(err)
	}
	for deadline := time.Now().Add(startTime); ; time.Sleep(50 * time.Millisecond) {
		if err = k.s.launch(find(k.s.program...), as, log); err == nil {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatal(fmt.Errorf("%s does not start again: %w", k.s.name, err))
		}
	}
}
