package explain

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/task"
)

// A follow-up of a task, or the new task of a moved one, is on its way as long as its message is in the outbox.

// Delivery is what the sender has seen of a message since this leader's term began.
type Delivery struct {
	Tries int64  // failed tries
	Error string // of the last failed try
}

// maxMovers bounds the operations that are searched for the one that has moved a task.
const maxMovers = 100

// whyAway returns the reasons for the messages of an ended task that are on their way.
func whyAway(r *engine.Round, ns string, id task.ID, x *schema.Exec, carried func(message task.ID) Delivery) (reasons []Reason) {
	if x.Reason == task.ReasonMoved && x.MovedTo == (task.ID{}) {
		if p, ok := movingMessage(r, ns, id); ok {
			reasons = append(reasons, whyOnItsWay("the new task", p, carried(p.Request)))
		}
	}
	for i, f := range schema.ReadFollowers(r.State(), ns, id) {
		if f.State != schema.FollowerSent {
			continue
		}
		if p, ok := schema.ReadMessage(r.State(), ns, task.RequestOf(id, uint64(i)+1)); ok { // #nosec G115 -- a few
			reasons = append(reasons, whyOnItsWay("its follower", p, carried(p.Request)))
		}
	}
	return reasons
}

// movingMessage returns the message of a task that an operation has moved.
func movingMessage(r *engine.Round, ns string, id task.ID) (p *schema.Message, ok bool) {
	lo, hi := schema.TableBounds(ns, schema.TableStep)
	var movers []task.ID
	r.State().Scan(lo, hi, func(k, _ []byte) bool {
		movers = append(movers, schema.IDAt(k))
		return len(movers) < maxMovers
	})
	for _, operation := range movers {
		if p, ok = schema.ReadMessage(r.State(), ns, task.MoveRequest(id, operation)); ok {
			return p, true
		}
	}
	return nil, false
}

func whyOnItsWay(what string, p *schema.Message, c Delivery) Reason {
	r := Reason{Code: task.WhyOnItsWay, Since: p.SentAt, Type: p.Spec.Type, Queue: p.Spec.Queue, Count: c.Tries,
		Error: task.Cut(c.Error, maxErrorShown), Detail: fmt.Sprintf("%s, of type %q, has been on its way to queue %q since %s", what,
			p.Spec.Type, p.Spec.Queue, Clock(p.SentAt)),
		Change: "nothing to do: it is retried until the queue has room and its shard answers; see " + queueCommand("show", p.Spec.Queue) +
			" and pawl cluster status"}
	if c.Tries > 0 {
		r.Detail += fmt.Sprintf("; %s failed", humanize.Count(c.Tries, "attempt"))
	}
	if c.Error != "" {
		r.Detail += ": " + task.Cut(c.Error, maxErrorShort)
	}
	return r
}
