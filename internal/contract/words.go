package contract

import (
	"math"
	"mime"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/internal/task"
)

// The words of schedules, indexed by the protocol's enum values.
var (
	Missed       = []task.Missed{"", task.MissedOnce, task.MissedSkip, task.MissedAll}
	Overlaps     = []task.Overlap{"", task.OverlapAllow, task.OverlapSkip}
	TickOutcomes = []string{"", "fired", "caught_up", "triggered", "skipped"}
)

// Traits of queues, by which lists of them can be filtered.
const (
	QueueDead     = "dead"
	QueuePoisoned = "poisoned"
	QueuePaused   = "paused"
	QueueNoWorker = "no_worker"
)

// QueueOrderMost sorts the queues with the most first.
const QueueOrderMost = "most"

// The words of lists of queues, indexed by the protocol's enum values.
var (
	QueueTraits = []string{"", QueueDead, QueuePoisoned, QueuePaused, QueueNoWorker}
	QueueOrders = []string{"", QueueOrderMost}
)

// The orders of task types: by how much happened to them, or by how much they fail.
const (
	TypeOrderMost    = "most"
	TypeOrderFailing = "failing"
)

// TypeOrders are the words of lists of types, indexed by the protocol's enum values.
var TypeOrders = []string{"", TypeOrderMost, TypeOrderFailing}

// The words of operations, indexed by the protocol's enum values.
var (
	Actions         = []task.BulkAction{"", task.Replay, task.Cancel, task.Discard, task.Move, task.SetPriority, task.RunNow}
	OperationStates = []string{"", "running", "paused", "done", "aborted", "failed"}
)

// WordOf returns the word for an enum value that a caller sent.
func WordOf[W ~string, N ~int32](field string, words []W, n N) (W, error) {
	if n < 0 || int(n) >= len(words) {
		return "", task.Invalid(field, "%d is not a known value", n)
	}
	return words[n], nil
}

// NumberOf is the inverse of WordOf; 0: there is none.
func NumberOf[N ~int32, W ~string](words []W, w W) N {
	for i, word := range words {
		if word == w {
			return N(i) // #nosec G115 -- a few
		}
	}
	return 0
}

// IsJSON reports whether a content type denotes a JSON value, which is UTF-8.
func IsJSON(contentType string) bool {
	if contentType == "" || contentType == "application/json" {
		return true
	}
	media, with, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json" && (with["charset"] == "" || strings.EqualFold(with["charset"], "utf-8"))
}

// ContentType returns how a content type is stored: JSON in one way, so that every reader recognizes it.
func ContentType(given string) string {
	if given != "" && IsJSON(given) {
		return "application/json"
	}
	return given
}

// RateText formats tasks per second as bulk calls accept them: 50/s, or per minute or hour if they are slow.
func RateText(perSecond float64) string {
	n, unit := perSecond, "/s"
	if n < 1 {
		n, unit = perSecond*60, "/m"
	}
	if n < 1 {
		n, unit = perSecond*3600, "/h"
	}
	return strconv.FormatFloat(math.Round(n*1e6)/1e6, 'f', -1, 64) + unit // without rounding errors
}
