package engine

import (
	"strings"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// checkBreakers holds each breaker against the rule of its type, and a probe against the task that it is.
func (c *Checker) checkBreakers() {
	rules := map[string]task.Settings{}
	c.Scan(schema.TableQueue, func(k, v []byte) {
		if config, err := task.DecodeQueueConfig(v); err != nil {
			c.Find("queue %q: %v", k, err)
		} else {
			rules[string(k[len(c.Namespace)+2:len(k)-1])] = config.Settings
		}
	})
	c.Scan(schema.TableBreaker, func(k, v []byte) {
		rest := k[len(c.Namespace)+2:]
		queue, typ, _ := strings.Cut(string(rest), "\x00")
		b, err := decodeBreaker(typ, v)
		settings, known := rules[queue]
		switch {
		case err != nil:
			c.Find("breaker %q: %v", k, err)
			return
		case !known || !settings.BreakerOf(typ).IsSet():
			c.Find("type %q of queue %q has a breaker and no rule", typ, queue)
		}
		x := c.Tasks[b.probe]
		probes := x != nil && x.State == task.Claimed && x.Queue == queue && x.Type == typ
		switch {
		case b.state == BreakerClosed && (b.since != 0 || b.until != 0 || b.opened != 0 || b.passed != 0 || b.probe != task.ID{}):
			c.Find("the breaker of type %q of queue %q is closed: %+v", typ, queue, b)
		case b.state == BreakerClosed:
			c.swept[queue] = true
			c.checkWindow(queue, b)
		case b.since == 0 || b.opened == 0 || b.cause.failed == 0 || b.cause.failed > b.cause.attempts:
			c.Find("the breaker of type %q of queue %q was opened by nothing: %+v", typ, queue, b)
		case b.tries() || b.state == BreakerOpen && b.probe == task.ID{}:
			c.ExpectRow(schema.DeadlineKey(b.until, schema.OnBreaker, c.Namespace, rest), nil)
		case b.state == BreakerOpen || b.until != 0 || !probes:
			c.Find("the breaker of type %q of queue %q has task %s as its probe: %+v", typ, queue, b.probe, b)
		}
	})
}

func (c *Checker) checkWindow(queue string, b *breaker) {
	any := false
	for _, t := range b.seen.parts {
		any = any || t.attempts > 0
		if t.failed > t.attempts {
			c.Find("the breaker of type %q of queue %q has seen %d failures of %d attempts", b.typ, queue, t.failed, t.attempts)
		}
	}
	if !any {
		c.Find("the breaker of type %q of queue %q has seen nothing", b.typ, queue)
	}
}
