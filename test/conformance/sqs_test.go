package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/test/sqsform"
)

// TestSQSAsRecorded plays cases of which it is known what Amazon SQS answered, in both forms of the protocol. A line of
// a case is a call, or one of
//
//	sleep 2s                        lets the time pass
//	later 1s SendMessage {…}        makes the call in a second, while the next ones are made
//	GET /000000000000/$N?Action=…   sends a query to the URL of a queue
//	[Accept: application/json] …    sends a header with the call; that named Path replaces the path
//
// $N is a name of this case, $Q the URL of the queue with this name, $F of the FIFO queue "$N.fifo", $A the beginning
// of ARNs; $a5 is aaaaa. A case whose first call is not CreateQueue has these queues, if it names them. Ids, receipt
// handles, sequence numbers, task handles and tokens of lists are numbered as they are seen: <m1>, <r1>, <s1>, <h1>,
// <t1>; a call has them as $m1 and so on.
//
// An answer is ours, in JSON. A line that begins with "query" follows if the answer in the other form says something
// else, and one that begins with "aws" if Amazon SQS does: then the comment of the case is "differs:" and a sentence of
// docs/sqs.md.
func TestSQSAsRecorded(t *testing.T) {
	docs, err := os.ReadFile("../../docs/sqs.md")
	must(t, err)
	files, err := filepath.Glob("testdata/sqs/*.txt")
	must(t, err)
	cases, differ := 0, 0
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			why, dir := differences(t, path), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				h := build(t, 1, dir)
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
					cases++
					name := fmt.Sprintf("n%d", cases)
					inJSON := newSQSPlayer(t, h, name+"j", false).play(d.Input)
					inQuery := newSQSPlayer(t, h, name+"q", true).play(d.Input)
					out, other := compare(t, d, inJSON, inQuery)
					if other {
						differ++
					}
					if reason := why[d.Input]; !d.Rewrite && (other != (reason != "") || !strings.Contains(string(docs), reason)) {
						t.Errorf("%s: the answers differ from those of Amazon SQS: %v; the comment says why: %q, which must be "+
							"in docs/sqs.md",
							d.Pos, other, reason)
					}
					return out
				})
			})
		})
	}
	t.Logf("%d cases in two forms, %d differ", cases, differ)
}

// differences returns the reasons of the cases in a file that differ, by their input.
func differences(t *testing.T, path string) map[string]string {
	b, err := os.ReadFile(path)
	must(t, err)
	why := map[string]string{}
	for part := range strings.SplitSeq(string(b), "\n\n") {
		head, rest, _ := strings.Cut(part, "\nplay\n")
		input, _, _ := strings.Cut(rest, "\n----\n")
		if _, reason, ok := strings.Cut(head, "# differs: "); ok {
			why[input] = reason
		}
	}
	return why
}

// compare writes the answers of a case, with those of Amazon SQS that the file has. It reports whether there are any.
func compare(t *testing.T, d *datadriven.TestData, inJSON, inQuery []string) (out string, differs bool) {
	expected := strings.Split(d.Expected, "\n")
	at := 0
	for i, ours := range inJSON {
		out += ours + "\n"
		if inQuery[i] != ours {
			out += "query " + inQuery[i] + "\n"
		}
		for at++; at < len(expected) && (strings.HasPrefix(expected[at], "query ") || strings.HasPrefix(expected[at], "aws ")); at++ {
			if theirs, ok := strings.CutPrefix(expected[at], "aws "); ok {
				differs = true
				out += expected[at] + "\n"
				if theirs == ours {
					t.Errorf("%s: %q is no difference", d.Pos, theirs)
				}
			}
		}
	}
	return out, differs
}

// sqsPlayer plays a case in one form of the protocol.
type sqsPlayer struct {
	t      *testing.T
	client *http.Client
	name   string
	query  bool
	seen   map[string][]string // the changing values, by the letter of their names
	parsed func(action string, status int, h http.Header, body []byte) (map[string]any, string)
}

func newSQSPlayer(t *testing.T, h *testNode, name string, query bool) *sqsPlayer {
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return h.pipe.DialContext(ctx)
	}}
	p := &sqsPlayer{t: t, client: &http.Client{Transport: tr}, name: name, query: query, seen: map[string][]string{}, parsed: fromJSON}
	if query {
		p.parsed = fromXML
	}
	return p
}

const sqsAccount = "000000000000"

func (p *sqsPlayer) play(input string) (answers []string) {
	if !strings.HasPrefix(input, "CreateQueue") {
		if strings.Contains(input, "$Q") || strings.Contains(input, "/$N?") {
			p.line(`CreateQueue {"QueueName":"$N"}`)
		}
		if strings.Contains(input, "$F") {
			p.line(`CreateQueue {"QueueName":"$N.fifo","Attributes":{"FifoQueue":"true"}}`)
		}
	}
	for line := range strings.SplitSeq(input, "\n") {
		if answer, ok := p.line(line); ok {
			answers = append(answers, answer)
		}
	}
	return answers
}

var (
	longText   = regexp.MustCompile(`\$a(\d+)`)
	remembered = regexp.MustCompile(`\$([mrsht])(\d+)`)
)

// line does what a line says.
func (p *sqsPlayer) line(line string) (answer string, ok bool) {
	own := "http://localhost/" + sqsAccount + "/" + p.name
	line = strings.NewReplacer("$Q", own, "$F", own+".fifo", "$N", p.name, "$A", "arn:aws:sqs:us-east-1:"+sqsAccount+":").Replace(line)
	line = longText.ReplaceAllStringFunc(line, func(s string) string {
		n, _ := strconv.Atoi(s[2:])
		return strings.Repeat("a", n)
	})
	line = remembered.ReplaceAllStringFunc(line, func(s string) string {
		n, _ := strconv.Atoi(s[2:])
		return p.seen[s[1:2]][n-1]
	})
	first, rest, _ := strings.Cut(line, " ")
	switch first {
	case "sleep":
		d, err := time.ParseDuration(rest)
		must(p.t, err)
		time.Sleep(d)
		synctest.Wait()
		return "", false
	case "later":
		in, call, _ := strings.Cut(rest, " ")
		d, err := time.ParseDuration(in)
		must(p.t, err)
		time.AfterFunc(d, func() {
			_, resp := p.send(call)
			must(p.t, resp.Body.Close())
		})
		return "", false
	}
	defer time.Sleep(time.Millisecond) // messages of one millisecond come in any order
	return strings.ReplaceAll(p.call(line), p.name, "$N"), true
}

// send makes a call. The action of a GET is "".
func (p *sqsPlayer) send(line string) (action string, resp *http.Response) {
	header := http.Header{"Authorization": {"AWS4-HMAC-SHA256 Credential=key/20000101/us-east-1/sqs/aws4_request, SignedHeaders=host, " +
		"Signature=00"}}
	for strings.HasPrefix(line, "[") {
		field, rest, _ := strings.Cut(line[1:], "] ")
		name, value, _ := strings.Cut(field, ": ")
		header.Set(name, value)
		line = rest
	}
	action, body, _ := strings.Cut(line, " ")
	method, path := "POST", "/"
	if header.Get("Path") != "" {
		path = header.Get("Path")
	}
	switch {
	case action == "GET":
		method, path, action, body = "GET", body, "", ""
	case p.query:
		header.Set("Content-Type", "application/x-www-form-urlencoded")
		form, err := sqsform.Query(action, body)
		must(p.t, err)
		body = form.Encode()
	default:
		header.Set("Content-Type", "application/x-amz-json-1.0")
		header.Set("X-Amz-Target", "AmazonSQS."+action)
	}
	r, err := http.NewRequestWithContext(p.t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	must(p.t, err)
	r.Header = header
	resp, err = p.client.Do(r)
	must(p.t, err)
	return action, resp
}

var changingText = regexp.MustCompile(`(<(?:RequestId|MessageId|ReceiptHandle)>|"(?:RequestId|MessageId|ReceiptHandle)":"|` +
	`Timestamp</Name><Value>)[0-9A-Za-z_-]+`)

// call makes a call and returns its answer, the same for both forms if they say the same. That to a GET is
// the body. A standard queue keeps no order: its messages are sorted.
func (p *sqsPlayer) call(line string) string {
	action, resp := p.send(line)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(p.t, err)
	if action == "" {
		text := strings.TrimSpace(strings.TrimPrefix(changingText.ReplaceAllString(string(b), "$1…"), `<?xml version="1.0"?>`))
		return fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Content-Type"), text)
	}
	fields, failure := p.parsed(action, resp.StatusCode, resp.Header, b)
	if failure != "" {
		return fmt.Sprintf("%d %s", resp.StatusCode, p.named(failure))
	}
	if messages, ok := fields["Messages"].([]any); ok && !strings.Contains(line, ".fifo") {
		slices.SortStableFunc(messages, func(a, b any) int {
			return strings.Compare(a.(map[string]any)["Body"].(string), b.(map[string]any)["Body"].(string))
		})
	}
	p.mask(fields)
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	must(p.t, e.Encode(fields)) // with sorted keys
	return fmt.Sprintf("%d %s", resp.StatusCode, p.named(strings.TrimSpace(out.String())))
}

// named replaces the values that were seen before by their names: a text may quote one, and an entry of a batch may be
// called as its message.
func (p *sqsPlayer) named(text string) string {
	for _, kind := range []string{"m", "r", "h"} {
		for i, v := range p.seen[kind] {
			text = strings.ReplaceAll(text, v, fmt.Sprintf("<%s%d>", kind, i+1))
		}
	}
	return text
}

// changing are the fields whose values differ from run to run, with the letter of their names; "" if they are not remembered.
var changing = map[string]string{"MessageId": "m", "ReceiptHandle": "r", "SequenceNumber": "s", "TaskHandle": "h", "NextToken": "t",
	"SentTimestamp": "", "ApproximateFirstReceiveTimestamp": "", "CreatedTimestamp": "", "LastModifiedTimestamp": "",
	"StartedTimestamp": ""}

func (p *sqsPlayer) mask(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			p.mask(e)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			kind, changes := changing[name]
			text, isText := v[name].(string)
			switch {
			case !changes:
				p.mask(v[name])
			case kind == "" || !isText:
				v[name] = "…"
			default:
				if !slices.Contains(p.seen[kind], text) {
					p.seen[kind] = append(p.seen[kind], text)
				}
				v[name] = fmt.Sprintf("<%s%d>", kind, slices.Index(p.seen[kind], text)+1)
			}
		}
	}
}

// fromJSON returns the fields of an answer, or its error.
func fromJSON(_ string, status int, h http.Header, b []byte) (fields map[string]any, failure string) {
	fields = map[string]any{}
	if len(b) > 0 { // some actions answer nothing, which clients treat as {}
		if err := json.Unmarshal(b, &fields); err != nil {
			return nil, fmt.Sprintf("%q: %v", b, err)
		}
	}
	if status == http.StatusOK {
		return fields, ""
	}
	code, _, _ := strings.Cut(h.Get("X-Amzn-Query-Error"), ";")
	return nil, fmt.Sprintf("%s: %.400v", code, fields["message"])
}

// element is an element of XML.
type element struct {
	XMLName xml.Name
	Text    string    `xml:",chardata"`
	Inside  []element `xml:",any"`
}

func (e *element) child(name string) *element {
	for i := range e.Inside {
		if e.Inside[i].XMLName.Local == name {
			return &e.Inside[i]
		}
	}
	return &element{}
}

// fromXML returns what the same answer has in JSON.
func fromXML(action string, status int, _ http.Header, b []byte) (fields map[string]any, failure string) {
	var root element
	if err := xml.Unmarshal(b, &root); err != nil {
		return nil, fmt.Sprintf("%q: %v", b, err)
	}
	if status != http.StatusOK {
		e := root.child("Error")
		return nil, fmt.Sprintf("%s: %.400s", e.child("Code").Text, e.child("Message").Text)
	}
	fields, _ = root.child(action + "Result").value().(map[string]any)
	if urls, ok := fields["QueueUrl"].([]any); ok || action == "ListQueues" || action == "ListDeadLetterSourceQueues" {
		list := map[string]string{"ListQueues": "QueueUrls", "ListDeadLetterSourceQueues": "queueUrls"}[action]
		if one, is := fields["QueueUrl"].(string); is {
			urls = []any{one}
		}
		if delete(fields, "QueueUrl"); len(urls) > 0 || list == "queueUrls" {
			fields[list] = append([]any{}, urls...)
		}
	}
	if fields == nil {
		fields = map[string]any{}
	}
	return fields, ""
}

// lists maps elements that are members of lists, or of maps with this key, to the names that JSON has for them.
var lists = map[string][2]string{"Attribute": {"Attributes", "Name"}, "MessageAttribute": {"MessageAttributes", "Name"},
	"Tag": {"Tags", "Key"}, "Message": {"Messages"}, "SendMessageBatchResultEntry": {"Successful"}, "DeleteMessageBatchResultEntry": {
		"Successful"}, "ChangeMessageVisibilityBatchResultEntry": {"Successful"},
	"BatchResultErrorEntry": {"Failed"}, "Result": {"Results"}}

// value returns an element's value: text, or its elements by name.
func (e *element) value() any {
	fields := map[string]any{}
	for i := range e.Inside {
		in := &e.Inside[i]
		name := in.XMLName.Local
		to, listed := lists[name]
		switch {
		case listed && len(in.Inside) > 0 && to[1] != "":
			all, _ := fields[to[0]].(map[string]any)
			if all == nil {
				all = map[string]any{}
			}
			all[in.child(to[1]).Text] = in.child("Value").value()
			fields[to[0]] = all
		case listed && len(in.Inside) > 0:
			all, _ := fields[to[0]].([]any)
			fields[to[0]] = append(all, in.value())
		case fields[name] != nil: // of a list of texts
			all, ok := fields[name].([]any)
			if !ok {
				all = []any{fields[name]}
			}
			fields[name] = append(all, in.Text)
		case name == "SenderFault":
			fields[name] = in.Text == "true"
		case strings.HasPrefix(name, "ApproximateNumberOfMessages"), name == "MaxNumberOfMessagesPerSecond":
			fields[name], _ = strconv.ParseFloat(in.Text, 64)
		default:
			fields[name] = in.Text
		}
	}
	if len(fields) == 0 && e.Text != "" {
		return e.Text
	}
	if len(e.Inside) == 0 && e.XMLName.Local == "Value" {
		return ""
	}
	return fields
}

// A FIFO queue of Amazon SQS keeps its order when an operator puts settings that do not name one, such as the defaults.
func TestFIFOQueueKeepsItsOrder(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := build(t, 1, dir)
		newSQSPlayer(t, h, "keeps", false).play(`CreateQueue {"QueueName":"$N.fifo","Attributes":{"FifoQueue":"true"}}`)
		client := newSDK(t, h).admin()
		for _, c := range []struct {
			queue       string
			order, want admin.KeyOrder
		}{
			{"keeps.fifo", "", admin.KeyOrderStrict},
			{"other", admin.KeyOrderStrict, admin.KeyOrderStrict},
			{"other", "", ""},
			{"keeps.fifo", admin.KeyOrderNone, ""},
		} {
			if q, err := client.Queues().Put(t.Context(), c.queue, admin.QueueSettings{KeyOrder: c.order}); err != nil ||
				q.Settings.KeyOrder != c.want {
				t.Errorf("%s: the order %q makes %+v, %v, want %q", c.queue, c.order, q, err, c.want)
			}
		}
	})
}
