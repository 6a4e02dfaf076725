package sqs

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// What a queue was told is noted in its configuration, beside what Pawl's own settings say.
const (
	noteAttribute = "sqs:" // the name follows
	noteTag       = "sqs-tag:"
	noteModified  = "sqs-modified" // Unix seconds
	notePurged    = "sqs-purged"   // Unix seconds
)

// number is an attribute that is a whole number.
type number struct{ least, most, otherwise int }

var numbers = map[string]number{
	"VisibilityTimeout":             {0, 43200, 30},
	"DelaySeconds":                  {0, 900, 0},
	"MaximumMessageSize":            {1024, maxMessage, maxMessage},
	"MessageRetentionPeriod":        {60, 1209600, 345600},
	"ReceiveMessageWaitTimeSeconds": {0, 20, 0},
	"KmsDataKeyReusePeriodSeconds":  {60, 86400, 300},
}

// maxMessage is how many bytes a message may have with its attributes.
const maxMessage = 1 << 20

// texts are the other attributes that can be set, with their limits in bytes.
var texts = map[string]int{"Policy": 8192, "RedrivePolicy": 2048, "RedriveAllowPolicy": 4096, "KmsMasterKeyId": 256, "SqsManagedSseEnabled": 5}

// fifoOnly are attributes that only FIFO queues have.
var fifoOnly = []string{"FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"}

// readOnly are attributes that can be asked for and not set.
var readOnly = []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
	"CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}

// redrive is the attribute RedrivePolicy.
type redrive struct {
	Target string
	Max    int
}

// checkAttribute refuses a value outside the rules.
func (x *exchange) checkAttribute(name, value string) error {
	bad := func() error { return wire.ErrInvalidAttributeValue.With("Invalid value for the parameter %s.", name) }
	if rule, ok := numbers[name]; ok {
		n, err := strconv.Atoi(value)
		if err != nil || n < rule.least || n > rule.most {
			return bad()
		}
		return nil
	}
	most, known := texts[name]
	switch {
	case slices.Contains(fifoOnly, name) || !known:
		return wire.ErrInvalidAttributeName.With("Unknown Attribute %s.", task.Cut(name, 100))
	case len(value) > most:
		return bad()
	case name == "SqsManagedSseEnabled" && value != "true" && value != "false":
		return bad()
	case name == "RedrivePolicy" && value != "":
		return x.checkRedrive(value)
	case (name == "Policy" || name == "RedriveAllowPolicy") && value != "" && !json.Valid([]byte(value)):
		return bad()
	}
	return nil
}

func (x *exchange) checkRedrive(value string) error {
	p, ok := redriveOf(value)
	if !ok {
		return wire.BadValue(value, "RedrivePolicy", "Amazon SQS can't create the redrive policy, as it’s in an unsupported format.")
	}
	if p.Max < 1 || p.Max > 1000 {
		return wire.BadValue(value, "RedrivePolicy", "Invalid value for maxReceiveCount: "+strconv.Itoa(p.Max)+", valid values are from 1 to 1000 both inclusive.")
	}
	name, ok := queueOfARN(p.Target)
	if ok {
		_, err := x.named(name)
		if err == nil {
			return nil
		}
		if err != error(wire.ErrQueueDoesNotExist) {
			return err
		}
	}
	return wire.BadValue(value, "RedrivePolicy", "Dead letter target does not exist.")
}

// redriveOf reads a redrive policy. The number may be a text.
func redriveOf(value string) (p redrive, ok bool) {
	var raw struct {
		Target string          `json:"deadLetterTargetArn"`
		Max    json.RawMessage `json:"maxReceiveCount"`
	}
	if json.Unmarshal([]byte(value), &raw) != nil || raw.Target == "" {
		return p, false
	}
	n, err := strconv.Atoi(strings.Trim(string(raw.Max), `"`))
	return redrive{raw.Target, n}, err == nil
}

// told is an attribute that a queue was told, or its default.
func told(c *task.QueueConfig, name string) string {
	if name == "VisibilityTimeout" {
		// Operators may have changed the lease since. A lease has 1 s at least.
		if c.Settings.Lease == task.MinLease && c.Annotations[noteAttribute+name] == "0" {
			return "0"
		}
		return strconv.Itoa(int(c.Settings.Lease / time.Second))
	}
	if v, ok := c.Annotations[noteAttribute+name]; ok {
		return v
	}
	if rule, ok := numbers[name]; ok && !strings.HasPrefix(name, "Kms") {
		return strconv.Itoa(rule.otherwise)
	}
	if name == "SqsManagedSseEnabled" {
		return "true"
	}
	return ""
}

// toldNumber is told of a number.
func toldNumber(c *task.QueueConfig, name string) int {
	n, err := strconv.Atoi(told(c, name))
	if err != nil {
		return numbers[name].otherwise // it was checked when it was set
	}
	return n
}

// setTold notes attributes. Maps of a configuration are never changed in place.
func setTold(c *task.QueueConfig, attributes map[string]string, now time.Time) {
	notes := maps.Clone(c.Annotations)
	if notes == nil {
		notes = map[string]string{}
	}
	for name, value := range attributes {
		if value == "" {
			delete(notes, noteAttribute+name)
			continue
		}
		notes[noteAttribute+name] = value
		if name == "VisibilityTimeout" {
			n, _ := strconv.Atoi(value) // checked before
			c.Settings.Lease = max(time.Duration(n)*time.Second, task.MinLease)
		}
	}
	notes[noteModified] = strconv.FormatInt(now.Unix(), 10)
	c.Annotations = notes
}

// setAttributes is SetQueueAttributes.
func setAttributes(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	if len(x.in.Attributes) == 0 {
		return wire.Missing("Attributes")
	}
	for _, name := range slices.Sorted(maps.Keys(x.in.Attributes)) {
		if err := x.checkAttribute(name, x.in.Attributes[name]); err != nil {
			return err
		}
	}
	return x.Core.PutQueue(x.ctx, q.Name, func(c *task.QueueConfig) error {
		if c.Version == 0 {
			return task.NotFound("queue", q.Name)
		}
		setTold(c, x.in.Attributes, time.Now())
		return nil
	})
}

// getAttributes is GetQueueAttributes.
func getAttributes(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	names, all := x.in.AttributeNames, slices.Contains(x.in.AttributeNames, "All")
	if all {
		names = slices.Concat(slices.Collect(maps.Keys(numbers)), slices.Collect(maps.Keys(texts)), readOnly)
	}
	values := map[string]string{}
	counted := slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "Approximate") })
	if counted {
		depth, err := x.Core.Depth(x.ctx, q)
		if err != nil {
			return err
		}
		values["ApproximateNumberOfMessages"] = strconv.FormatInt(depth.Ready[0]+depth.Ready[1]+depth.Ready[2], 10)
		values["ApproximateNumberOfMessagesNotVisible"] = strconv.FormatInt(depth.Claimed, 10)
		values["ApproximateNumberOfMessagesDelayed"] = strconv.FormatInt(depth.Scheduled+depth.Retrying, 10)
	}
	x.out.Attributes = map[string]string{}
	for _, name := range names {
		value, known := x.attribute(&q.Config, q.Name, name, values)
		if !known {
			return wire.ErrInvalidAttributeName.With("Unknown Attribute %s.", task.Cut(name, 100))
		}
		if value != "" {
			x.out.Attributes[name] = value
		}
	}
	return nil
}

// attribute is one value of a queue; "" if it has none.
func (x *exchange) attribute(c *task.QueueConfig, queue, name string, counts map[string]string) (value string, known bool) {
	switch name {
	case "QueueArn":
		return x.arnOf(queue), true
	case "CreatedTimestamp":
		return strconv.FormatInt(c.CreatedAt.Unix(), 10), true
	case "LastModifiedTimestamp":
		if at, ok := c.Annotations[noteModified]; ok {
			return at, true
		}
		return strconv.FormatInt(c.CreatedAt.Unix(), 10), true
	}
	if slices.Contains(readOnly, name) {
		return counts[name], true
	}
	if _, known = numbers[name]; !known {
		_, known = texts[name]
	}
	return told(c, name), known || slices.Contains(fifoOnly, name)
}
