package wire

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
)

// Limits on a form, far above what any action needs.
const (
	// maxFields bounds the fields: each takes 50 times its shortest form in memory.
	maxFields = 4000
	// MaxMembers bounds a list of the Query protocol.
	MaxMembers = 1000
	// maxAllMembers bounds all lists of a request together. A list is as long as its highest index says, even if the members before
	// it are missing, so nested lists could turn a small form into a million members.
	maxAllMembers = 10_000
	// maxField bounds the name of a field. A longer one is unknown in any case, and is ignored.
	maxField = 256
)

// ParseForm returns the fields of a form or the parameters of a query.
func ParseForm(s string) (url.Values, error) {
	if strings.Count(s, "&") >= maxFields {
		return nil, ErrSerialization.With("The form has more than %d fields.", maxFields)
	}
	form, err := url.ParseQuery(s)
	if err != nil {
		return nil, ErrSerialization.With("The form can not be read.")
	}
	return form, nil
}

// ReadQuery decodes the fields of a form or the parameters of a query. It ignores unknown fields, such as signatures and versions.
func ReadQuery(form url.Values) (*Input, error) {
	for field, values := range form {
		if len(values) > 1 {
			return nil, ErrSerialization.With("The form has the field %s more than once.", clip(field))
		}
	}
	q := query{form: form, lists: indexes(form)}
	in := &Input{
		QueueURL: q.text("QueueUrl"), QueueName: q.text("QueueName"), NamePrefix: q.text("QueueNamePrefix"), NextToken: q.text("NextToken"),
		MaxResults: q.number("MaxResults"), Label: q.text("Label"), Body: q.text("MessageBody"), DelaySeconds: q.number("DelaySeconds"),
		DeduplicationID: q.optional("MessageDeduplicationId"), GroupID: q.optional("MessageGroupId"), Max: q.number("MaxNumberOfMessages"),
		Visibility: q.number("VisibilityTimeout"), Wait: q.number("WaitTimeSeconds"), AttemptID: q.text("ReceiveRequestAttemptId"),
		ReceiptHandle: q.text("ReceiptHandle"), SourceARN: q.text("SourceArn"), DestinationARN: q.text("DestinationArn"),
		MaxPerSecond: q.number("MaxNumberOfMessagesPerSecond"), TaskHandle: q.text("TaskHandle"),
		Attributes: q.pairs("Attribute", "Name"), Tags: q.pairs("Tag", "Key"),
		TagKeys: q.texts("TagKey"), AccountIDs: q.texts("AWSAccountId"), ActionNames: q.texts("ActionName"),
		AttributeNames: q.texts("AttributeName"), SystemAttrNames: q.texts("MessageSystemAttributeName"),
		MessageAttrNames: q.texts("MessageAttributeName"), MessageAttrs: q.attributes("MessageAttribute"),
		SystemAttrs: q.attributes("MessageSystemAttribute"),
	}
	if len(in.AttributeNames) > 0 { // the older of two lists; in JSON, both count
		in.SystemAttrNames = nil
	}
	if in.Tags == nil {
		in.Tags = q.pairs("Tags", "Key")
	}
	for _, list := range []string{"SendMessageBatchRequestEntry", "DeleteMessageBatchRequestEntry",
		"ChangeMessageVisibilityBatchRequestEntry"} {
		for _, at := range q.members(list) {
			in.Entries = append(in.Entries, q.entry(at))
		}
	}
	if q.bad != nil {
		return nil, q.bad
	}
	return in, nil
}

// query decodes a form. It keeps the first error.
type query struct {
	form  url.Values
	lists map[string]int // the highest index of each list, by the list's name
	all   int            // members of all lists read so far
	bad   error
}

// indexes finds the lists of a form: in "Entry.2.Attribute.1.Name" those named "Entry" and "Entry.2.Attribute". It hashes every
// prefix of a name, which is quadratic in the name's length.
func indexes(form url.Values) map[string]int {
	lists := map[string]int{}
	for field := range form {
		if len(field) > maxField {
			continue
		}
		for at := 0; ; {
			dot := strings.IndexByte(field[at:], '.')
			if dot < 0 {
				break
			}
			name := field[:at+dot]
			at += dot + 1
			digits, _, _ := strings.Cut(field[at:], ".")
			if n, err := strconv.Atoi(digits); err == nil && n > lists[name] {
				lists[name] = n
			}
		}
	}
	return lists
}

func (q *query) text(field string) string {
	if v := q.form[field]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// optional returns a text, which may be empty; nil: it was not given.
func (q *query) optional(field string) *string {
	if v := q.form[field]; len(v) > 0 {
		return &v[0]
	}
	return nil
}

func (q *query) number(field string) *int {
	v, ok := q.form[field]
	if !ok || v[0] == "" {
		return nil
	}
	n, err := strconv.ParseInt(v[0], 10, 32)
	if err != nil {
		q.wrong(BadValue(clip(v[0]), field, "Must be an integer."))
		return nil
	}
	whole := int(n)
	return &whole
}

func (q *query) wrong(err error) {
	if q.bad == nil {
		q.bad = err
	}
}

// members returns the prefixes of a list's fields, "Name.1" and so on.
func (q *query) members(list string) (names []string) {
	last := q.lists[list]
	if last > MaxMembers {
		q.wrong(ErrSerialization.With("%s.%d: a list has at most %d members.", list, last, MaxMembers))
		return nil
	}
	if q.all += last; q.all > maxAllMembers {
		q.wrong(ErrSerialization.With("%s.%d: the lists of a request have at most %d members in all.", list, last, maxAllMembers))
		return nil
	}
	for i := 1; i <= last; i++ {
		names = append(names, list+"."+strconv.Itoa(i))
	}
	return names
}

func (q *query) texts(list string) (all []string) {
	for _, at := range q.members(list) {
		if v, ok := q.form[at]; ok {
			all = append(all, v[0])
		}
	}
	return all
}

func (q *query) pairs(list, key string) map[string]string {
	var all map[string]string
	for _, at := range q.members(list) {
		if all == nil {
			all = map[string]string{}
		}
		name := q.text(at + "." + key)
		if _, twice := all[name]; twice && name != "" {
			q.wrong(BadValue(clip(name), at+"."+key, "It is given more than once."))
		}
		all[name] = q.text(at + ".Value")
	}
	return all
}

func (q *query) attributes(list string) map[string]Attribute {
	var all map[string]Attribute
	for _, at := range q.members(list) {
		name := q.text(at + ".Name")
		if all == nil {
			all = map[string]Attribute{}
		}
		if _, twice := all[name]; twice && name != "" {
			q.wrong(BadValue(clip(name), at+".Name", "It is given more than once."))
		}
		a := Attribute{DataType: q.text(at + ".Value.DataType"), StringList: q.texts(at + ".Value.StringListValue")}
		for range q.texts(at + ".Value.BinaryListValue") {
			a.BinaryList = append(a.BinaryList, nil)
		}
		if v, ok := q.form[at+".Value.StringValue"]; ok {
			a.StringValue = &v[0]
		}
		if v, ok := q.form[at+".Value.BinaryValue"]; ok {
			b, err := base64.StdEncoding.DecodeString(v[0])
			if err != nil {
				q.wrong(BadValue(clip(v[0]), at+".Value.BinaryValue", "Must be base64."))
			}
			a.BinaryValue = b
		}
		all[name] = a
	}
	return all
}

func (q *query) entry(at string) Entry {
	return Entry{ID: q.text(at + ".Id"), Body: q.text(at + ".MessageBody"), DelaySeconds: q.number(at + ".DelaySeconds"),
		MessageAttrs: q.attributes(at + ".MessageAttribute"), SystemAttrs: q.attributes(at + ".MessageSystemAttribute"),
		DeduplicationID: q.optional(at + ".MessageDeduplicationId"), GroupID: q.optional(at + ".MessageGroupId"),
		ReceiptHandle: q.text(at + ".ReceiptHandle"), Visibility: q.number(at + ".VisibilityTimeout")}
}

// clip keeps a bad value from filling an error message.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
