package sqs

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
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
)

const (
	// textBody is the content type of a message's body, packedBody that of a payload with the attributes before the body: their
	// length in 4 bytes, the attributes as JSON, the body.
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

// specOf converts a validated message to a task.
func specOf(body string, attributes map[string]wire.Attribute, trace string) task.Spec {
	s := task.Spec{Type: typeOf(body, attributes), Payload: []byte(body), ContentType: textBody}
	if len(attributes) > 0 {
		b, err := json.Marshal(attributes)
		if err != nil {
			panic(err) // strings and bytes can always be encoded
		}
		if len(b) <= maxHeader {
			s.Headers = map[string]string{headerAttributes: string(b)}
		} else {
			s.ContentType = packedBody
			s.Payload = append(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...), body...) // #nosec G115 -- at most 2 MiB
		}
	}
	if trace != "" {
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		s.Headers[headerTrace] = trace
	}
	return s
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
	if contentType == packedBody && len(payload) >= 4 {
		if n := binary.BigEndian.Uint32(payload); uint64(n) <= uint64(len(payload)-4) {
			if json.Unmarshal(payload[4:4+n], &attributes) == nil {
				return string(payload[4+n:]), attributes
			}
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
