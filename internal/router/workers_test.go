package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/roster"
	"github.com/pawlq/pawl/internal/task"
)

// workersOf puts the names of a list in a line, with their nodes, and those of silent nodes.
func workersOf(l roster.Listing) string {
	var all []string
	for _, w := range l.Workers {
		all = append(all, w.Name+"@"+w.Node)
	}
	if l.More {
		all = append(all, "…")
	}
	for _, n := range l.Silent {
		all = append(all, "not "+n.Node)
	}
	return strings.Join(all, " ")
}

func TestWorkersOfAllNodes(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		for i, m := range []uint32{1, 2, 3, 1, 2, 3} {
			f.nodes[m].cfg.Roster.Join(roster.Hello{Namespace: "default", Name: fmt.Sprint("w", i), Queues: []roster.Share{{Queue: "q"}}}, "", 0, nil)
		}
		f.nodes[2].cfg.Roster.Join(roster.Hello{Namespace: "other", Name: "x"}, "", 0, nil)
		r := f.nodes[1].Router
		list := func(q roster.Query, node string) roster.Listing {
			t.Helper()
			q.Namespace = "default"
			l, err := r.Workers(context.Background(), q, node)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		expect := func(what string, l roster.Listing, want string) {
			t.Helper()
			if got := workersOf(l); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("all", list(roster.Query{Limit: 9}, ""), "w0@n1 w1@n2 w2@n3 w3@n1 w4@n2 w5@n3")
		expect("of a node", list(roster.Query{Limit: 9}, "n3"), "w2@n3 w5@n3")
		page := list(roster.Query{Limit: 4}, "")
		expect("a page", page, "w0@n1 w1@n2 w2@n3 w3@n1 …")
		expect("the next", list(roster.Query{Limit: 4, After: page.Workers[3].Place()}, ""), "w4@n2 w5@n3")
		if _, err := r.Workers(context.Background(), roster.Query{Namespace: "default", Limit: 1}, "n9"); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("of a node that is not there: %v", err)
		}

		// A node that gives no answer is named, and holds up nobody for long.
		f.with(func() {
			f.network = func(_, to uint32, _ string) fate {
				return map[uint32]fate{2: notSent, 3: hangs}[to]
			}
		})
		began := time.Now()
		expect("without two nodes", list(roster.Query{Limit: 9}, ""), "w0@n1 w3@n1 not n2 not n3")
		if took := time.Since(began); took > rosterTime+time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
