package check

import (
	"bytes"
	"strings"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// checkUses checks that each claimed task of a key is listed in the key's row or has its own row, and that each such
// row is of a claim or of a bucket that is not full.
func (c *checker) checkUses() {
	c.Scan(schema.TableClaimed, func(k, _ []byte) {
		at := string(schema.Table(c.ns, schema.TableUse)) + string(k[len(c.ns)+2:len(k)-17])
		if !c.counted[at][schema.IDAt(k)] {
			c.Find("row %q refers to nothing", k)
		}
		delete(c.counted[at], schema.IDAt(k))
	})
	c.Scan(schema.TableUse, func(k, v []byte) {
		u, err := limit.DecodeUse(v)
		if err != nil || len(u.Named) > limit.MaxNamed {
			c.Find("use %q: %d tasks named (%v)", k, len(u.Named), err)
			return
		}
		live := 0
		for _, id := range u.Named {
			if c.counted[string(k)][id] {
				live++
				delete(c.counted[string(k)], id)
			}
		}
		if b := u.Bucket; b != nil {
			if b.Due != 0 {
				c.ExpectRow(schema.DeadlineKey(b.Due, schema.OnTokens, c.ns, k[len(c.ns)+2:]), nil)
			}
			queue, _, _ := strings.Cut(string(k[len(c.ns)+2:]), "\x00")
			c.swept[queue] = true
		} else if live == 0 {
			c.Find("row %q refers to nothing", k)
		}
	})
	for at, ids := range c.counted {
		for id := range ids {
			c.Find("task %s is claimed, and %q does not name it", id, at)
		}
	}
}

// checkShare checks that the rows of shares can be decoded, and that each is of the namespace or of a queue whose limits are divided.
func (c *checker) checkShare() {
	c.Scan(schema.TableShare, func(k, v []byte) {
		_, err := schema.DecodeShare(v)
		if err != nil || !bytes.Equal(k, schema.Table(c.ns, schema.TableShare)) && !c.divided(string(k[len(c.ns)+2:])) {
			c.Find("share %q: %v", k, err)
		}
	})
}

// divided reports whether the limits of the queue with this rest of a key are divided among shards.
func (c *checker) divided(rest string) bool {
	queue, _, _ := strings.Cut(rest, "\x00")
	row, ok := c.rows.Get(schema.QueueKey(c.ns, schema.TableQueue, queue))
	config, err := task.DecodeQueueConfig(row)
	return ok && err == nil && config.Divided
}
