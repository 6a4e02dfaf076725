package engine_test

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/task"
)

// breakerRules parses breaker=FAILURES/ATTEMPTS/WINDOW, with the failures in percent, and hold, max-hold and probes.
// Types in unbroken=TYPE,… have no breaker, and breaker-of-TYPE is the rule of one type.
func breakerRules(d *datadriven.TestData, set *task.Settings) {
	read := func(v string) (b task.Breaker) {
		parts := strings.Split(v, "/")
		b = task.Breaker{FailureRate: number(parts[0]), MinAttempts: number(parts[1]), Window: duration(parts[2]),
			Hold: duration(arg(d, "hold")), MaxHold: duration(arg(d, "max-hold")), Probes: number(arg(d, "probes"))}
		b.Fill()
		return b
	}
	set.Breakers = map[string]task.Breaker{}
	for _, a := range d.CmdArgs {
		if typ, of := strings.CutPrefix(a.Key, "breaker-of-"); of {
			set.Breakers[typ] = read(a.Vals[0])
		} else if a.Key == "breaker" {
			set.Breaker = read(a.Vals[0])
		}
	}
	for _, typ := range list(d, "unbroken") {
		set.Breakers[typ] = task.Breaker{}
	}
}

// closeBreakerStep manually closes the breaker of a type, or all breakers of a queue.
func (s *story) closeBreakerStep(d *datadriven.TestData) string {
	n, err := engine.Run(s.World, func(r *engine.Round) (int, error) {
		return actions.CloseBreakers(r, s.by, "default", d.CmdArgs[0].Key, arg(d, "type"))
	})
	return answer(err, "closed %d", n)
}

// breakerChanges shows which breakers have opened and closed since its last call.
func (s *story) breakerChanges() (out string) {
	for _, c := range s.Broke {
		if c.Closed == "" {
			out += fmt.Sprintf("\n! %s/%s opens for %s: %s", c.Queue, c.Type, c.Until.Sub(c.At), c.Reason())
		} else {
			out += fmt.Sprintf("\n! %s/%s closes: %s", c.Queue, c.Type, c.Closed)
		}
	}
	s.Broke = nil
	return out
}

func (s *story) breakersOf(i engine.QueueInfo) (out string) {
	for _, b := range i.Breakers {
		out += fmt.Sprintf("\n%s is %s for %s, %d of %d probes", b.Type, b.State, s.Now.Sub(b.Since), b.Passed, b.Probes)
		if b.Until != 0 {
			out += fmt.Sprintf(", tries in %s", b.Until.Sub(s.Now))
		}
		if b.Probe != (task.ID{}) {
			out += ", with " + s.name(b.Probe)
		}
	}
	return out
}
