package check

import (
	"strings"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// checkBreakers compares each breaker with the rule of its type, and its probe with the task.
func (c *checker) checkBreakers() {
	rules := map[string]task.Settings{}
	c.Scan(schema.TableQueue, func(k, v []byte) {
		if config, err := task.DecodeQueueConfig(v); err != nil {
			c.Find("queue %q: %v", k, err)
		} else {
			rules[string(k[len(c.ns)+2:len(k)-1])] = config.Settings
		}
	})
	c.Scan(schema.TableBreaker, func(k, v []byte) {
		rest := k[len(c.ns)+2:]
		queue, typ, _ := strings.Cut(string(rest), "\x00")
		b, err := breaker.Decode(typ, v)
		settings, known := rules[queue]
		switch {
		case err != nil:
			c.Find("breaker %q: %v", k, err)
			return
		case !known || !settings.BreakerOf(typ).IsSet():
			c.Find("type %q of queue %q has a breaker and no rule", typ, queue)
		}
		x := c.tasks[b.Probe]
		probes := x != nil && x.State == task.Claimed && x.Queue == queue && x.Type == typ
		switch {
		case b.State == breaker.Closed && (b.Since != 0 || b.Until != 0 || b.Opened != 0 || b.Passed != 0 || b.Probe != task.ID{}):
			c.Find("the breaker of type %q of queue %q is closed: %+v", typ, queue, b)
		case b.State == breaker.Closed:
			c.swept[queue] = true
			if err := b.Seen.Check(); err != nil {
				c.Find("the breaker of type %q of queue %q %v", typ, queue, err)
			}
		case b.Since == 0 || b.Opened == 0 || b.Cause.Failed == 0 || b.Cause.Failed > b.Cause.Attempts:
			c.Find("the breaker of type %q of queue %q was opened by nothing: %+v", typ, queue, b)
		case b.Tries() || b.State == breaker.Open && b.Probe == task.ID{}:
			c.ExpectRow(schema.DeadlineKey(b.Until, schema.OnBreaker, c.ns, rest), nil)
		case b.State == breaker.Open || b.Until != 0 || !probes:
			c.Find("the breaker of type %q of queue %q has task %s as its probe: %+v", typ, queue, b.Probe, b)
		}
	})
}
