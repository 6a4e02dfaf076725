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

// Attributes of a queue are stored as annotations of its configuration, next to Pawl's own settings.
const (
	noteAttribute = "sqs:" // followed by the name
	noteTag       = "sqs-tag:"
	noteModified  = "sqs-modified" // Unix seconds
	notePurged    = "sqs-purged"   // Unix seconds
	noteScope     = "sqs-scope"    // Unix seconds when DeduplicationScope was changed, and what it was
)

// number is an integer attribute.
type number struct{ least, most, otherwise int }

var numbers = map[string]number{
	"VisibilityTimeout":             {0, 43200, 30},
	"DelaySeconds":                  {0, 900, 0},
	"MaximumMessageSize":            {1024, maxMessage, maxMessage},
	"MessageRetentionPeriod":        {60, 1209600, 345600},
	"ReceiveMessageWaitTimeSeconds": {0, 20, 0},
	reusePeriod:                     {60, 86400, 300},
}

// maxMessage bounds a message with its attributes, in bytes.
const maxMessage = 1 << 20

// texts are the other settable attributes, with their limits in bytes.
var texts = map[string]int{"Policy": 8192, "RedrivePolicy": 2048, "RedriveAllowPolicy": 4096, ownKey: 256, managedKey: 5}

// fifoOnly are attributes that only FIFO queues have, and their values. The first is the default.
var fifoOnly = map[string][]string{"FifoQueue": {"true"}, "ContentBasedDeduplication": {"false", "true"},
	dedupScope: {"queue", "messageGroup"}, "FifoThroughputLimit": {"perQueue", "perMessageGroupId"}}

// readOnly are attributes that can be read but not set.
var readOnly = []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
	"CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}

// redrive is the RedrivePolicy attribute.
type redrive struct {
	Target string `json:"deadLetterTargetArn"`
	Max    int    `json:"maxReceiveCount"`
}

// booleans are attributes whose values may be written with capitals, as Python does.
var booleans = []string{"FifoQueue", "ContentBasedDeduplication", managedKey}

// plain returns attributes as they are stored: booleans in lower case, with what they imply, and nothing for what
// Amazon SQS does not return.
func plain(attributes map[string]string) map[string]string {
	to := maps.Clone(attributes)
	for _, name := range booleans {
		if v, ok := to[name]; ok && (strings.EqualFold(v, "true") || strings.EqualFold(v, "false")) {
			to[name] = strings.ToLower(v)
		}
	}
	if to[reusePeriod] == strconv.Itoa(numbers[reusePeriod].otherwise) {
		to[reusePeriod] = ""
	}
	var text struct {
		Max string `json:"maxReceiveCount"`
	}
	if p, ok := redriveOf(to["RedrivePolicy"]); ok && json.Unmarshal([]byte(to["RedrivePolicy"]), &text) == nil { // the number is a string
		b, _ := json.Marshal(p) // never fails
		to["RedrivePolicy"] = string(b)
	}
	if _, given := to[managedKey]; !given && to[ownKey] != "" { // one encryption excludes the other
		to[managedKey] = "false"
	}
	return to
}

const (
	reusePeriod = "KmsDataKeyReusePeriodSeconds"
	ownKey      = "KmsMasterKeyId"
	managedKey  = "SqsManagedSseEnabled"
)

// checkAttributes rejects invalid attributes for a queue of this type that already has others.
func (x *exchange) checkAttributes(attributes map[string]string, fifo bool, has *task.QueueConfig) error {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if err := x.checkAttribute(name, attributes[name], fifo); err != nil {
			return err
		}
	}
	if attributes[ownKey] != "" && attributes[managedKey] == "true" {
		return wire.ErrInvalidAttributeName.With("You can use one type of server-side encryption (SSE) at one time. You can " +
			"either enable KMS SSE or SQS SSE.")
	}
	will := func(name string) string {
		if v, ok := attributes[name]; ok {
			return v
		}
		return attributeOf(has, name)
	}
	if will("FifoThroughputLimit") == "perMessageGroupId" && will(dedupScope) != "messageGroup" {
		return wire.ErrInvalidAttributeValue.With("The perMessageGroupId value of FifoThroughputLimit is allowed only when the value for " +
			"DeduplicationScope is messageGroup.")
	}
	return nil
}

// checkAttribute rejects an invalid value.
func (x *exchange) checkAttribute(name, value string, fifo bool) error {
	bad := func() error { return wire.ErrInvalidAttributeValue.With("Invalid value for the parameter %s.", name) }
	if rule, ok := numbers[name]; ok {
		n, err := strconv.Atoi(value)
		if name == reusePeriod && value == "" {
			return nil
		}
		if err != nil || n < rule.least || n > rule.most {
			return bad()
		}
		return nil
	}
	if values, ok := fifoOnly[name]; ok {
		return checkFIFOAttribute(name, value, values, fifo)
	}
	most, known := texts[name]
	switch {
	case !known:
		return wire.ErrInvalidAttributeName.With("Unknown Attribute %s.", task.Cut(name, 100))
	case len(value) > most:
		return bad()
	case name == managedKey && value != "true" && value != "false":
		return bad()
	case name == "RedrivePolicy" && value != "":
		return x.checkRedrive(value, fifo)
	case name == "RedriveAllowPolicy" && value != "":
		return checkAllow(value)
	case name == "Policy" && value != "" && !json.Valid([]byte(value)):
		return bad()
	}
	return nil
}

func checkFIFOAttribute(name, value string, values []string, fifo bool) error {
	switch {
	case !fifo && (name == dedupScope || name == "FifoThroughputLimit"):
		return wire.ErrInvalidAttributeName.With("You can specify the %s only when FifoQueue is set to true.", name)
	case !fifo:
		return wire.ErrInvalidAttributeName.With("Unknown Attribute %s.", name)
	case slices.Contains(values, value):
		return nil
	case name == "FifoQueue":
		return wire.ErrInvalidAttributeValue.With("Invalid value for the parameter FifoQueue. Reason: Modifying queue type is " +
			"not supported.")
	}
	return wire.ErrInvalidAttributeValue.With("Invalid value for the parameter %s.", name)
}

func (x *exchange) checkRedrive(value string, fifo bool) error {
	p, ok := redriveOf(value)
	if !ok {
		return wire.BadValue(value, "RedrivePolicy", "Amazon SQS can't create the redrive policy, as it’s in an unsupported format.")
	}
	if p.Max < 1 || p.Max > 1000 {
		return wire.BadValue(value, "RedrivePolicy", "Invalid value for maxReceiveCount: "+strconv.Itoa(p.Max)+
			", valid values are from 1 to 1000 both inclusive.")
	}
	name, ok := queueOfARN(p.Target)
	if !ok {
		return wire.BadValue(value, "RedrivePolicy", "Invalid value for deadLetterTargetArn.")
	}
	target, err := x.named(name, x.Core.Queue)
	switch {
	case err == error(wire.ErrQueueDoesNotExist):
		return wire.BadValue(value, "RedrivePolicy", "Dead letter target does not exist.")
	case err != nil:
		return err
	case isFIFO(&target.Config) != fifo:
		return wire.BadValue(value, "RedrivePolicy", "Dead-letter queue must be same type of queue as the source.")
	}
	return x.mayRedrive(&target, value)
}

// redriveOf parses a redrive policy. The number may be a string.
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

// attributeOf returns the value to which an attribute was set, or its default.
func attributeOf(c *task.QueueConfig, name string) string {
	if name == "VisibilityTimeout" {
		// Operators may have changed the lease since. A lease is 1 s or longer.
		if c.Settings.Lease == task.MinLease && c.Annotations[noteAttribute+name] == "0" {
			return "0"
		}
		return strconv.Itoa(int(c.Settings.Lease / time.Second))
	}
	if v, ok := c.Annotations[noteAttribute+name]; ok {
		return v
	}
	if rule, ok := numbers[name]; ok && name != reusePeriod {
		return strconv.Itoa(rule.otherwise)
	}
	if name == managedKey {
		return "true"
	}
	if values, ok := fifoOnly[name]; ok && isFIFO(c) {
		return values[0]
	}
	return ""
}

// numberOf returns the value of a numeric attribute.
func numberOf(c *task.QueueConfig, name string) int {
	n, err := strconv.Atoi(attributeOf(c, name))
	if err != nil {
		return numbers[name].otherwise // validated when it was set
	}
	return n
}

// setAttributesOf stores attributes. A configuration's maps are never modified in place.
func setAttributesOf(c *task.QueueConfig, attributes map[string]string, now time.Time) {
	notes := maps.Clone(c.Annotations)
	if notes == nil {
		notes = map[string]string{}
	}
	if scope := attributes[dedupScope]; c.Version > 0 && scope != "" && scope != attributeOf(c, dedupScope) {
		noteScopeChange(notes, c, scope, now)
	}
	for name, value := range attributes {
		if value == "" {
			delete(notes, noteAttribute+name)
			continue
		}
		notes[noteAttribute+name] = value
		if name == "VisibilityTimeout" {
			n, _ := strconv.Atoi(value) // validated before
			c.Settings.Lease = max(time.Duration(n)*time.Second, task.MinLease)
		}
	}
	notes[noteModified] = strconv.FormatInt(now.Unix(), 10)
	c.Annotations = notes
}

// setAttributes implements SetQueueAttributes.
func setAttributes(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	if len(x.in.Attributes) == 0 {
		return wire.Missing("Attributes")
	}
	attributes := plain(x.in.Attributes)
	if err := x.checkAttributes(attributes, isFIFO(&q.Config), &q.Config); err != nil {
		return err
	}
	return x.Core.PutQueue(x.ctx, q.Name, func(c *task.QueueConfig) error {
		if c.Version == 0 {
			return task.NotFound("queue", q.Name)
		}
		setAttributesOf(c, attributes, time.Now())
		return nil
	})
}

// getAttributes implements GetQueueAttributes.
func getAttributes(x *exchange) error {
	q, err := x.find(x.Core.FreshQueue)
	if err != nil {
		return err
	}
	names, all := x.in.AttributeNames, slices.Contains(x.in.AttributeNames, "All")
	if all {
		names = slices.Concat(slices.Collect(maps.Keys(numbers)), slices.Collect(maps.Keys(texts)), slices.Collect(maps.Keys(fifoOnly)),
			readOnly)
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

// attribute returns the value of a queue's attribute; "" if it has none.
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
	if !known {
		_, known = fifoOnly[name]
	}
	return attributeOf(c, name), known
}
