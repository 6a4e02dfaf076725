package wire

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

const namespace = "http://queue.amazonaws.com/doc/2012-11-05/"

// AppendXML appends a response of the Query protocol.
func AppendXML(b []byte, action, requestID string, out *Output) []byte {
	w := xmlWriter{append(b, `<?xml version="1.0"?><`+action+`Response xmlns="`+namespace+`">`...)}
	if !resultless[action] {
		w.in(action+"Result", func() { w.result(action, out) })
	}
	w.in("ResponseMetadata", func() { w.text("RequestId", requestID) })
	return append(w.b, `</`+action+`Response>`...)
}

// AppendXMLError appends an error of the Query protocol. The one of a request without an action is not worded.
func AppendXMLError(b []byte, requestID string, e *Error) []byte {
	if e == ErrUnknownOperation {
		return append(b, "<"+e.Shape+"/>\n"...)
	}
	w := xmlWriter{append(b, `<?xml version="1.0"?><ErrorResponse xmlns="`+namespace+`">`...)}
	w.in("Error", func() {
		w.text("Type", e.fault())
		w.text("Code", e.Code)
		w.text("Message", e.queryMessage())
		w.b = append(w.b, "<Detail/>"...)
	})
	w.text("RequestId", requestID)
	return append(w.b, `</ErrorResponse>`...)
}

func (e *Error) queryMessage() string {
	if e.QueryTail == "" || e.Message == "" {
		return e.Message
	}
	return e.Message[:len(e.Message)-1] + e.QueryTail // without its full stop
}

// xmlWriter appends XML. Lists are flat: one element per member.
type xmlWriter struct{ b []byte }

func (w *xmlWriter) result(action string, out *Output) {
	w.opt("QueueUrl", out.QueueURL)
	for _, u := range slices.Concat(out.QueueURLs, out.Sources) {
		w.text("QueueUrl", u)
	}
	w.opt("NextToken", out.NextToken)
	w.pairs("Attribute", "Name", out.Attributes)
	w.pairs("Tag", "Key", out.Tags)
	if out.Sent != nil {
		w.sent(out.Sent)
	}
	for i := range out.Messages {
		w.in("Message", func() { w.message(&out.Messages[i]) })
	}
	for _, r := range out.Successful {
		w.in(action+"ResultEntry", func() {
			w.text("Id", r.ID)
			if r.Sent != nil {
				w.sent(r.Sent)
			}
		})
	}
	w.opt("TaskHandle", out.TaskHandle)
	if out.Moved != nil {
		w.text("ApproximateNumberOfMessagesMoved", strconv.FormatInt(*out.Moved, 10))
	}
	for i := range out.Moves {
		w.in("Result", func() { w.move(&out.Moves[i]) })
	}
	for _, f := range out.Failed {
		w.in("BatchResultErrorEntry", func() {
			w.text("Id", f.ID)
			w.text("Code", f.Err.Code)
			w.text("Message", f.Err.queryMessage())
			w.text("SenderFault", strconv.FormatBool(!f.Err.Receiver))
		})
	}
}

func (w *xmlWriter) sent(s *Sent) {
	w.text("MessageId", s.MessageID)
	w.text("MD5OfMessageBody", s.MD5OfBody)
	w.opt("MD5OfMessageAttributes", s.MD5OfAttributes)
	w.opt("MD5OfMessageSystemAttributes", s.MD5OfSystemAttributes)
	w.opt("SequenceNumber", s.SequenceNumber)
}

func (w *xmlWriter) message(m *Message) {
	w.text("MessageId", m.ID)
	w.text("ReceiptHandle", m.ReceiptHandle)
	w.text("MD5OfBody", m.MD5OfBody)
	w.text("Body", m.Body)
	w.pairs("Attribute", "Name", m.Attributes)
	for _, name := range slices.Sorted(maps.Keys(m.MessageAttributes)) {
		a := m.MessageAttributes[name]
		w.in("MessageAttribute", func() {
			w.text("Name", name)
			w.in("Value", func() {
				if a.StringValue != nil {
					w.text("StringValue", *a.StringValue)
				} else {
					w.text("BinaryValue", base64.StdEncoding.EncodeToString(a.BinaryValue))
				}
				w.text("DataType", a.DataType)
			})
		})
	}
	w.opt("MD5OfMessageAttributes", m.MD5OfAttributes)
}

func (w *xmlWriter) move(m *MoveTask) {
	w.opt("TaskHandle", m.Handle)
	w.text("Status", m.Status)
	w.text("SourceArn", m.Source)
	w.opt("DestinationArn", m.Target)
	if m.PerSecond > 0 {
		w.text("MaxNumberOfMessagesPerSecond", strconv.Itoa(m.PerSecond))
	}
	w.text("ApproximateNumberOfMessagesMoved", strconv.FormatInt(m.Moved, 10))
	w.text("ApproximateNumberOfMessagesToMove", strconv.FormatInt(m.ToMove, 10))
	w.opt("FailureReason", m.Failure)
	w.text("StartedTimestamp", strconv.FormatInt(m.StartedUnixMillis, 10))
}

func (w *xmlWriter) pairs(element, key string, all map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w.in(element, func() {
			w.text(key, name)
			w.text("Value", all[name])
		})
	}
}

func (w *xmlWriter) in(element string, write func()) {
	w.b = append(append(append(w.b, '<'), element...), '>')
	write()
	w.b = append(append(append(w.b, '<', '/'), element...), '>')
}

func (w *xmlWriter) opt(element, s string) {
	if s != "" {
		w.text(element, s)
	}
}

func (w *xmlWriter) text(element, s string) {
	w.in(element, func() { w.b = appendText(w.b, s) })
}

// appendText appends text. XML parsers turn a bare carriage return into a newline, so it is escaped; characters that XML cannot
// contain become U+FFFD.
func appendText(b []byte, s string) []byte {
	for i, r := range s {
		switch {
		case r == '&':
			b = append(b, "&amp;"...)
		case r == '<':
			b = append(b, "&lt;"...)
		case r == '>':
			b = append(b, "&gt;"...)
		case r == '"':
			b = append(b, "&quot;"...)
		case r == '\r':
			b = append(b, "&#xD;"...)
		case r < utf8.RuneSelf && IsMessageRune(r):
			b = append(b, s[i])
		case IsMessageRune(r):
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, "\uFFFD"...)
		}
	}
	return b
}

// IsMessageRune reports whether a message may contain the character: those of XML 1.0.
func IsMessageRune(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD || r >= 0x10000 && r <= 0x10FFFF
}
