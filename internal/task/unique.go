package task

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/pawlq/pawl/pawltype"
)

// Unique allows a queue only one task of a key at a time.
type Unique struct {
	Key        string     // "": derived from type, content type and payload, in whatever notation
	States     StateSet   // those in which a task holds the key; 0: Unfinished
	OnConflict OnConflict // 0: Keep
}

// OnConflict is the handling of a task whose unique key is held by another, as a number that is stored. Its word is
// pawltype's, which says what each does.
type OnConflict uint8

const (
	Keep OnConflict = 1 + iota
	Replace
	KeepLast
	Reject
)

// OnConflicts lists all of them.
var OnConflicts = [...]OnConflict{Keep, Replace, KeepLast, Reject}

var onConflictWords = [...]pawltype.OnConflict{Keep: pawltype.OnConflictKeep, Replace: pawltype.OnConflictReplace,
	KeepLast: pawltype.OnConflictKeepLast, Reject: pawltype.OnConflictReject}

func (c OnConflict) String() string { return wordOf(onConflictWords[:], c) }

// ParseOnConflict is the inverse of String.
func ParseOnConflict(s string) (OnConflict, bool) {
	for _, c := range OnConflicts {
		if c.String() == s {
			return c, true
		}
	}
	return 0, false
}

// StateSet is a set of states. The values are stored.
type StateSet uint16

// StatesOf returns the set of some states.
func StatesOf(states ...State) (set StateSet) {
	for _, s := range states {
		set |= 1 << s
	}
	return set
}

// Unfinished is the set of states of tasks that have not ended.
var Unfinished = StatesOf(Scheduled, Ready, Claimed, Retrying)

var allStates = StatesOf(States...)

// Has reports whether a state is in the set.
func (set StateSet) Has(s State) bool { return set>>s&1 == 1 }

// List returns the states in the set, in the order of their constants.
func (set StateSet) List() (states []State) {
	for _, s := range States {
		if set.Has(s) {
			states = append(states, s)
		}
	}
	return states
}

func (set StateSet) String() string {
	names := make([]string, 0, len(States))
	for _, s := range set.List() {
		names = append(names, s.String())
	}
	return strings.Join(names, ", ")
}

// filled returns a copy with defaults for fields that were not set.
func (u Unique) filled(s *Spec) *Unique {
	if u.Key == "" {
		u.Key = contentKey(s)
	}
	if u.States == 0 {
		u.States = Unfinished
	}
	if u.OnConflict == 0 {
		u.OnConflict = Keep
	}
	return &u
}

// contentKey returns the unique key of a task that names none. A collision would lose a task, so it is not a short hash.
func contentKey(s *Spec) string {
	sum := sha256.Sum256(s.AppendContent(nil))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// check refuses sets with gaps. A task that left the set while it is claimed, for example, would return when it is released, and find
// its key taken: then there are two of the key, or one is lost. So the set must include all states of a task that has not ended.
func (u *Unique) check(l Limits) error {
	if err := CheckName("unique.key", u.Key, l); err != nil {
		return err
	}
	if u.OnConflict > Reject {
		return Invalid("unique.on_conflict", "%d is not keep, replace, keep_last or reject", u.OnConflict)
	}
	if u.States&^allStates != 0 {
		return Invalid("unique.states", "%#x has an unknown state", uint16(u.States&^allStates))
	}
	if missing := Unfinished &^ u.States; missing != 0 {
		return Invalid("unique.states", "%s missing: a task may come back from there when another has its key, so all of %s are needed; "+
			"to let one task wait while another runs, use on_conflict keep_last", missing, Unfinished)
	}
	if ended := u.States &^ Unfinished; ended != 0 && (u.OnConflict == Replace || u.OnConflict == KeepLast) {
		return Invalid("unique.states", "%s with on_conflict %s: a task that has ended can't be replaced, use keep or reject",
			ended, u.OnConflict)
	}
	return nil
}
