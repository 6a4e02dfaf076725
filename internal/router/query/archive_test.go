package query_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/query"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

// The archives of all nodes form one list, newest first, page by page. A node that does not respond is reported.
func TestArchivesAreMerged(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		ctx := context.Background()
		began := time.Now()
		for i := range 10 { // node 2 has none
			m := f.Nodes[[]uint32{1, 3, 3}[i%3]]
			m.Dead = slices.Insert(m.Dead, 0, broker.ArchivedTask{ID: fmt.Sprint(i), ArchivedAt: began.Add(time.Duration(i) * time.Second)})
		}
		for _, limit := range []int{1, 3, 4, 10, 20} {
			var ids []string
			for cursor, pages := "", 0; ; pages++ {
				all, places, cursors, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", cursor, limit)
				tasks := all.Value
				if err != nil || len(tasks) != len(places) || len(tasks) != len(cursors) || len(tasks) > limit || len(all.Missing) > 0 || pages > 20 {
					t.Fatalf("limit %d: Archived = %v, %v, %v, %v", limit, all, places, cursors, err)
				}
				for i := range tasks {
					ids = append(ids, tasks[i].ID)
					if one, err := f.Nodes[1].ArchivedAt(ctx, places[i]); err != nil || one.ID != tasks[i].ID {
						t.Errorf("ArchivedAt(%q) = %v, %v", places[i], one, err)
					}
				}
				if len(cursors) == 0 {
					t.Errorf("limit %d: after page %d comes an empty one", limit, pages)
					break
				}
				if cursor = cursors[len(cursors)-1]; cursor == "" {
					if want := (10+limit-1)/limit - 1; pages != want {
						t.Errorf("limit %d: page %d is the last, want %d", limit, pages, want)
					}
					break
				}
			}
			if got := strings.Join(ids, ""); got != "9876543210" {
				t.Errorf("pages of %d: got tasks %s, want newest first", limit, got)
			}
		}
		// A page may end anywhere: each task's cursor continues after it.
		_, _, cursors, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for i, cursor := range cursors[:9] {
			tasks, _, _, err := f.Nodes[3].Archived(ctx, routertest.Namespace, "", cursor, 1)
			if err != nil || len(tasks.Value) != 1 || tasks.Value[0].ID != fmt.Sprint(8-i) {
				t.Errorf("Archived after task %d = %v, %v", i, tasks, err)
			}
		}
		// A place without a node dates from when there was only one.
		if one, err := f.Nodes[2].ArchivedAt(ctx, "dead.jsonl:000"); err != nil || one.ID != "9" {
			t.Errorf("ArchivedAt of a place without a node = %v, %v", one, err)
		}
		if one, err := f.Nodes[2].ArchivedAt(ctx, "dead.jsonl:005"); err != nil || one.ID != "1" {
			t.Errorf("ArchivedAt of a place without a node, which the first lacks = %v, %v", one, err)
		}
		// A node that has left the cluster has taken its archive along.
		if tasks, _, _, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", "n1=dead.jsonl:000|n9=dead.jsonl:007", 1); err != nil || len(tasks.Value) != 1 || tasks.Value[0].ID != "8" {
			t.Errorf("Archived with the cursor of a node that was removed = %v, %v", tasks, err)
		}
		for _, place := range []string{"n9:dead.jsonl:000", "n2:dead.jsonl:000", "dead.jsonl:999", ""} {
			if _, err := f.Nodes[2].ArchivedAt(ctx, place); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("ArchivedAt(%q) = %v, want not found", place, err)
			}
		}
		for _, place := range []string{":::", "n\x00:dead.jsonl:000", "N 1:dead.jsonl:000"} {
			if _, err := f.Nodes[2].ArchivedAt(ctx, place); !errors.Is(err, task.ErrInvalidArgument) {
				t.Errorf("ArchivedAt(%q), which names no node: %v, want an invalid argument", place, err)
			}
		}
		if _, _, _, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", "nonsense", 1); !errors.Is(err, task.ErrInvalidArgument) {
			t.Errorf("Archived with a malformed cursor: %v, want an invalid argument", err)
		}
		for _, lot := range []routertest.Delivery{routertest.NotSent, routertest.AnswerLost} {
			f.With(func() {
				f.Network = func(_, to uint32, _ string) (x routertest.Delivery) {
					if to == 3 {
						x = lot
					}
					return x
				}
			})
			// Without it, the list has the others, whichever page it is, and the cursors keep its place.
			var ids []string
			for _, cursor := range []string{"", "n1=dead.jsonl:000|n3=dead.jsonl:001"} {
				tasks, _, cursors, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", cursor, 2)
				if err != nil || fmt.Sprint(tasks.Missing) != `[node "n3"]` || len(tasks.Value) != 2 || strings.Contains(cursors[0], "n3=") != (cursor != "") {
					t.Fatalf("Archived after %q while a node does not respond: %v, cursors %q, %v", cursor, tasks, cursors, err)
				}
				for _, one := range tasks.Value {
					ids = append(ids, one.ID)
				}
			}
			if got := strings.Join(ids, " "); got != "9 6 6 3" {
				t.Errorf("while a node does not respond, the pages have %s", got)
			}
			all, _, cursors, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", "n3=dead.jsonl:001", 10)
			if err != nil || len(all.Value) != 4 || cursors[3] != "" || len(all.Missing) != 1 {
				t.Errorf("the last page while a node does not respond is %v, cursors %q, %v", all, cursors, err)
			}
		}
	})
	routertest.InFleet(t, 2, func(f *routertest.Fleet) { // what a node can't send in one message comes in the next page, in its order
		began := time.Now()
		for i := range 6 {
			m := f.Nodes[uint32(1+i%2)]
			m.Dead = slices.Insert(m.Dead, 0, broker.ArchivedTask{ID: fmt.Sprint(i), ArchivedAt: began.Add(time.Duration(i) * time.Second)})
			if i%2 == 1 {
				m.Dead[0].Payload = make([]byte, query.MaxArchiveBytes*2/3)
			}
		}
		peers := &measuringPeers{FakePeers: routertest.FakePeers{M: f.Nodes[1]}}
		f.Nodes[1].UsePeers(peers)
		defer func() {
			if peers.most == 0 || peers.most > query.MaxArchiveBytes+1000 {
				t.Errorf("the largest answer has %d bytes, want at most %d and little more", peers.most, query.MaxArchiveBytes)
			}
		}()
		var ids string
		for cursor, pages := "", 0; ; pages++ {
			tasks, _, cursors, err := f.Nodes[1].Archived(context.Background(), routertest.Namespace, "", cursor, 10)
			if err != nil || len(tasks.Value) == 0 || pages > 10 {
				t.Fatalf("page has %d tasks, %v", len(tasks.Value), err)
			}
			for _, one := range tasks.Value {
				ids += one.ID
			}
			if cursor = cursors[len(cursors)-1]; cursor == "" {
				break
			}
		}
		if ids != "543210" {
			t.Errorf("large tasks came in the order %s, want 543210", ids)
		}
	})
	routertest.InFleet(t, 1, func(f *routertest.Fleet) { // with one node, places and cursors are those of its archive
		f.Nodes[1].Dead = make([]broker.ArchivedTask, 3)
		_, places, cursors, err := f.Nodes[1].Archived(context.Background(), routertest.Namespace, "", "", 2)
		if err != nil || places[1] != "dead.jsonl:001" || cursors[1] != "dead.jsonl:001" {
			t.Errorf("first page with one node: places %v, cursors %v, %v", places, cursors, err)
		}
		tasks, _, cursors, err := f.Nodes[1].Archived(context.Background(), routertest.Namespace, "", cursors[1], 2)
		if err != nil || len(tasks.Value) != 1 || cursors[0] != "" {
			t.Errorf("second page with one node: tasks %v, cursors %v, %v", tasks, cursors, err)
		}
		// A cursor from when there were several nodes continues.
		if tasks, _, _, err := f.Nodes[1].Archived(context.Background(), routertest.Namespace, "", "n1=dead.jsonl:001|n2=-", 2); err != nil || len(tasks.Value) != 1 {
			t.Errorf("a cursor of two nodes at one: tasks %v, %v", tasks, err)
		}
	})
}

// measuringPeers is a network that measures what comes back.
type measuringPeers struct {
	routertest.FakePeers
	most int
}

func (p *measuringPeers) Call(ctx context.Context, to uint32, method string, request []byte) ([]byte, error) {
	answer, err := p.FakePeers.Call(ctx, to, method, request)
	p.most = max(p.most, len(answer))
	return answer, err
}
