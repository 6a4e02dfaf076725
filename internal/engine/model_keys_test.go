package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// keyModel models the guarantees of idempotency keys and request ids.
type keyModel struct {
	w        *World
	rng      *rand.Rand
	keys     map[string]standsFor
	requests map[task.ID]standsFor
	tasks    map[task.ID]Accepted // as they are, or as they ended
	ids      []task.ID
}

// standsFor is the task to which a key belongs, and until when.
type standsFor struct {
	id    task.ID
	until store.Time
}

// Keys belong to their tasks for exactly their TTL, whatever is renewed, however late deadlines are handled, and whoever
// leads. In the end none of their rows remain.
func TestModelOfKeys(t *testing.T) {
	for seed := range uint64(60) {
		m := &keyModel{w: NewWorld(t), rng: rand.New(rand.NewPCG(seed, 0)), keys: map[string]standsFor{}, requests: map[task.ID]standsFor{},
			tasks: map[task.ID]Accepted{}}
		for step := range 300 {
			if err := m.step(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if step%25 == 0 {
				if err := m.w.Check(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
		}
		m.w.Pass(3 * task.MaxHold)
		for _, tab := range []byte{schema.TableKey, schema.TableRequest} {
			lo, hi := schema.TableBounds("default", tab)
			m.w.Store.Scan(lo, hi, func(k, _ []byte) bool {
				t.Errorf("seed %d: row %q is left", seed, k)
				return true
			})
		}
	}
}

func (m *keyModel) step() error {
	switch m.rng.IntN(12) {
	case 0, 1:
		m.w.Now = m.w.Now.Add(time.Duration(m.rng.IntN(1500)) * time.Millisecond) // deadlines wait
	case 2, 3:
		m.w.Pass(time.Duration(m.rng.IntN(3000)) * time.Millisecond)
	case 4:
		m.w.Pass([]time.Duration{time.Minute, 11 * time.Minute, 2 * time.Hour}[m.rng.IntN(3)])
	case 5:
		m.w.BecomeLeader()
	case 6:
		if until := m.keys[m.key()].until; until > m.w.Now { // to the edge
			m.w.Now = until - store.Time(m.rng.IntN(2))
		}
	case 7:
		m.cancel()
	default:
		return m.enqueue()
	}
	return nil
}

func (m *keyModel) key() string { return fmt.Sprint("k", m.rng.IntN(6)) }

// spec returns one of few tasks, with a random retention and TTL of its key.
func (m *keyModel) spec() task.Spec {
	keep := []time.Duration{0, time.Second, time.Hour}[m.rng.IntN(3)]
	s := task.Spec{Type: "job", Retention: &keep}
	if m.rng.IntN(4) > 0 {
		s.IdempotencyKey = m.key()
		s.IdempotencyTTL = []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, 5 * time.Second, time.Hour}[m.rng.IntN(5)]
	}
	if m.rng.IntN(3) == 0 {
		s.RequestID = task.ID{6: 0x80, 8: 0x80, 15: byte(m.rng.IntN(6))}
	}
	return s
}

func (m *keyModel) enqueue() error {
	s := m.spec()
	stands := m.keys[s.IdempotencyKey]
	if stands.until <= m.w.Now {
		stands = m.requests[s.RequestID]
	}
	a, err := m.w.Enqueue(s)
	if err != nil || stands.until <= m.w.Now {
		return m.entered(&s, a, err)
	}
	if want := m.tasks[stands.id]; a != want {
		return fmt.Errorf("the repeat of %+v is answered %+v, want %+v", s, a, want)
	}
	return nil
}

// entered records a new task.
func (m *keyModel) entered(s *task.Spec, a Accepted, err error) error {
	if _, known := m.tasks[a.ID]; err != nil || a.Duplicate || known {
		return fmt.Errorf("%+v is answered %+v (%v), want a new task", s, a, err)
	}
	if s.IdempotencyKey != "" {
		m.keys[s.IdempotencyKey] = standsFor{a.ID, m.w.Now.Add(s.IdempotencyTTL)}
	}
	if s.RequestID != (task.ID{}) {
		m.requests[s.RequestID] = standsFor{a.ID, m.w.Now.Add(task.RequestWindow)}
	}
	a.Duplicate = true
	m.tasks[a.ID], m.ids = a, append(m.ids, a.ID)
	return nil
}

// cancel ends some of the tasks.
func (m *keyModel) cancel() {
	for _, id := range m.ids {
		if a := m.tasks[id]; a.State == task.Ready && m.rng.IntN(3) == 0 {
			m.w.Round(func(r *Round) {
				if err := Cancel(r, "default", id); err != nil {
					m.w.T.Fatal(err)
				}
			})
			a.State = task.Cancelled
			m.tasks[id] = a
		}
	}
}
