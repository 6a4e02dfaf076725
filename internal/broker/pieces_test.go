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

// A piece ends when it has written as much as one may, whatever its round had written before. If the round is run again, the count restarts.
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
