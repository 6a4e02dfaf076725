package sqs

import (
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// Limits on tags, the same as in Amazon SQS.
const (
	maxTags     = 50
	maxTagKey   = 128 // characters
	maxTagValue = 256
)

// checkTags rejects invalid tags for a queue that already has the given number of others.
func checkTags(queue string, tags map[string]string, others int) error {
	if len(tags)+others > maxTags {
		return wire.ErrInvalidParameterValue.With("Too many tags added for queue %s.", queue)
	}
	for key, value := range tags {
		if key == "" || utf8.RuneCountInString(key) > maxTagKey || strings.HasPrefix(strings.ToLower(key), "aws:") {
			return wire.ErrInvalidParameterValue.With("Tag keys must be between 1 and %d characters in length and may not begin with aws:.",
				maxTagKey)
		}
		if !isText([]byte(key)) || !isText([]byte(value)) {
			return wire.ErrInvalidParameterValue.With("Tag keys and values can only contain characters of XML.")
		}
		if utf8.RuneCountInString(value) > maxTagValue {
			return wire.ErrInvalidParameterValue.With("Tag values must be between 0 and %d characters in length.", maxTagValue)
		}
	}
	return nil
}

func setTags(c *task.QueueConfig, tags map[string]string) {
	notes := map[string]string{}
	for key, value := range tags {
		notes[noteTag+key] = value
	}
	setNotes(c, notes)
}

func tagsOf(c *task.QueueConfig) map[string]string {
	tags := map[string]string{}
	for name, value := range c.Annotations {
		if key, ok := strings.CutPrefix(name, noteTag); ok {
			tags[key] = value
		}
	}
	return tags
}

// tagQueue implements TagQueue.
func tagQueue(x *exchange) error {
	if len(x.in.Tags) == 0 {
		return wire.Missing("Tags")
	}
	return x.retag(func(queue string, c *task.QueueConfig) error {
		others := tagsOf(c)
		for key := range x.in.Tags {
			delete(others, key)
		}
		if err := checkTags(queue, x.in.Tags, len(others)); err != nil {
			return err
		}
		setTags(c, x.in.Tags)
		return nil
	})
}

// untagQueue implements UntagQueue.
func untagQueue(x *exchange) error {
	if len(x.in.TagKeys) == 0 {
		return wire.ErrInvalidParameterValue.With("Tag keys must be between 1 and %d characters in length.", maxTagKey)
	}
	return x.retag(func(_ string, c *task.QueueConfig) error {
		notes := maps.Clone(c.Annotations)
		for _, key := range x.in.TagKeys {
			delete(notes, noteTag+key)
		}
		c.Annotations = notes
		return nil
	})
}

func (x *exchange) retag(change func(queue string, c *task.QueueConfig) error) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	return x.Core.PutQueue(x.ctx, q.Name, func(c *task.QueueConfig) error {
		if c.Version == 0 {
			return task.NotFound("queue", q.Name)
		}
		return change(q.Name, c)
	})
}

// listTags implements ListQueueTags.
func listTags(x *exchange) error {
	q, err := x.find(x.Core.FreshQueue)
	if err == nil {
		x.out.Tags = tagsOf(&q.Config)
	}
	return err
}
