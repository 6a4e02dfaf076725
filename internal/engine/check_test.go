package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Check finds a dead letter that would never be archived, and rows that would archive a task that is not a dead letter.
func TestCheckFindsArchiveRows(t *testing.T) {
	toArchive := func(tx *store.Tx, id task.ID, x *schema.Exec) {
		tx.Set(schema.ArchiveKey("default", x.EndedAt, id), nil)
	}
	for name, c := range map[string]struct {
		state task.State // of the task whose rows are damaged
		spoil func(tx *store.Tx, id task.ID, x *schema.Exec)
		want  string
	}{
		"no row": {task.Dead, func(tx *store.Tx, id task.ID, x *schema.Exec) {
			tx.Delete(schema.ArchiveKey("default", x.EndedAt, id))
		}, "no row names its deadline"},
		"row of another end": {task.Dead, func(tx *store.Tx, id task.ID, x *schema.Exec) {
			tx.Set(schema.ArchiveKey("default", Dawn+7, id),
				nil)
		}, "refers to nothing"},
		"row with a value": {task.Dead, func(tx *store.Tx, id task.ID, x *schema.Exec) {
			tx.Set(schema.ArchiveKey("default", x.EndedAt, id), []byte("x"))
		}, "expected"},
		"claimed":   {task.Claimed, toArchive, "refers to nothing"},
		"succeeded": {task.Succeeded, toArchive, "refers to nothing"},
		"no task": {0, func(tx *store.Tx, _ task.ID, _ *schema.Exec) {
			tx.Set(schema.ArchiveKey("default", Dawn, task.ID{1}), nil)
		}, "refers to nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t)
			ids := map[task.State]task.ID{task.Dead: w.enqueueOne()}
			w.settle(ids[task.Dead], false, nil)
			w.Pass(20 * 24 * time.Hour)
			ids[task.Succeeded] = w.enqueueOne()
			w.settle(ids[task.Succeeded], true, nil)
			ids[task.Claimed] = w.enqueueOne()
			w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
			if found := CheckAll(w.Store, "default"); len(found) > 0 || len(query.ToArchive(w.Store, "default", 10)) != 1 {
				t.Fatalf("Check found problems before any damage: %q", found)
			}
			w.Round(func(r *Round) {
				x, _ := schema.ReadExec(r.Tx(), "default", ids[c.state])
				c.spoil(r.Tx(), ids[c.state], x)
			})
			if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], c.want) {
				t.Errorf("found %q, want one finding with %q", found, c.want)
			}
		})
	}
}

// Check finds a claimed task whose lease never ends, an ended one that is kept for ever, one whose remains are kept for
// ever, and keys that never expire.
func TestCheckFindsSharedDeadlines(t *testing.T) {
	for name, spoil := range map[string]func(d *schema.Deadline){
		"no row": func(d *schema.Deadline) { d.Shared, d.Keys = nil, nil },
		"another task, another key": func(d *schema.Deadline) {
			if d.Shared != nil {
				d.Shared[0][0]++
			} else {
				d.Keys[0][0]++
			}
		},
		"another time":      func(d *schema.Deadline) { d.At++ },
		"another namespace": func(d *schema.Deadline) { d.Namespace = "other" },
	} {
		for _, kind := range []schema.DeadlineKind{schema.OnLease, schema.OnForget, schema.OnForgotten, schema.OnKey, schema.OnRequest} {
			w, none := NewWorld(t), time.Duration(0)
			a, err := w.Enqueue(task.Spec{Type: "job", Retention: &none, IdempotencyKey: "k", RequestID: task.ID{15: 7}})
			if err != nil {
				t.Fatal(err)
			}
			w.settle(a.ID, true, nil)
			w.Pass(0)
			w.settle(w.enqueueOne(), true, nil)
			w.claimAll(1)
			if err := w.Check(); err != nil {
				t.Fatalf("Check found problems before any damage: %v", err)
			}
			w.Round(func(r *Round) {
				for _, d := range w.deadlines() {
					if d.Kind != kind {
						continue
					}
					r.tx.Delete(d.Key())
					if spoil(&d); len(d.Value()) > 0 {
						r.tx.Set(d.Key(), d.Value())
					}
				}
			})
			if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], "no row names its deadline") {
				t.Errorf("%s: found %q, want one finding about a missing deadline", name, found)
			}
		}
	}
}

// Check finds a task that has the wrong expiry of its idempotency key, and a key that can't be decoded.
func TestCheckFindsKeys(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(r *Round, id task.ID, x *schema.Exec)
		want  string
	}{
		"another time": {func(r *Round, id task.ID, x *schema.Exec) {
			x.KeyedUntil++
			r.setExec("default", id, x)
		}, "its idempotency key ends at"},
		"damaged": {func(r *Round, _ task.ID, _ *schema.Exec) {
			r.tx.Set(schema.IdempotencyKey("default", "default", "k"), []byte("x"))
		}, "key "},
	} {
		w := NewWorld(t)
		a, err := w.Enqueue(task.Spec{Type: "job", IdempotencyKey: "k", RequestID: task.ID{15: 7}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Check(); err != nil {
			t.Fatalf("Check found problems before any damage: %v", err)
		}
		w.Round(func(r *Round) {
			x, _ := schema.ReadExec(r.tx, "default", a.ID)
			c.spoil(r, a.ID, x)
		})
		if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], c.want) {
			t.Errorf("%s: found %q, want one finding with %q", name, found, c.want)
		}
	}
}

// Check finds a result without a task that refers to it, and the other way round.
func TestCheckFindsResults(t *testing.T) {
	for _, had := range []bool{true, false} {
		w := NewWorld(t)
		id := w.enqueueOne()
		var result []byte
		if had {
			result = []byte("1")
		}
		w.settle(id, true, result)
		if err := w.Check(); err != nil {
			t.Fatalf("Check found problems before any damage: %v", err)
		}
		w.Round(func(r *Round) {
			key := schema.IDKey("default", schema.TableResult, id)
			if had {
				r.tx.Delete(key)
			} else {
				r.tx.Set(key, schema.Result{Data: []byte("1")}.Encode())
			}
		})
		want := "is orphaned"
		if had {
			want = "has lost its result"
		}
		if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], want) {
			t.Errorf("with a result: %t, found %q, want one finding with %q", had, found, want)
		}
	}
}

// Check finds rows of ready tasks that are neither ready nor left behind by a lane.
func TestCheckFindsStaleRows(t *testing.T) {
	lane := schema.LaneName{Priority: task.Normal, Type: "job"}
	laneKey := schema.LaneKey("default", schema.TableLane, "default", lane)
	ready := func(tx *store.Tx, lane schema.LaneName, seq uint64) {
		tx.Set(schema.ReadyKey("default", "default", lane, seq), schema.EncodeReady(task.ID{1}, Dawn))
	}
	for name, c := range map[string]struct {
		spoil func(tx *store.Tx, row schema.LaneRow)
		want  string
	}{
		"before the stale rows": {func(tx *store.Tx, row schema.LaneRow) { ready(tx, lane, row.Stale-1) }, "refers to nothing"},
		"behind the lane":       {func(tx *store.Tx, row schema.LaneRow) { ready(tx, lane, row.First+100) }, "refers to nothing"},
		"in another lane": {func(tx *store.Tx, row schema.LaneRow) {
			ready(tx, schema.LaneName{Priority: task.Normal, Type: "other"}, row.Stale)
		}, "refers to nothing"},
		"none": {func(tx *store.Tx, row schema.LaneRow) {
			stale := schema.LaneRow{Count: row.Count, First: row.First, Stale: row.First}
			tx.DeleteRange(schema.ReadyKey("default", "default", lane, row.Stale), schema.ReadyKey("default", "default", lane, row.First))
			tx.Set(laneKey, stale.Encode())
		}, "its stale rows"},
	} {
		w := NewWorld(t)
		for range 10 {
			w.enqueueOne()
		}
		w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 2})
		v, _ := w.Store.Get(laneKey)
		row, err := schema.DecodeLane(v)
		if err != nil || row.Stale == 0 || len(CheckAll(w.Store, "default")) > 0 {
			t.Fatalf("before any damage the lane is %+v (%v), and Check found %q", row, err, CheckAll(w.Store, "default"))
		}
		w.Round(func(r *Round) { c.spoil(r.tx, row) })
		if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], c.want) {
			t.Errorf("%s: found %q, want one finding with %q", name, found, c.want)
		}
	}
}

// Large dead letters are archived a few at a time.
func TestToArchiveEndsByBytes(t *testing.T) {
	w := NewWorld(t)
	for range 20 {
		a, err := w.Enqueue(task.Spec{Type: "job", Payload: make([]byte, 1<<20)})
		if err != nil {
			t.Fatal(err)
		}
		w.settle(a.ID, false, nil)
	}
	w.Pass(20 * 24 * time.Hour)
	if n := len(query.ToArchive(w.Store, "default", 100)); n < 7 || n > 9 {
		t.Errorf("ToArchive returned %d of 20 dead letters of 1 MiB, want about 8", n)
	}
}

func (w *World) enqueueOne() task.ID {
	w.T.Helper()
	a, err := w.Enqueue(task.Spec{Type: "job"})
	if err != nil {
		w.T.Fatal(err)
	}
	return a.ID
}

// Check finds wrong remains of a forgotten task, and remains of a task that still exists.
func TestCheckFindsForgottenTasks(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(k *schema.KeyRow)
		want  string
	}{
		"row of another task": {func(k *schema.KeyRow) { k.ID[15]++ }, "forgotten task"},
		"without an end":      {func(k *schema.KeyRow) { k.Ended = 0 }, "forgotten task"},
		"not ended":           {func(k *schema.KeyRow) { k.Ended = task.Ready }, "forgotten task"},
		"for too short":       {func(k *schema.KeyRow) { k.Created++ }, "forgotten task"},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t)
			keep := time.Minute
			a, err := w.Enqueue(task.Spec{Type: "job", Retention: &keep})
			if err != nil {
				t.Fatal(err)
			}
			w.settle(a.ID, true, nil)
			w.Pass(2 * time.Minute)
			if found := CheckAll(w.Store, "default"); len(found) > 0 {
				t.Fatalf("Check found problems before any damage: %q", found)
			}
			w.Round(func(r *Round) {
				k, _ := schema.ReadKey(r.Tx(), schema.ForgottenKey("default", a.ID))
				c.spoil(&k)
				r.Tx().Set(schema.ForgottenKey("default", a.ID), k.Encode())
			})
			if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], c.want) {
				t.Errorf("found %q, want one finding with %q", found, c.want)
			}
		})
	}
	t.Run("a task that is kept", func(t *testing.T) {
		w := NewWorld(t)
		id := w.enqueueOne()
		w.Round(func(r *Round) {
			row := schema.KeyRow{ID: id, Until: w.Now.Add(task.RequestWindow), Ended: task.Succeeded, Created: w.Now}
			r.tx.Set(schema.ForgottenKey("default", id), row.Encode())
			r.setTaskDeadline(row.Until, schema.OnForgotten, "default", id)
		})
		if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], "is ready, and forgotten") {
			t.Errorf("found %q, want one finding about a forgotten task", found)
		}
	})
}

// Check finds a lane and counters that do not match their tasks.
func TestCheckFindsLanesAndCounts(t *testing.T) {
	lane := func(count, first uint64) func(tx *store.Tx, x *schema.Exec) {
		return func(tx *store.Tx, x *schema.Exec) {
			row := schema.LaneRow{Count: int64(count), First: first}
			tx.Set(schema.LaneKey("default", schema.TableLane, "default", x.Lane()), row.Encode())
		}
	}
	for name, c := range map[string]struct {
		spoil func(tx *store.Tx, x *schema.Exec)
		want  string
	}{
		"no lane": {func(tx *store.Tx, x *schema.Exec) {
			tx.Delete(schema.LaneKey("default", schema.TableLane, "default", x.Lane()))
		}, "has no row"},
		"lane of more":     {lane(3, 1), "counts 3 from"},
		"lane of fewer":    {lane(1, 1), "counts 1 from"},
		"lane from beyond": {lane(2, 1<<60), "counts 2 from"},
		"no place in it": {func(tx *store.Tx, x *schema.Exec) { tx.Delete(schema.ReadyKey("default", "default", x.Lane(), x.Seq)) },
			"is missing"},
		"no counters": {func(tx *store.Tx, _ *schema.Exec) {
			tx.Delete(schema.QueueKey("default", schema.TableCounts, "default"))
		}, "no counters"},
		"counters of no queue": {func(tx *store.Tx, _ *schema.Exec) {
			tx.Set(schema.QueueKey("default", schema.TableCounts, "gone"), (&schema.Counts{}).Encode())
		}, `counters of queue "gone" are orphaned`},
		"other counters": {func(tx *store.Tx, _ *schema.Exec) {
			tx.Set(schema.QueueKey("default", schema.TableCounts, "default"), (&schema.Counts{Ready: [3]int64{0, 3, 0}}).Encode())
		}, "counts {"},
		"a share that can't be read": {func(tx *store.Tx, _ *schema.Exec) {
			tx.Set(schema.Table("default", schema.TableShare), []byte{0xff})
		},
			"share"},
		"a share of no place": {func(tx *store.Tx, _ *schema.Exec) {
			tx.Set(append(schema.Table("default", schema.TableShare), 'x'), schema.EncodeShare(task.Share{Version: 1}))
		}, "share"},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t)
			w.enqueueOne()
			id := w.enqueueOne()
			if found := CheckAll(w.Store, "default"); len(found) > 0 {
				t.Fatalf("Check found problems before any damage: %q", found)
			}
			w.Round(func(r *Round) {
				x, _ := schema.ReadExec(r.Tx(), "default", id)
				c.spoil(r.Tx(), x)
			})
			if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], c.want) {
				t.Errorf("found %q, want one finding with %q", found, c.want)
			}
		})
	}
}

// Check finds a claim key that can't be read, and one that has no deadline.
func TestCheckFindsClaimKeys(t *testing.T) {
	for want, spoil := range map[string]func(tx *store.Tx, key []byte, row schema.ClaimKeyRow){
		"is never forgotten": func(tx *store.Tx, key []byte, row schema.ClaimKeyRow) {
			tx.Delete(schema.DeadlineKey(row.Until, schema.OnClaimKey, "default", []byte("k")))
		},
		"never forgotten": func(tx *store.Tx, key []byte, row schema.ClaimKeyRow) {
			row.Until++
			tx.Set(key, row.Encode())
		},
		"claim key": func(tx *store.Tx, key []byte, _ schema.ClaimKeyRow) { tx.Set(key, []byte{0xff}) },
	} {
		w := NewWorld(t)
		w.enqueueOne()
		w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, ClaimKey: "k"})
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		key := schema.ClaimKeyKey("default", "k")
		w.Round(func(r *Round) {
			row, _ := r.Tx().Get(key)
			spoil(r.Tx(), key, schema.Must(schema.DecodeClaimKey(row)))
		})
		if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], want) {
			t.Errorf("found %q, want one finding with %q", found, want)
		}
	}
}

// Check finds a claim without a nonce, and one that lasts longer than its run, and any change of leader, would allow.
func TestCheckFindsClaims(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(c *schema.Claim)
		found bool
	}{
		"expired":                 {func(c *schema.Claim) { c.At = c.At.Add(time.Minute) }, true},
		"in time":                 {func(c *schema.Claim) { c.At = c.At.Add(time.Minute) - 1 }, false},
		"no nonce":                {func(c *schema.Claim) { c.Nonce = 0 }, true},
		"beyond its bound":        {func(c *schema.Claim) { c.RunUntil = c.Until.Add(-LeaderGrace) - 1 }, true},
		"let go on":               {func(c *schema.Claim) { c.RunUntil = c.Until.Add(-LeaderGrace) }, false},
		"let go on after its end": {func(c *schema.Claim) { c.RunUntil, c.Orphaned = 1, true }, false},
	} {
		w := NewWorld(t)
		w.enqueueOne()
		accepted, err := w.Enqueue(task.Spec{Type: "job", Priority: task.High, ExpiresIn: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		id := accepted.ID
		w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
		w.Round(func(r *Round) {
			x, _ := schema.ReadExec(r.Tx(), "default", id)
			c.spoil(&x.Claim)
			r.Tx().Set(schema.IDKey("default", schema.TableExec, id), x.Encode())
		})
		if found := CheckAll(w.Store, "default"); (len(found) == 1 && strings.Contains(found[0], "claim")) != c.found || len(found) > 1 {
			t.Errorf("%s: found %q", name, found)
		}
	}
}
