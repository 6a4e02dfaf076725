package wire

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends an answer in JSON. Empty lists are left out.
func AppendJSON(b []byte, action string, out *Output) []byte {
	w := jsonWriter{b}
	w.open('{')
	w.opt("QueueUrl", out.QueueURL)
	if len(out.QueueURLs) > 0 {
		name := "QueueUrls"
		if action == "ListDeadLetterSourceQueues" {
			name = "queueUrls"
		}
		w.name(name)
		w.open('[')
		for _, u := range out.QueueURLs {
			w.value(u)
		}
		w.close(']')
	} else if action == "ListDeadLetterSourceQueues" {
		w.name("queueUrls")
		w.open('[')
		w.close(']')
	}
	w.opt("NextToken", out.NextToken)
	w.strings("Attributes", out.Attributes)
	w.strings("Tags", out.Tags)
	if out.Sent != nil {
		w.sent(out.Sent)
	}
	w.messages(out.Messages)
	w.results(out)
	w.moves(out)
	w.close('}')
	return w.b
}

// AppendJSONError appends an error in JSON.
func AppendJSONError(b []byte, e *Error) []byte {
	w := jsonWriter{b}
	w.open('{')
	w.str("__type", "com.amazonaws.sqs#"+e.Shape)
	w.str("message", e.Message)
	w.close('}')
	return w.b
}

// QueryError is the value of the header x-amzn-query-error, by which clients of JSON learn the code of Query.
func (e *Error) QueryError() string { return e.Code + ";" + e.fault() }

func (w *jsonWriter) sent(s *Sent) {
	w.str("MD5OfMessageBody", s.MD5OfBody)
	w.opt("MD5OfMessageAttributes", s.MD5OfAttributes)
	w.opt("MD5OfMessageSystemAttributes", s.MD5OfSystemAttributes)
	w.str("MessageId", s.MessageID)
	w.opt("SequenceNumber", s.SequenceNumber)
}

func (w *jsonWriter) messages(all []Message) {
	if len(all) == 0 {
		return
	}
	w.name("Messages")
	w.open('[')
	for i := range all {
		m := &all[i]
		w.open('{')
		w.str("MessageId", m.ID)
		w.str("ReceiptHandle", m.ReceiptHandle)
		w.str("MD5OfBody", m.MD5OfBody)
		w.str("Body", m.Body)
		w.strings("Attributes", m.Attributes)
		w.opt("MD5OfMessageAttributes", m.MD5OfAttributes)
		w.attributes(m.MessageAttributes)
		w.close('}')
	}
	w.close(']')
}

func (w *jsonWriter) attributes(all map[string]Attribute) {
	if len(all) == 0 {
		return
	}
	w.name("MessageAttributes")
	w.open('{')
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a := all[name]
		w.name(name)
		w.open('{')
		if a.StringValue != nil {
			w.str("StringValue", *a.StringValue)
		} else {
			w.str("BinaryValue", base64.StdEncoding.EncodeToString(a.BinaryValue))
		}
		w.str("DataType", a.DataType)
		w.close('}')
	}
	w.close('}')
}

func (w *jsonWriter) results(out *Output) {
	if len(out.Successful) > 0 {
		w.name("Successful")
		w.open('[')
		for _, r := range out.Successful {
			w.open('{')
			w.str("Id", r.ID)
			if r.Sent != nil {
				w.sent(r.Sent)
			}
			w.close('}')
		}
		w.close(']')
	}
	if len(out.Failed) > 0 {
		w.name("Failed")
		w.open('[')
		for _, f := range out.Failed {
			w.open('{')
			w.str("Id", f.ID)
			w.name("SenderFault")
			w.b = strconv.AppendBool(w.b, !f.Err.Receiver)
			w.str("Code", f.Err.Code)
			w.str("Message", f.Err.Message)
			w.close('}')
		}
		w.close(']')
	}
}

func (w *jsonWriter) moves(out *Output) {
	w.opt("TaskHandle", out.TaskHandle)
	if out.Moved != nil {
		w.number("ApproximateNumberOfMessagesMoved", *out.Moved)
	}
	if len(out.Moves) == 0 {
		return
	}
	w.name("Results")
	w.open('[')
	for i := range out.Moves {
		m := &out.Moves[i]
		w.open('{')
		w.number("ApproximateNumberOfMessagesMoved", m.Moved)
		w.number("ApproximateNumberOfMessagesToMove", m.ToMove)
		w.opt("DestinationArn", m.Target)
		w.opt("FailureReason", m.Failure)
		if m.PerSecond > 0 {
			w.number("MaxNumberOfMessagesPerSecond", int64(m.PerSecond))
		}
		w.str("SourceArn", m.Source)
		w.number("StartedTimestamp", m.StartedUnixMillis)
		w.str("Status", m.Status)
		w.opt("TaskHandle", m.Handle)
		w.close('}')
	}
	w.close(']')
}

// jsonWriter appends JSON. It puts the commas.
type jsonWriter struct{ b []byte }

func (w *jsonWriter) comma() {
	if n := len(w.b); n > 0 && w.b[n-1] != '{' && w.b[n-1] != '[' && w.b[n-1] != ':' {
		w.b = append(w.b, ',')
	}
}

func (w *jsonWriter) open(c byte) {
	w.comma()
	w.b = append(w.b, c)
}

func (w *jsonWriter) close(c byte) { w.b = append(w.b, c) }

func (w *jsonWriter) name(s string) {
	w.comma()
	w.b = append(appendQuoted(w.b, s), ':')
}

func (w *jsonWriter) value(s string) {
	w.comma()
	w.b = appendQuoted(w.b, s)
}

func (w *jsonWriter) str(name, s string) {
	w.name(name)
	w.b = appendQuoted(w.b, s)
}

func (w *jsonWriter) opt(name, s string) {
	if s != "" {
		w.str(name, s)
	}
}

func (w *jsonWriter) strings(name string, all map[string]string) {
	if len(all) == 0 {
		return
	}
	w.name(name)
	w.open('{')
	for _, key := range slices.Sorted(maps.Keys(all)) {
		w.str(key, all[key])
	}
	w.close('}')
}

// appendQuoted appends a JSON string. What is not UTF-8 becomes U+FFFD.
func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[from:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\n':
				b = append(b, `\n`...)
			case '\r':
				b = append(b, `\r`...)
			case '\t':
				b = append(b, `\t`...)
			default:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			from = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			b = append(append(b, s[from:i]...), "\uFFFD"...)
			from = i + size
		}
		i += size
	}
	return append(append(b, s[from:]...), '"')
}

func (w *jsonWriter) number(name string, n int64) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}
