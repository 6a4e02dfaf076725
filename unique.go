package pawl

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Unique lets the queue have one task of a key at a time. It is an Option:
//
//	client.Enqueue(ctx, args, pawl.Unique{Key: "report-7", OnConflict: pawl.OnConflictKeepLast})
//
// The key is held from the enqueue until the task leaves the states, and is free in the instant it ends, however it ends.
type Unique struct {
	// Key is at most 256 bytes; "": one that stands for the task's type and payload, byte by byte.
	Key string
	// States are those in which a task holds its key. All that are no end must be among them, which is the default; ends may be
	// added with OnConflictKeep and OnConflictReject: then the key is held until retention removes the task.
	States []State
	// OnConflict says what becomes of a task whose key another one holds; "": OnConflictKeep.
	OnConflict OnConflict
}

// OnConflict says what becomes of a task whose unique key another one holds.
type OnConflict string

const (
	// OnConflictKeep gives the other task, with Ref.Duplicate set.
	OnConflictKeep OnConflict = "keep"
	// OnConflictReplace discards the task of the key that waits, and takes its place: a debounce. If none waits, since the other
	// one runs, it is as OnConflictKeep.
	OnConflictReplace OnConflict = "replace"
	// OnConflictKeepLast is as OnConflictReplace, but while the other one runs, the new one waits behind it: at most one runs and
	// one waits, with the newest data. A task that would be run again while another waits behind it is discarded in its favour.
	OnConflictKeepLast OnConflict = "keep_last"
	// OnConflictReject refuses the new task with ErrConflict.
	OnConflictReject OnConflict = "reject"
)

func (u Unique) apply(s *pawlv1.TaskSpec) error {
	states, err := statesProto("unique.states", u.States)
	if err != nil {
		return err
	}
	how, err := numberOf[pawlv1.OnConflict]("unique.on_conflict", u.OnConflict, onConflictWords, "keep, replace, keep_last or reject")
	if err != nil {
		return err
	}
	s.Unique = &pawlv1.Unique{Key: u.Key, States: states, OnConflict: how}
	return nil
}

// Read only.
var onConflictWords = words[OnConflict](pawlv1.OnConflict_name, "ON_CONFLICT_")

func uniqueOf(p *pawlv1.Unique) *Unique {
	if p == nil {
		return nil
	}
	u := &Unique{Key: p.GetKey(), OnConflict: onConflictWords[int32(p.GetOnConflict())]}
	for _, s := range p.GetStates() {
		u.States = append(u.States, stateOf(s))
	}
	return u
}
