package router

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// oldMap is a map of a cluster that works at another feature level.
type oldMap struct {
	instantMap
	level int
}

func (m oldMap) Level() int { return m.level }

// A leader of an older level would not know what to do with a key whose time is over, so that no shard gets one.
func TestOnceNeedsALevel(t *testing.T) {
	for _, level := range []int{0, cluster.PoliciesLevel - 1} {
		r := New(Config{Node: 1, Map: oldMap{level: level}, Broker: &instant{leader: 1}})
		for _, verb := range []broker.OnceVerb{broker.OnceBegin, broker.OnceFinish, broker.OnceAbandon} {
			_, _, err := r.Once(t.Context(), broker.OnceCall{Verb: verb, Key: "k"})
			if !errors.Is(err, task.ErrWrongState) || !strings.Contains(err.Error(), "raise-level") {
				t.Errorf("level %d, %s: %v", level, verb, err)
			}
		}
		r.Close()
	}
}
