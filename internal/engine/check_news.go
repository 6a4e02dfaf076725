package engine

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// checkNews: what is gathered for webhooks has its deadline, and holds something or rests.
func (c *checker) checkNews() {
	c.scan(schema.TableNews, func(k, v []byte) {
		rest := k[len(c.ns)+2 : len(k)-1]
		kind, queue, ok := bytes.Cut(rest, []byte{0})
		t, err := decodeNewsTally(newsName{c.ns, task.NewsKind(kind), string(queue)}, v)
		switch {
		case err != nil || !ok:
			c.find("news %q can't be read (%v)", k, err)
			return
		case t.count < 0, t.count > 0 && t.first == 0, t.first > t.last, t.count == 0 && t.sent == task.ID{}, len(t.samples) > task.NewsSamples:
			c.find("news %q: %d from %d to %d, %d samples", k, t.count, t.first, t.last, len(t.samples))
		}
		c.expectRow(schema.DeadlineKey(t.closes, schema.OnNews, c.ns, rest), nil)
	})
	c.scan(schema.TableWatch, func(k, v []byte) {
		var w task.Watch
		if err := decodeWatch(v, &w); err != nil {
			c.find("watch %q can't be read (%v)", k, err)
		}
	})
}
