package wire

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

func text(s string) *string { return &s }

func TestChecksums(t *testing.T) {
	if got, want := MD5("hi"), "49f68a5c8493ec2c0bf489821c21fc3b"; got != want {
		t.Errorf("MD5(hi) = %s, want %s", got, want)
	}
	if got, want := MD5OfAttributes(map[string]Attribute{"a": {DataType: "String", StringValue: text("b")}}),
		"bef8bf215374a0a228d67533b1a488be"; got != want {
		t.Errorf("MD5OfAttributes = %s, want %s", got, want)
	}
	if got := MD5OfAttributes(nil); got != "" {
		t.Errorf("MD5OfAttributes(nil) = %q, want none", got)
	}
	// A custom type is part of the checksum, and binary values have another checksum than strings.
	plain := MD5OfAttributes(map[string]Attribute{"a": {DataType: "String.x", StringValue: text("b")}})
	binary := MD5OfAttributes(map[string]Attribute{"a": {DataType: "Binary.x", BinaryValue: []byte("b")}})
	if plain == binary || plain == "bef8bf215374a0a228d67533b1a488be" {
		t.Errorf("checksums do not depend on the type: %s, %s", plain, binary)
	}
}

func TestFormsAgree(t *testing.T) {
	fromJSON, err := ReadJSON([]byte(`{"QueueUrl":"u","MessageBody":"b","DelaySeconds":3,"MessageAttributes":{"a":{"DataType":"String","StringValue":"x"},
		"b":{"DataType":"Binary","BinaryValue":"AQI="}},"Attributes":{"k":"v"},"tags":{"t":"w"},"AttributeNames":["All"],
		"Entries":[{"Id":"1","MessageBody":"c","DelaySeconds":0}]}`))
	if err != nil {
		t.Fatal(err)
	}
	form, err := url.ParseQuery("QueueUrl=u&MessageBody=b&DelaySeconds=3&MessageAttribute.1.Name=a&" +
		"MessageAttribute.1.Value.DataType=String&MessageAttribute.1.Value.StringValue=x&MessageAttribute.2.Name=b&" +
		"MessageAttribute.2.Value.DataType=Binary&MessageAttribute.2.Value.BinaryValue=AQI%3D&Attribute.1.Name=k&Attribute.1.Value=v&" +
		"Tag.1.Key=t&Tag.1.Value=w&AttributeName.1=All&SendMessageBatchRequestEntry.1.Id=1&SendMessageBatchRequestEntry.1.MessageBody=c&" +
		"SendMessageBatchRequestEntry.1.DelaySeconds=0")
	if err != nil {
		t.Fatal(err)
	}
	fromQuery, err := ReadQuery(form)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(fromJSON, fromQuery) {
		t.Errorf("JSON was read as %+v, Query as %+v", fromJSON, fromQuery)
	}
}

func TestBadRequests(t *testing.T) {
	for body, want := range map[string]string{
		`{`:                                     "not valid JSON",
		`[]`:                                    "array can not be converted to a value of member the request",
		`{"DelaySeconds":"a"}`:                  "string can not be converted to a value of member DelaySeconds",
		`{"MessageBody":1}`:                     "number can not be converted to a value of member MessageBody",
		`{} {}`:                                 "after top-level value",
		`{"MessageBody":"a\ud800b"}`:            "surrogate",
		`{"MessageBody":"a\udc00"}`:             "surrogate",
		"{\"MessageBody\":\"a\xff\"}":           "UTF-8",
		"{\"Attributes\":{\"\xff\":\"a\"}}":     "UTF-8",
		`{"MessageBody":"a","MessageBody":"b"}`: "duplicate",
		`{"Attributes":{"a":"1","\u0061":"2"}}`: "duplicate",
		`{"Entries":[{"Id":"1"},{"Id":"2","Id":"3"}]}`:                                  "duplicate",
		`{"x":{"y":[{"a":1,"a":2}]}}`:                                                   "duplicate",
		`{"DelaySeconds":1e999}`:                                                        "DelaySeconds",
		`{"Entries":[{}` + strings.Repeat(",{}", maxTokens-2) + `]}`:                    "more than 4000 names and values",
		`{"TagKeys":[""` + strings.Repeat(",null", maxTokens-2) + `]}`:                  "more than 4000 names and values",
		`{"x":` + strings.Repeat("[", maxTokens) + strings.Repeat("]", maxTokens) + `}`: "more than 4000 names and values",
	} {
		_, err := ReadJSON([]byte(body))
		if e, ok := errors.AsType[*Error](err); !ok || e.Shape != "SerializationException" || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	long := strings.Repeat("n", 1<<20)
	for _, body := range []string{`{"Attributes":{"` + long + `":1}}`, `{"Tags":{"` + long + `":"","` + long + `":""}}`} {
		if _, err := ReadJSON([]byte(body)); err == nil || len(err.Error()) > 1000 {
			t.Errorf("a long name: an error of %d bytes", len(fmt.Sprint(err)))
		}
	}
	for query, want := range map[string]string{
		"MessageBody=a&MessageBody=b": "The form has the field MessageBody more than once.",
		"Tag.1.Key=a&Tag.2.Key=b&Tag.3.Key=a": "Value a for parameter Tag.3.Key is invalid. Reason: It is given " +
			"more than once.",
		"Attribute.1.Name=a&Attribute.2.Name=a": "Value a for parameter Attribute.2.Name is invalid. Reason: It is " +
			"given more than once.",
		"MessageAttribute.1.Name=a&MessageAttribute.2.Name=a": "Value a for parameter MessageAttribute.2.Name is invalid. Reason: " +
			"It is given more than once.",
		"DelaySeconds=a": "Value a for parameter DelaySeconds is invalid. Reason: Must " +
			"be an integer.",
		"Tag.2000000.Key=": "Tag.2000000: a list has at most 1000 members.",
		"MessageAttribute.1.Name=a&MessageAttribute.1.Value.BinaryValue=*": "Value * for parameter " +
			"MessageAttribute.1.Value.BinaryValue is invalid. Reason: Must be base64.",
	} {
		form, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadQuery(form); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

// Names have one spelling, except that the tags of a new queue do not begin with a capital.
func TestNamesAreExact(t *testing.T) {
	in, err := ReadJSON([]byte(`{"messagebody":"a","QUEUEURL":"u","Queueurl":"v","tags":{"a":"b"},"Tags":{"c":"d"},"Entries":[{"id":"1",` +
		`"MessageBody":"e"}]}`))
	want := &Input{Tags: map[string]string{"a": "b", "c": "d"}, Entries: []Entry{{Body: "e"}}}
	if err != nil || !reflect.DeepEqual(in, want) {
		t.Errorf("read as %+v, %v, want %+v", in, err, want)
	}
	in, err = ReadJSON([]byte(`{"Tags":{"c":"d"},"MessageAttributes":{"a":{"StringListValues":["b"]}},"MaxResults":null,"TagKeys":null}`))
	want = &Input{Tags: map[string]string{"c": "d"}, MessageAttrs: map[string]Attribute{"a": {StringList: []string{"b"}}}}
	if err != nil || !reflect.DeepEqual(in, want) {
		t.Errorf("read as %+v, %v, want %+v", in, err, want)
	}
	form, err := ParseForm("MessageAttribute.1.Name=a&MessageAttribute.1.Value.StringListValue.1=b&MessageAttribute.2.Name=c&" +
		"MessageAttribute.2.Value.BinaryListValue.1=b")
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string]Attribute{"a": {StringList: []string{"b"}}, "c": {BinaryList: [][]byte{nil}}}
	if in, err := ReadQuery(form); err != nil || !reflect.DeepEqual(in.MessageAttrs, lists) {
		t.Errorf("read as %+v, %v, want %+v", in, err, lists)
	}
}

// What a request may hold is bounded by the names and values in it, not by the text of a message.
func TestRequestsAreBounded(t *testing.T) {
	for name, body := range map[string]string{
		"as many values as allowed": `{"TagKeys":[""` + strings.Repeat(`,""`, maxTokens-4) + `]}`,
		"a text like JSON":          `{"MessageBody":"` + strings.Repeat("[,:{", maxTokens) + `"}`,
	} {
		if _, err := ReadJSON([]byte(body)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n, ok := range map[int]bool{maxFields: true, maxFields + 1: false} {
		if form, err := ParseForm(strings.Repeat("&a=", n)[1:]); (err == nil) != ok || ok && len(form["a"]) != n {
			t.Errorf("a form with %d fields: %d, %v", n, len(form["a"]), err)
		}
	}
	if _, err := ParseForm("a=%"); err == nil || err.Error() != "The form can not be read." {
		t.Errorf("a bad form: %v", err)
	}
}

// TestFormCostIsBounded checks that the cost of reading a form is bounded by its size, whatever its fields are called.
func TestFormCostIsBounded(t *testing.T) {
	long := strings.Repeat("1.", maxField/2)
	for name, want := range map[string]int{long: maxField/2 - 1, long + "1": 0, long + long: 0} {
		if got := len(indexes(url.Values{name: {"x"}})); got != want {
			t.Errorf("a field name of %d bytes created %d lists, want %d", len(name), got, want)
		}
	}

	// Each entry has a list of 1000, of which one member exists.
	form := url.Values{}
	for i := 1; i <= 11; i++ {
		form.Set(fmt.Sprintf("SendMessageBatchRequestEntry.%d.MessageAttribute.%d.Name", i, MaxMembers), "a")
	}
	const want = "SendMessageBatchRequestEntry.10.MessageAttribute.1000: the lists of a request have at most 10000 members in all."
	if _, err := ReadQuery(form); err == nil || err.Error() != want {
		t.Errorf("11 lists of 1000: %v, want %q", err, want)
	}
	// A batch that is twice too long and as full as possible is refused for its length, in the code that handles batches.
	form = url.Values{}
	for i := 1; i <= 20; i++ {
		for n := 1; n <= 11; n++ {
			form.Set(fmt.Sprintf("SendMessageBatchRequestEntry.%d.MessageAttribute.%d.Name", i, n), fmt.Sprint(n))
		}
	}
	if in, err := ReadQuery(form); err != nil || len(in.Entries) != 20 || len(in.Entries[19].MessageAttrs) != 11 {
		t.Errorf("20 entries with 11 attributes: %v", err)
	}
}

func TestAnswers(t *testing.T) {
	out := &Output{Messages: []Message{{ID: "m", ReceiptHandle: "r", Body: "a\r<\"\x01é", MD5OfBody: "s", Attributes: map[string]string{
		"B": "2", "A": "1"},
		MessageAttributes: map[string]Attribute{"n": {DataType: "Number", StringValue: text("7")}, "b": {DataType: "Binary",
			BinaryValue: []byte{1}}}, MD5OfAttributes: "t"}}}
	got := string(JSON(out))
	want := `{"Messages":[{"MessageId":"m","ReceiptHandle":"r","MD5OfBody":"s","Body":"a\r<\"\u0001é","Attributes":{"A":"1","B":"2"},` +
		`"MD5OfMessageAttributes":"t","MessageAttributes":{"b":{"BinaryValue":"AQ==","DataType":"Binary"},"n":{"StringValue":"7",` +
		`"DataType":"Number"}}}]}`
	if got != want {
		t.Errorf("JSON = %s, want %s", got, want)
	}
	got = string(AppendXML(nil, "ReceiveMessage", "q", out))
	want = `<?xml version="1.0"?><ReceiveMessageResponse ` +
		`xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><ReceiveMessageResult><Message><MessageId>m</MessageId><ReceiptHandle>` +
		`r</ReceiptHandle><MD5OfBody>s</MD5OfBody><Body>a&#xD;&lt;&quot;` + "\uFFFD" +
		`é</Body><Attribute><Name>A</Name><Value>1</Value></Attribute>` +
		`<Attribute><Name>B</Name><Value>2</Value></Attribute><MessageAttribute><Name>b</Name><Value><BinaryValue>` +
		`AQ==</BinaryValue><DataType>Binary</DataType></Value></MessageAttribute><MessageAttribute><Name>n</Name><Value><StringValue>` +
		`7</StringValue><DataType>Number</DataType></Value></MessageAttribute><MD5OfMessageAttributes>t</MD5OfMessageAttributes>` +
		`</Message></ReceiveMessageResult><ResponseMetadata><RequestId>q</RequestId></ResponseMetadata></ReceiveMessageResponse>`
	if got != want {
		t.Errorf("XML = %s, want %s", got, want)
	}
	got = string(QueryJSON("ReceiveMessage", "q", out))
	want = `{"ReceiveMessageResponse":{"ReceiveMessageResult":{"messages":[{"Attributes":[{"Name":"A","Value":"1"},{"Name":"B",` +
		`"Value":"2"}],"Body":"a\r<\"\u0001é","MD5OfBody":"s","MD5OfMessageAttributes":"t","MessageAttributes":[{"Name":"b",` +
		`"Value":{"BinaryValue":"AQ==","DataType":"Binary"}},{"Name":"n","Value":{"DataType":"Number","StringValue":"7"}}],` +
		`"MessageId":"m","ReceiptHandle":"r"}]},"ResponseMetadata":{"RequestId":"q"}}}`
	if got != want {
		t.Errorf("JSON of a query = %s, want %s", got, want)
	}
	for action, want := range map[string]string{
		"ListQueues": `{"ListQueuesResponse":{"ListQueuesResult":{"queueUrls":["u"]},"ResponseMetadata":{"RequestId":"q"}}}`,
		"ListQueueTags": `{"ListQueueTagsResponse":{"ListQueueTagsResult":{"Tags":[{"Key":"a","Value":"b"}]},` +
			`"ResponseMetadata":{"RequestId":"q"}}}`,
		"DeleteMessage": `{"DeleteMessageResponse":{"ResponseMetadata":{"RequestId":"q"}}}`,
	} {
		out := map[string]*Output{"ListQueues": {QueueURLs: []string{"u"}}, "ListQueueTags": {Tags: map[string]string{"a": "b"}},
			"DeleteMessage": {}}[action]
		if got := string(QueryJSON(action, "q", out)); got != want {
			t.Errorf("%s: JSON of a query = %s, want %s", action, got, want)
		}
	}
	if got := string(JSON(&Output{})); got != "{}" {
		t.Errorf("empty output in JSON = %s, want {}", got)
	}
	if got := string(AppendXML(nil, "DeleteMessage", "q", &Output{})); strings.Contains(got, "DeleteMessageResult") {
		t.Errorf("a response without a result has a result element: %s", got)
	}
}

func TestErrorsInQueryAndJSON(t *testing.T) {
	if got, want := string(JSONError(ErrQueueDoesNotExist)),
		`{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}`; got != want {
		t.Errorf("JSON error = %s, want %s", got, want)
	}
	if got, want := ErrQueueDoesNotExist.QueryError(), "AWS.SimpleQueueService.NonExistentQueue;Sender"; got != want {
		t.Errorf("QueryError = %s, want %s", got, want)
	}
	if got, want := string(QueryJSONError("q", ErrQueueDoesNotExist)),
		`{"Error":{"Code":"AWS.SimpleQueueService.NonExistentQueue","Message":"The specified queue does not exist for this wsdl `+
			`version.","Type":"Sender"},"RequestId":"q"}`; got != want {
		t.Errorf("JSON error of a query = %s, want %s", got, want)
	}
	want := `<?xml version="1.0"?><ErrorResponse ` +
		`xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error><Type>Sender</Type><Code>` +
		`AWS.SimpleQueueService.NonExistentQueue</Code><Message>The specified queue does not exist for this wsdl ` +
		`version.</Message><Detail/></Error><RequestId>q</RequestId></ErrorResponse>`
	if got := string(AppendXMLError(nil, "q", ErrQueueDoesNotExist)); got != want {
		t.Errorf("XML error = %s, want %s", got, want)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"MessageBody":"a","Entries":[{"Id":"1"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := ReadJSON(body)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%q: %v is not a service error", body, err)
			}
			return
		}
		out := JSON(&Output{Attributes: in.Attributes, Messages: []Message{{Body: in.Body, MessageAttributes: in.MessageAttrs}}})
		if !json.Valid(out) {
			t.Fatalf("%q: the response %q is not valid JSON", body, out)
		}
	})
}

func FuzzQuery(f *testing.F) {
	f.Add("MessageBody=a%0D&Attribute.1.Name=b&Attribute.1.Value=c&SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=d")
	f.Fuzz(func(t *testing.T, body string) {
		form, err := url.ParseQuery(body)
		if err != nil {
			return
		}
		in, err := ReadQuery(form)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%q: %v is not a service error", body, err)
			}
			return
		}
		out := AppendXML(nil, "ReceiveMessage", "q", &Output{Attributes: in.Attributes,
			Messages: []Message{{Body: in.Body, MessageAttributes: in.MessageAttrs}}})
		var any struct{}
		if err := xml.Unmarshal(out, &any); err != nil {
			t.Fatalf("%q: the response %q is not valid XML: %v", body, out, err)
		}
	})
}
