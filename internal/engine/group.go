package engine

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Group is the dead letters of one type whose last failures read alike.
type Group struct {
	Fingerprint uint64
	Type        string
	Message     string // normalised
	Count       int64
	First, Last store.Time // ends
	Sample      task.ID    // the newest
}

// maxGroups bounds the answer.
const maxGroups = 1000

// GroupDead counts a queue's dead letters or poisoned tasks by type and normalised message, the largest group first.
// Partial says that there are more tasks than one call reads; those read are the newest.
func GroupDead(from store.Reader, ns, queue string, s task.State) (groups []Group, partial bool) {
	byPrint := map[uint64]*Group{}
	read := 0
	prefix := statePrefix(ns, tabDead, queue, s)
	from.ScanBack(prefix, after(prefix), func(k, _ []byte) bool {
		if read == scanLimit {
			partial = true
			return false
		}
		read++
		v, err := Show(from, ns, idAt(k))
		corrupt(err)
		message := Normalise(v.LastFailure().Message)
		print := fingerprintOf(v.Type, message)
		g := byPrint[print]
		if g == nil {
			g = &Group{Fingerprint: print, Type: v.Type, Message: message, Last: v.Exec.EndedAt, Sample: v.ID}
			byPrint[print] = g
		}
		g.Count++
		g.First = v.Exec.EndedAt
		return true
	})
	for _, g := range byPrint {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		if a.Count != b.Count {
			return int(b.Count - a.Count)
		}
		return compare(a.Fingerprint, b.Fingerprint)
	})
	if len(groups) > maxGroups {
		groups, partial = groups[:maxGroups], true
	}
	return groups, partial
}

// fingerprintOf names what failures of one type and normalised message have in common.
func fingerprintOf(typ, message string) uint64 { return xxhash.Sum64String(typ + "\x00" + message) }

// PrintText is a fingerprint as it is written: 16 digits, hexadecimal.
func PrintText(print uint64) string { return fmt.Sprintf("%016x", print) }

// variable matches what differs between failures of one kind: ids, addresses, numbers, quoted values.
var variable = regexp.MustCompile(`"[^"]*"|'[^']*'|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b|[0-9]+`)

// maxNormalised is the length that a message is cut to.
const maxNormalised = 300

// Normalise replaces what differs between failures of one kind by a star.
func Normalise(message string) string {
	return task.Cut(variable.ReplaceAllString(task.Cut(message, 2000), "*"), maxNormalised)
}
