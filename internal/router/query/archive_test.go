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
	"github.com/pawlq/pawl/internal/broker/archived"
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
				all, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", cursor, limit)
				page := all.Value
				if err != nil || len(page.Tasks) != len(page.Places) || len(page.Tasks) > limit || len(all.Missing) > 0 || pages > 20 {
					t.Fatalf("limit %d: Archived = %v, %v", limit, all, err)
				}
				for i := range page.Tasks {
					ids = append(ids, page.Tasks[i].ID)
					if one, err := f.Nodes[1].ArchivedAt(ctx, routertest.Namespace, page.Places[i]); err != nil || one.ID != page.Tasks[i].ID {
						t.Errorf("ArchivedAt(%q) = %v, %v", page.Places[i], one, err)
					}
				}
				if len(page.Tasks) == 0 {
					t.Errorf("limit %d: after page %d comes an empty one", limit, pages)
				}
				if cursor = page.Next; cursor == "" {
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
		// A page may end anywhere: the next continues after it, at any node.
		for i := range 9 {
			first, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", "", i+1)
			if err != nil {
				t.Fatal(err)
			}
			next, err := f.Nodes[3].Archived(ctx, routertest.Namespace, "", first.Value.Next, 1)
			if err != nil || len(next.Value.Tasks) != 1 || next.Value.Tasks[0].ID != fmt.Sprint(8-i) {
				t.Errorf("Archived after task %d = %v, %v", i, next, err)
			}
		}
		// Damaged records are left out, and the answer says so.
		f.Nodes[3].Dead = slices.Insert(f.Nodes[3].Dead, 1, broker.ArchivedTask{ID: "damaged"})
		all, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", "", 20)
		if err != nil || len(all.Value.Tasks) != 10 || len(all.Missing) != 1 || !strings.Contains(all.Missing[0].Why, `archive, such as "dead.jsonl:001"`) {
			t.Errorf("Archived with a damaged record = %d tasks, missing %v, %v", len(all.Value.Tasks), all.Missing, err)
		}
		f.Nodes[3].Dead = slices.Delete(f.Nodes[3].Dead, 1, 2)
		// A place without a node dates from when there was only one.
		if one, err := f.Nodes[2].ArchivedAt(ctx, routertest.Namespace, "dead.jsonl:000"); err != nil || one.ID != "9" {
			t.Errorf("ArchivedAt of a place without a node = %v, %v", one, err)
		}
		if one, err := f.Nodes[2].ArchivedAt(ctx, routertest.Namespace, "dead.jsonl:005"); err != nil || one.ID != "1" {
			t.Errorf("ArchivedAt of a place without a node, which the first lacks = %v, %v", one, err)
		}
		// A node that has left the cluster has taken its archive along.
		if tasks, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", "n1=dead.jsonl:000|n9=dead.jsonl:007", 1); err != nil || len(tasks.Value.Tasks) != 1 || tasks.Value.Tasks[0].ID != "8" {
			t.Errorf("Archived with the cursor of a node that was removed = %v, %v", tasks, err)
		}
		for _, place := range []string{"n9:dead.jsonl:000", "n2:dead.jsonl:000", "dead.jsonl:999", ""} {
			if _, err := f.Nodes[2].ArchivedAt(ctx, routertest.Namespace, place); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("ArchivedAt(%q) = %v, want not found", place, err)
			}
		}
		for _, place := range []string{":::", "n\x00:dead.jsonl:000", "N 1:dead.jsonl:000"} {
			if _, err := f.Nodes[2].ArchivedAt(ctx, routertest.Namespace, place); !errors.Is(err, task.ErrInvalidArgument) {
				t.Errorf("ArchivedAt(%q), which names no node: %v, want an invalid argument", place, err)
			}
		}
		if _, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", "nonsense", 1); !errors.Is(err, task.ErrInvalidArgument) {
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
				tasks, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", cursor, 2)
				if err != nil || fmt.Sprint(tasks.Missing) != `[node "n3"]` || len(tasks.Value.Tasks) != 2 || strings.Contains(tasks.Value.Next, "n3=") != (cursor != "") {
					t.Fatalf("Archived after %q while a node does not respond: %v, %v", cursor, tasks, err)
				}
				for _, one := range tasks.Value.Tasks {
					ids = append(ids, one.ID)
				}
			}
			if got := strings.Join(ids, " "); got != "9 6 6 3" {
				t.Errorf("while a node does not respond, the pages have %s", got)
			}
			all, err := f.Nodes[2].Archived(ctx, routertest.Namespace, "", "n3=dead.jsonl:001", 10)
			if err != nil || len(all.Value.Tasks) != 4 || all.Value.Next != "" || len(all.Missing) != 1 {
				t.Errorf("the last page while a node does not respond is %v, %v", all, err)
			}
		}
	})
	routertest.InFleet(t, 2, func(f *routertest.Fleet) { // what a node can't send in one message comes in the next page, in its order
		began := time.Now()
		for i := range 6 {
			m := f.Nodes[uint32(1+i%2)]
			m.Dead = slices.Insert(m.Dead, 0, broker.ArchivedTask{ID: fmt.Sprint(i), ArchivedAt: began.Add(time.Duration(i) * time.Second)})
			if i%2 == 1 {
				m.Dead[0].Payload = make([]byte, archived.MaxPageBytes*2/3)
			}
		}
		peers := &measuringPeers{FakePeers: routertest.FakePeers{M: f.Nodes[1]}}
		f.Nodes[1].UsePeers(peers)
		defer func() {
			if peers.most == 0 || peers.most > archived.MaxPageBytes+1000 {
				t.Errorf("the largest answer has %d bytes, want at most %d and little more", peers.most, archived.MaxPageBytes)
			}
		}()
		var ids string
		for cursor, pages := "", 0; ; pages++ {
			tasks, err := f.Nodes[1].Archived(context.Background(), routertest.Namespace, "", cursor, 10)
			if err != nil || len(tasks.Value.Tasks) == 0 || pages > 10 {
				t.Fatalf("page has %d tasks, %v", len(tasks.Value.Tasks), err)
			}
			size := 0
			for _, one := range tasks.Value.Tasks {
				ids, size = ids+one.ID, size+one.Bytes()
			}
			if size > archived.MaxPageBytes {
				t.Errorf("a page has %d bytes, want at most %d", size, archived.MaxPageBytes)
			}
			if cursor = tasks.Value.Next; cursor == "" {
				break
			}
		}
		if ids != "543210" {
			t.Errorf("large tasks came in the order %s, want 543210", ids)
		}
	})
	routertest.InFleet(t, 1, func(f *routertest.Fleet) { // with one node, places and cursors are those of its archive
		f.Nodes[1].Dead = make([]broker.ArchivedTask, 3)
		first, err := f.Nodes[1].Archived(context.Background(), routertest.Namespace, "", "", 2)
		if err != nil || first.Value.Places[1] != "dead.jsonl:001" || first.Value.Next != "dead.jsonl:001" {
			t.Errorf("first page with one node: %v, %v", first, err)
		}
		second, err := f.Nodes[1].Archived(context.Background(), routertest.Namespace, "", first.Value.Next, 2)
		if err != nil || len(second.Value.Tasks) != 1 || second.Value.Next != "" {
			t.Errorf("second page with one node: %v, %v", second, err)
		}
		// A cursor from when there were several nodes continues.
		if tasks, err := f.Nodes[1].Archived(context.Background(), routertest.Namespace, "", "n1=dead.jsonl:001|n2=-", 2); err != nil || len(tasks.Value.Tasks) != 1 {
			t.Errorf("a cursor of two nodes at one: tasks %v, %v", tasks, err)
		}
	})
	for _, nodes := range []int{1, 2} { // a page without a match continues after what was read
		routertest.InFleet(t, nodes, func(f *routertest.Fleet) {
			for _, m := range f.Nodes {
				m.Dead = make([]broker.ArchivedTask, 3)
				m.Dead[2].Queue = "rare"
			}
			found, pages := 0, 0
			for cursor := ""; pages == 0 || cursor != "" && pages < 20; pages++ {
				page, err := f.Nodes[1].Archived(context.Background(), routertest.Namespace, "rare", cursor, 10)
				if err != nil {
					t.Fatal(err)
				}
				cursor, found = page.Value.Next, found+len(page.Value.Tasks)
			}
			if found != nodes || pages > 6 {
				t.Errorf("%d nodes: %d pages have %d tasks, want %d", nodes, pages, found, nodes)
			}
		})
	}
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
