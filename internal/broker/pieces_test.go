package broker

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// A call in pieces has one answer, with the stamp of its last piece. If a piece fails, the error says whether nothing or some of it
// was done.
func TestInPieces(t *testing.T) {
	notLeader := &NotLeader{Shard: 3}
	for failing, want := range map[int]error{0: notLeader, 2: task.ErrUnavailable, 9: nil} {
		pieces := 0
		got, at, err := inPieces(5, func(from int, _ func(*engine.Round) bool) ([]int, Stamp, error) {
			if pieces == failing {
				return nil, Stamp{}, notLeader
			}
			pieces++
			return []int{from, from + 1}[:min(2, 5-from)], Stamp{Index: uint64(pieces)}, nil // #nosec G115 -- small
		})
		var moved *NotLeader
		switch {
		case want == nil && (err != nil || at.Index != 3 || !slices.Equal(got, []int{0, 1, 2, 3, 4})):
			t.Errorf("inPieces = %v at index %d, %v", got, at.Index, err)
		case want != nil && (got != nil || !errors.Is(err, want) || errors.As(err, &moved) != (failing == 0)):
			t.Errorf("with a failure in piece %d: %v, %v, want %v", failing, got, err, want)
		}
	}
}

// A piece ends when it has written as much as one may, whatever its round had written before. If the round is run
// again, the count restarts.
func TestPiecesAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		r, err := w.replica(one)
		w.must(err)
		row := []byte{0xf0}
		for short, want := range map[int]bool{0: false, 1: true} {
			_, _, err := change(context.Background(), r, func(round *engine.Round) (struct{}, error) {
				round.Tx().Set(row, make([]byte, pieceBytes))
				_, _, err := inPieces(1, func(_ int, more func(*engine.Round) bool) ([]int, Stamp, error) {
					if !more(round) {
						t.Error("an empty piece was reported as full")
					}
					const half = pieceBytes / 2
					began := round.Tx().Size()
					round.Tx().Set(row, make([]byte, half))
					frame := round.Tx().Size() - began - half
					round.Tx().Set(row, make([]byte, pieceBytes-half-2*frame-short))
					if got := more(round); got != want {
						t.Errorf("%d bytes short of a full piece, more = %v", pieceBytes-(round.Tx().Size()-began), got)
					}
					return []int{1}, Stamp{}, nil
				})
				return struct{}{}, err
			})
			w.must(err)
		}
	})
}

// A slot that moves here between two pieces of a call takes no task before the one that was refused.
func TestPiecesKeepTheOrderOfASlot(t *testing.T) {
	inWorld(t, func(w *world) {
		r, err := w.replica(one)
		w.must(err)
		_, _, err = change(context.Background(), r, func(round *engine.Round) (struct{}, error) {
			var moved movedSlots
			version := uint64(1)
			closed := func(slots task.SlotSet) {
				version++
				engine.PutQueue(round, ns, "hot", task.QueueConfig{Version: version, Settings: task.DefaultSettings(), Closed: slots})
			}
			enqueue := func(spec task.Spec) error {
				spec.Type, spec.Queue, spec.Routed = "job", "hot", 99
				spec.Fill()
				_, err := moved.enqueue(round, &engine.NewTask{Spec: spec, Namespace: ns, ID: r.newID(), Fresh: true})
				return err
			}
			held := task.Spec{Key: "k", Unique: &task.Unique{Key: "k", OnConflict: task.Replace}}
			closed(0)
			if err := enqueue(held); err != nil {
				t.Error(err)
			}
			if err := enqueue(task.Spec{Key: "k", IdempotencyKey: "i", OnlyFind: true}); !errors.Is(err, engine.ErrSlotMoved) {
				t.Errorf("a task that is only to be found: %v", err)
			}
			if err := enqueue(task.Spec{Key: "k"}); err != nil {
				t.Errorf("a task after one that was only to be found: %v", err)
			}
			closed(1 << task.KeySlot("k"))
			if err := enqueue(task.Spec{Key: "k"}); !errors.Is(err, engine.ErrSlotMoved) {
				t.Errorf("a task of a slot in another shard: %v", err)
			}
			closed(0)
			if err := enqueue(task.Spec{Key: "k"}); !errors.Is(err, engine.ErrSlotMoved) {
				t.Errorf("a task after one of its slot that was refused: %v", err)
			}
			if err := enqueue(task.Spec{Key: "other"}); err != nil {
				t.Errorf("a task of another slot: %v", err)
			}
			if err := enqueue(held); err != nil {
				t.Errorf("a task whose unique key is held here: %v", err)
			}
			return struct{}{}, nil
		})
		w.must(err)
	})
}
