package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// maxReceives is the number of visibility timeouts after whose end a message becomes a dead letter of its own queue, if no redrive policy
// applies first. Receives that were given back do not count.
const maxReceives = 1000

// createQueue implements CreateQueue. It succeeds for an existing queue if the attributes are the same.
func createQueue(x *exchange) error {
	name, attributes := x.in.QueueName, plain(x.in.Attributes)
	fifo := attributes["FifoQueue"] == "true"
	if err := checkFIFOName(name, fifo); err != nil {
		return err
	}
	if err := x.checkAttributes(attributes, fifo, &task.QueueConfig{}); err != nil {
		return err
	}
	if err := checkTags(name, x.in.Tags, 0); err != nil {
		return err
	}
	now := time.Now()
	err := x.Core.PutQueue(x.ctx, name, func(c *task.QueueConfig) error {
		if c.Version > 0 {
			return sameAttributes(c, attributes)
		}
		c.Settings.MaxAttempts = maxReceives
		if fifo {
			c.Settings.KeyOrder = task.KeyOrderStrict
		}
		setAttributesOf(c, attributes, now)
		setTags(c, x.in.Tags)
		return nil
	})
	if err != nil {
		return err
	}
	x.out.QueueURL = x.urlOf(name)
	return nil
}

func sameAttributes(c *task.QueueConfig, attributes map[string]string) error {
	for _, n := range slices.Sorted(maps.Keys(attributes)) {
		if !sameValue(n, attributeOf(c, n), attributes[n]) {
			return wire.ErrQueueNameExists.With("A queue already exists with the same name and a different value for attribute %s", n)
		}
	}
	return nil
}

// sameValue reports whether two values of an attribute mean the same.
func sameValue(name, a, b string) bool {
	var av, bv any
	switch name {
	case "RedrivePolicy":
		p, pok := redriveOf(a)
		q, qok := redriveOf(b)
		return a == b || pok && qok && p == q
	case "Policy", "RedriveAllowPolicy":
		return a == b || json.Unmarshal([]byte(a), &av) == nil && json.Unmarshal([]byte(b), &bv) == nil && reflect.DeepEqual(av, bv)
	}
	if _, ok := numbers[name]; ok && a != "" && b != "" {
		n, _ := strconv.Atoi(a) // validated, like b
		m, _ := strconv.Atoi(b)
		return n == m
	}
	return a == b
}

// getQueueURL implements GetQueueUrl.
func getQueueURL(x *exchange) error {
	if x.in.QueueName == "" {
		return wire.Missing("QueueName")
	}
	q, err := x.named(x.in.QueueName, x.Core.Queue)
	if err == nil {
		x.out.QueueURL = x.urlOf(q.Name)
	}
	return err
}

// maxListed bounds the queues in one response.
const maxListed = 1000

// page returns how many queues are requested.
func (x *exchange) page() (limit int, err error) {
	if x.in.MaxResults == nil {
		if x.in.NextToken != "" {
			return 0, wire.Missing("MaxResults")
		}
		return maxListed, nil
	}
	if limit = *x.in.MaxResults; limit < 1 || limit > maxListed {
		return 0, wire.BadValue(limit, "MaxResults", "Must be an integer value between 1 and 1000.")
	}
	return limit, nil
}

// listQueues implements ListQueues. The token is the last name of the previous page.
func listQueues(x *exchange) error {
	limit, err := x.page()
	if err != nil {
		return err
	}
	if task.CheckPattern("QueueNamePrefix", "queue", x.in.NamePrefix+"*", task.DefaultLimits()) != nil {
		return wire.BadValue(task.Cut(x.in.NamePrefix, 100), "QueueNamePrefix",
			"Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	queues, err := x.Core.Queues(x.ctx, x.in.NamePrefix+"*", x.in.NextToken, limit)
	if err != nil {
		return err
	}
	for _, q := range queues {
		x.out.QueueURLs = append(x.out.QueueURLs, x.urlOf(q.Name))
	}
	if x.in.MaxResults != nil && len(queues) == limit {
		x.out.NextToken = queues[limit-1].Name
	}
	return nil
}

// listSources implements ListDeadLetterSourceQueues.
func listSources(x *exchange) error {
	target, err := x.queue()
	if err != nil {
		return err
	}
	limit, err := x.page()
	if err != nil {
		return err
	}
	x.out.Sources = []string{}
	for after := x.in.NextToken; ; {
		queues, err := x.Core.Queues(x.ctx, "*", after, maxListed)
		if err != nil {
			return err
		}
		for i := range queues {
			if redrivesTo(&queues[i], target.Name) {
				x.out.Sources = append(x.out.Sources, x.urlOf(queues[i].Name))
			}
			if len(x.out.Sources) == limit {
				if x.in.MaxResults != nil {
					x.out.NextToken = queues[i].Name
				}
				return nil
			}
		}
		if len(queues) < maxListed {
			return nil
		}
		after = queues[len(queues)-1].Name
	}
}

func redrivesTo(q *queues.Queue, target string) bool {
	p, ok := redriveOf(q.Config.Annotations[noteAttribute+"RedrivePolicy"])
	if !ok {
		return false
	}
	name, ok := queueOfARN(p.Target)
	return ok && name == target
}

// deleteQueue implements DeleteQueue, whether or not the queue is empty.
func deleteQueue(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	return x.Core.DropQueue(x.ctx, q)
}

// purgeInterval is the minimum time between two purges of a queue.
const purgeInterval = 60 * time.Second

// purgeUndo bounds the time spent on clearing the note of a failed purge.
const purgeUndo = 5 * time.Second

// errOtherPurge means that there is no note of this purge to be cleared.
var errOtherPurge = errors.New("the queue was purged or deleted meanwhile")

// purgeQueue implements PurgeQueue.
func purgeQueue(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	now := time.Now()
	mine := strconv.FormatInt(now.Unix(), 10)
	err = x.Core.PutQueue(x.ctx, q.Name, func(c *task.QueueConfig) error {
		if c.Version == 0 {
			return task.NotFound("queue", q.Name)
		}
		last, err := strconv.ParseInt(c.Annotations[notePurged], 10, 64)
		if err == nil && now.Sub(time.Unix(last, 0)) < purgeInterval {
			return wire.ErrPurgeQueueInProgress.With("Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.Name)
		}
		setNotes(c, map[string]string{notePurged: mine})
		return nil
	})
	if err != nil {
		return err
	}
	err = x.Core.Purge(x.ctx, q)
	if err == nil {
		return nil
	}
	// Clear the note, so that the purge can be retried immediately.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), purgeUndo)
	defer cancel()
	undone := x.Core.PutQueue(ctx, q.Name, func(c *task.QueueConfig) error {
		if c.Annotations[notePurged] != mine {
			return errOtherPurge
		}
		c.Annotations = maps.Clone(c.Annotations)
		delete(c.Annotations, notePurged)
		return nil
	})
	if errors.Is(undone, errOtherPurge) {
		return err
	}
	return errors.Join(err, undone)
}

func setNotes(c *task.QueueConfig, more map[string]string) {
	notes := maps.Clone(c.Annotations)
	if notes == nil {
		notes = map[string]string{}
	}
	maps.Copy(notes, more)
	c.Annotations = notes
}
