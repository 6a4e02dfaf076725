package sqs

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// send implements SendMessage.
func send(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	in := x.in
	o := &outgoing{body: in.Body, delay: in.DelaySeconds, attributes: in.MessageAttrs, system: in.SystemAttrs}
	o.identify(in.GroupID, in.DeduplicationID)
	spec, err := o.spec(&q, x.trace())
	if err != nil {
		return err
	}
	got := x.Core.Enqueue(x.ctx, q, []task.Spec{spec})
	if got[0].Err != nil {
		return got[0].Err
	}
	x.out.Sent = o.sent(&got[0])
	return nil
}

// sendBatch implements SendMessageBatch. Each message has its own result.
func sendBatch(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	if err := x.checkEntries("SendMessageBatchRequestEntry"); err != nil {
		return err
	}
	size := 0
	messages := make([]outgoing, len(x.in.Entries))
	for i := range x.in.Entries {
		e := &x.in.Entries[i]
		messages[i] = outgoing{body: e.Body, delay: e.DelaySeconds, attributes: e.MessageAttrs, system: e.SystemAttrs, inBatch: true}
		messages[i].identify(e.GroupID, e.DeduplicationID)
		size += messages[i].size()
		if err := messages[i].lacks(&q.Config); err != nil {
			return wire.ErrInvalidParameterValue.With("%s", err.Message) // of the batch: no message is sent
		}
	}
	if size > maxMessage {
		return wire.ErrBatchRequestTooLong.With("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxMessage, size)
	}
	specs, index := make([]task.Spec, 0, len(messages)), make([]int, 0, len(messages))
	for i := range messages {
		spec, err := messages[i].spec(&q, x.trace())
		if err != nil {
			x.failed(x.in.Entries[i].ID, err)
			continue
		}
		specs, index = append(specs, spec), append(index, i)
	}
	for n, got := range x.Core.Enqueue(x.ctx, q, specs) {
		i := index[n]
		if got.Err != nil {
			x.failed(x.in.Entries[i].ID, got.Err)
			continue
		}
		x.out.Successful = append(x.out.Successful, wire.Result{ID: x.in.Entries[i].ID, Sent: messages[i].sent(&got)})
	}
	return nil
}

// failed adds the error of a batch entry to the response.
func (x *exchange) failed(id string, err error) {
	refusal, ok := task.AsError(err)
	if !ok {
		refusal = task.Unavailable(0, "internal error; see the server's log")
	}
	x.out.Failed = append(x.out.Failed, wire.Failed{ID: id, Err: errorOf(err, refusal)})
}

// maxEntries bounds the entries of a batch.
const maxEntries = 10

// checkEntries rejects a batch that is invalid as a whole.
func (x *exchange) checkEntries(name string) error {
	n := len(x.in.Entries)
	if n == 0 {
		return wire.ErrEmptyBatch.With("There should be at least one %s in the request.", name)
	}
	if n > maxEntries {
		return wire.ErrTooManyEntriesInBatch.With("Maximum number of entries per request are %d. You have sent %d.", maxEntries, n)
	}
	seen := make(map[string]bool, n)
	for i := range x.in.Entries {
		id := x.in.Entries[i].ID
		if !nameForm.MatchString(id) {
			return wire.ErrInvalidBatchEntryID
		}
		if seen[id] {
			return wire.ErrBatchEntryIDsNotDistinct.With("Id %s repeated.", id)
		}
		seen[id] = true
	}
	return nil
}

// outgoing is a message to be sent.
type outgoing struct {
	body               string
	delay              *int
	attributes, system map[string]wire.Attribute
	group, dedup       string
	empty              string // the parameter among these two that was given and is empty
	inBatch            bool
}

// identify sets the group and the deduplication ID.
func (o *outgoing) identify(group, dedup *string) {
	for _, id := range []struct {
		name string
		from *string
		to   *string
	}{{"MessageDeduplicationId", dedup, &o.dedup}, {"MessageGroupId", group, &o.group}} {
		if id.from == nil {
			continue
		}
		if *id.to = *id.from; *id.to == "" {
			o.empty = id.name
		}
	}
}

// size returns the size that Amazon SQS limits.
func (o *outgoing) size() int { return len(o.body) + sizeOf(o.attributes) }

// trace returns the trace that the request is part of, by its HTTP header; "": it names none.
func (x *exchange) trace() string {
	trace := x.r.Header.Get("X-Amzn-Trace-Id")
	if len(trace) > maxTraceHeader || !isText([]byte(trace)) {
		return ""
	}
	return trace
}

// spec validates a message and converts it to a task. The message may name another trace than the request's.
func (o *outgoing) spec(q *queues.Queue, trace string) (task.Spec, error) {
	if err := o.check(q); err != nil {
		return task.Spec{}, err
	}
	if a, ok := o.system[traceHeader]; ok {
		trace = *a.StringValue
	}
	s := specOf(o.body, o.attributes, trace)
	s.Queue, s.Key = q.Name, o.group
	delay := numberOf(&q.Config, "DelaySeconds")
	if o.delay != nil && !isFIFO(&q.Config) { // there it may only be 0, which means nothing
		delay = *o.delay
	}
	s.Delay = time.Duration(delay) * time.Second
	retain(&s, q)
	if isFIFO(&q.Config) {
		o.deduplicate(&s, q)
	}
	s.Fill()
	return s, nil
}

// retain limits how long a message is kept, whether or not it is received.
func retain(s *task.Spec, q *queues.Queue) {
	s.ExpiresIn, s.ExpiresAlways = time.Duration(numberOf(&q.Config, "MessageRetentionPeriod"))*time.Second, true
}

func (o *outgoing) check(q *queues.Queue) error {
	if o.body == "" {
		return wire.Missing("MessageBody")
	}
	if most := numberOf(&q.Config, "MaximumMessageSize"); o.size() > most {
		verdict := "are invalid"
		if o.inBatch {
			verdict = "cannot be validated"
		}
		return wire.ErrInvalidParameterValue.With("One or more parameters %s. Reason: Message must be shorter than %d bytes.", verdict,
			most)
	}
	if !isText([]byte(o.body)) {
		return wire.ErrInvalidMessageContents.With("Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 " +
			"to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	}
	if o.delay != nil && (*o.delay < 0 || *o.delay > 900) {
		return wire.BadValue(*o.delay, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
	}
	if o.empty != "" {
		return badID(o.empty, "")
	}
	if err := checkID("MessageGroupId", o.group); err != nil {
		return err
	}
	if err := o.checkFIFO(&q.Config); err != nil {
		return err
	}
	if err := checkSystem(o.system); err != nil {
		return err
	}
	return checkAttributes(o.attributes)
}

// traceHeader is the only system attribute that can be sent.
const traceHeader = "AWSTraceHeader"

// maxTraceHeader bounds its value, which is stored in a header.
const maxTraceHeader = 1 << 10

func checkSystem(all map[string]wire.Attribute) error {
	for name, a := range all {
		if name != traceHeader {
			return wire.ErrInvalidParameterValue.With("Message system attribute name '%s' is invalid.", task.Cut(name, 100))
		}
		if a.DataType != "String" || a.StringValue == nil || len(*a.StringValue) > maxTraceHeader || !isText([]byte(*a.StringValue)) {
			return wire.ErrInvalidParameterValue.With("Message system attribute '%s' must be a String of at most %d bytes.",
				name, maxTraceHeader)
		}
	}
	return nil
}

const maxAttributes = 10

// isAttributeName reports whether a name has 1 to 256 letters, digits, and characters of "_.-". A regular expression
// that counts to 256 would be 10 MB large, and compiling it was half of the CPU time in which each of Pawl's commands
// ran.
func isAttributeName(name string) bool {
	n := utf8.RuneCountInString(name)
	return 0 < n && n <= 256 && !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune("_.-", r)
	})
}

// checkAttributes rejects invalid message attributes.
func checkAttributes(all map[string]wire.Attribute) error {
	if len(all) > maxAttributes {
		return wire.ErrInvalidParameterValue.With("Number of message attributes [%d] exceeds the allowed maximum [%d].",
			len(all), maxAttributes)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a := all[name]
		if !isAttributeName(name) || strings.HasPrefix(strings.ToLower(name), "aws.") ||
			strings.HasPrefix(strings.ToLower(name), "amazon.") || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") ||
			strings.Contains(name, "..") {
			return wire.ErrInvalidParameterValue.With("Invalid message attribute name '%s'.", task.Cut(name, 100))
		}
		if err := checkAttributeValue(name, &a); err != nil {
			return err
		}
	}
	return nil
}

func checkAttributeValue(name string, a *wire.Attribute) error {
	kind, _, _ := strings.Cut(a.DataType, ".")
	switch {
	case a.DataType == "":
		return wire.ErrInvalidParameterValue.With("The message attribute '%s' must contain message attribute type.", name)
	case kind != "String" && kind != "Number" && kind != "Binary":
		return wire.ErrInvalidParameterValue.With("The message attribute '%s' has an invalid message attribute type, the set of "+
			"supported type prefixes is Binary, Number, and String.", name)
	case len(a.StringList) > 0 || len(a.BinaryList) > 0:
		return wire.ErrUnsupportedOperation.With("Message attribute list values in SendMessage operation are not supported.")
	case strings.ContainsFunc(a.DataType, unicode.IsControl) || !utf8.ValidString(a.DataType):
		return wire.ErrInvalidParameterValue.With("The type of message (user) attribute '%s' contains invalid characters.", name)
	case len(a.DataType) > 256:
		return wire.ErrInvalidParameterValue.With("Message (user) attribute '%s' has a type of more than 256 bytes.", name)
	case kind == "Binary" && len(a.BinaryValue) == 0, kind != "Binary" && (a.StringValue == nil || *a.StringValue == ""):
		return wire.ErrInvalidParameterValue.With("Message (user) attribute '%s' must contain a non-empty value of type '%s'.", name, kind)
	case kind == "Binary" && a.StringValue != nil, kind != "Binary" && len(a.BinaryValue) > 0:
		return wire.ErrInvalidParameterValue.With("Message (user) attribute '%s' has more than one value.", name)
	case kind == "Number" && !isNumber(*a.StringValue):
		return wire.ErrInvalidParameterValue.With("Can't cast the value of message (user) attribute '%s' to a number.", name)
	case kind == "String" && !isText([]byte(*a.StringValue)):
		return wire.ErrInvalidParameterValue.With("Invalid characters found in message attribute '%s'.", name)
	}
	return nil
}

var numberForm = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

// isNumber reports whether a text is a number with up to 38 digits, as Amazon SQS takes it: between -10^128 and 10^126.
func isNumber(s string) bool {
	const mostDigits, least, most = 38, -1e128, 1e126
	if !numberForm.MatchString(s) {
		return false
	}
	digits, _, _ := strings.Cut(strings.ToLower(s), "e")
	digits = strings.Trim(strings.NewReplacer("+", "", "-", "", ".", "").Replace(digits), "0")
	v, err := strconv.ParseFloat(s, 64)
	return err == nil && len(digits) <= mostDigits && v >= least && v <= most
}

// sent returns the result for an accepted message.
func (o *outgoing) sent(got *broker.Enqueued) *wire.Sent {
	return &wire.Sent{MessageID: got.ID.String(), MD5OfBody: wire.MD5(o.body), MD5OfAttributes: wire.MD5OfAttributes(o.attributes),
		MD5OfSystemAttributes: wire.MD5OfAttributes(o.system), SequenceNumber: sequence(got.Order)}
}
