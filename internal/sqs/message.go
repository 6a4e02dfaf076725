package sqs

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// Headers of tasks that are messages.
const (
	headerAttributes = "sqs-attributes"        // JSON
	headerTrace      = "sqs-aws-trace"         // the system attribute AWSTraceHeader
	headerMessageID  = "sqs-message-id"        // of a dead letter: its previous id
	headerSent       = "sqs-sent"              // of a dead letter: when it was sent, Unix milliseconds
	headerReceives   = "sqs-receives"          // of a dead letter: how often it was received before
	headerSource     = "sqs-dead-letter-arn"   // of a dead letter: the queue it came from
	headerTarget     = "sqs-dead-letter-queue" // of a dead letter: the queue it was moved to

	deadLetterHeaders = 5
)

const (
	// textBody is the content type of a message's body, packedBody that of a payload with the attributes before the body: see pack.
	textBody   = "text/plain; charset=utf-8"
	packedBody = "application/vnd.pawl.sqs-message"
	// maxHeader is the size up to which attributes are stored in a header.
	maxHeader = 8 << 10
)

// plainType is the type of a task for which neither the message attribute named typeAttribute nor Celery's envelope specifies one.
const (
	plainType     = "message"
	typeAttribute = "pawl.type"
)

// Limits returns the limits on the tasks of this package, given those on the tasks of other producers. A message of 1
// MiB is packed with the lengths of its attributes, and what moves to a dead-letter queue gets headers that say where
// it came from.
func Limits(l task.Limits) task.Limits {
	l.Payload += maxPacking
	l.Headers += deadLetterHeaders
	l.HeaderBytes += 1 << 10
	return l
}

// specOf converts a validated message to a task.
func specOf(body string, attributes map[string]wire.Attribute, trace string) task.Spec {
	s := task.Spec{Type: typeOf(body, attributes), Payload: []byte(body), ContentType: textBody, MaxAttempts: maxReceives,
		Headers: map[string]string{}}
	if text := headerOf(attributes); text != "" {
		s.Headers[headerAttributes] = text
	} else if len(attributes) > 0 {
		s.ContentType, s.Payload = packedBody, pack(attributes, body)
	}
	if trace != "" {
		s.Headers[headerTrace] = trace
	}
	return s
}

// headerOf returns the header for attributes; "": there are none, or they do not fit.
func headerOf(attributes map[string]wire.Attribute) string {
	if n := sizeOf(attributes); n == 0 || n > maxHeader {
		return ""
	}
	b, err := json.Marshal(attributes)
	if err != nil {
		panic(err) // strings and bytes can always be encoded
	}
	if len(b) > maxHeader {
		return ""
	}
	return string(b)
}

// sizeOf returns the size of attributes that Amazon SQS limits.
func sizeOf(attributes map[string]wire.Attribute) (n int) {
	for name, a := range attributes {
		n += len(name) + a.Size()
	}
	return n
}

// maxPacking bounds what pack adds to a message: a number, and three for each attribute.
const maxPacking = (1 + 3*maxAttributes) * 4

// pack returns a payload: the number of attributes; of each its name, type and value, each after its length; the body.
func pack(attributes map[string]wire.Attribute, body string) []byte {
	b := binary.AppendUvarint(make([]byte, 0, maxPacking+sizeOf(attributes)+len(body)), uint64(len(attributes)))
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		value := string(a.BinaryValue)
		if a.StringValue != nil {
			value = *a.StringValue
		}
		for _, part := range []string{name, a.DataType, value} {
			b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
		}
	}
	return append(b, body...)
}

// unpack is the inverse of pack; false: the payload is that of another producer.
func unpack(b []byte) (attributes map[string]wire.Attribute, body string, ok bool) {
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		if ok = ok && n > 0; ok {
			b = b[n:]
		}
		return v
	}
	text := func() (s string) {
		n := next()
		if ok = ok && n <= uint64(len(b)); ok {
			s, b = string(b[:n]), b[n:]
		}
		return s
	}
	ok = true
	n := next()
	attributes = map[string]wire.Attribute{}
	for ; ok && n > 0; n-- {
		name, a, value := text(), wire.Attribute{DataType: text()}, text()
		if strings.HasPrefix(a.DataType, "Binary") {
			a.BinaryValue = []byte(value)
		} else {
			a.StringValue = &value
		}
		attributes[name] = a
	}
	return attributes, string(b), ok
}

// typeOf returns the type of the task for a message.
func typeOf(body string, attributes map[string]wire.Attribute) string {
	name := ""
	if a, ok := attributes[typeAttribute]; ok && a.StringValue != nil {
		name = *a.StringValue
	} else {
		name = celeryTask(body)
	}
	if name == "" || task.CheckName("type", name, task.DefaultLimits()) != nil {
		return plainType
	}
	return name
}

// celeryTask returns the name of the task in a Celery envelope, the base64 of an object with headers; "" if it is none.
func celeryTask(body string) string {
	const brace = "ey" // how the base64 of {" and {space begins
	if !strings.HasPrefix(body, brace) {
		return ""
	}
	b, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return ""
	}
	var envelope struct {
		Headers struct {
			Task string `json:"task"`
		} `json:"headers"`
	}
	if json.Unmarshal(b, &envelope) != nil {
		return ""
	}
	return envelope.Headers.Task
}

// bodyOf returns the message in a task. A payload that is not text, enqueued by other producers, is returned in base64.
func bodyOf(payload []byte, contentType string, headers map[string]string) (body string, attributes map[string]wire.Attribute) {
	if contentType == packedBody {
		if attributes, body, ok := unpack(payload); ok && isText([]byte(body)) {
			return body, attributes
		}
	}
	if text := headers[headerAttributes]; text != "" && json.Unmarshal([]byte(text), &attributes) != nil {
		attributes = nil // another producer's header
	}
	if !isText(payload) {
		return base64.StdEncoding.EncodeToString(payload), attributes
	}
	return string(payload), attributes
}

// isText reports whether a message may contain the bytes.
func isText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if !wire.IsMessageRune(r) {
			return false
		}
	}
	return true
}
