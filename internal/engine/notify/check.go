package notify

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// check checks that each tally has its deadline, and either holds something or is pausing.
func check(c engine.Checker) {
	c.Scan(schema.TableNotification, func(k, v []byte) {
		rest := k[len(c.Namespace())+2 : len(k)-1]
		kind, queue, ok := bytes.Cut(rest, []byte{0})
		t, err := decodeTally(subject{c.Namespace(), task.NotificationKind(kind), string(queue)}, v)
		switch {
		case err != nil || !ok:
			c.Find("notification %q can't be read (%v)", k, err)
			return
		case t.count < 0, t.count > 0 && t.first == 0, t.first > t.last, t.count == 0 && t.sent == task.ID{},
			len(t.samples) > task.NotificationSamples:
			c.Find("notification %q: %d from %d to %d, %d samples", k, t.count, t.first, t.last, len(t.samples))
		}
		c.ExpectRow(schema.DeadlineKey(t.closes, schema.OnNotification, c.Namespace(), rest), nil)
	})
	c.Scan(schema.TableWatch, func(k, v []byte) {
		if _, err := decodeWatch(v); err != nil {
			c.Find("watch %q can't be read (%v)", k, err)
		}
	})
}
