package test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/test/sqsform"
)

// TestSQSEdges plays the edge cases of each action against the server, in both forms of the protocol, and against an
// independent emulator: fauxqs, which is maintained, and supports 17 of the 23 actions in JSON. A line in
// testdata/sqs/edges is what our server answers. A line that begins with "emulator" follows if the emulator answers
// differently, and the comment of the case says which source is right. A line that begins with "query" would mean that
// the two forms differ. Without the emulator, its lines are taken as they are.
func TestSQSEdges(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	s := newServer(t, "--sqs")
	s.start()
	players := []*edgePlayer{{name: "ours", url: "http://" + s.addr}, {name: "query", url: "http://" + s.addr, query: true},
		{name: "emulator", url: emulator(t)}}
	datadriven.Walk(t, "testdata/sqs/edges", func(t *testing.T, path string) {
		n := 0
		why := commented(t, path)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			n++
			var answers [3][]string
			for i, p := range players {
				if p.url != "" {
					answers[i] = p.play(t, fmt.Sprintf("e%d%s-%s", n, strings.TrimSuffix(path[strings.LastIndex(path, "/")+1:], ".txt"),
						p.name), d)
				}
			}
			out := merge(answers, strings.Split(strings.TrimSpace(d.Expected), "\n"), players[2].url == "")
			if line, _, _ := strings.Cut(d.Input, "\n"); !d.Rewrite && strings.Contains(out, "\nemulator ") && !why[line] {
				t.Errorf("%s: our server and the emulator differ: a comment above the case must say which one is right, and why", d.Pos)
			}
			return out
		})
	})
}

// emulator starts fauxqs and returns its URL; "" means that it could not be installed.
func emulator(t *testing.T) string {
	home := emulatorModules(t)
	if home == "" {
		return ""
	}
	addr := freeAddr(t)
	cmd := exec.Command("node", "testdata/sqs/emulator.mjs", home, addr[strings.LastIndex(addr, ":")+1:])
	log := startLogged(t, "the emulator", cmd)
	eventually(t, "the emulator is ready", startLimit, func() bool { return strings.Contains(log.String(), "ready") })
	return "http://" + addr
}

// emulatorModules returns the directory that fauxqs is installed in; "" means that it could not be installed.
func emulatorModules(t *testing.T) (home string) {
	if err := exec.Command("node", "--version").Run(); err != nil {
		t.Logf("the emulator can't be compared with, because Node is missing: %v", err)
		return ""
	}
	home, err := npmPackages(t, "sqs-emulator", "fauxqs@1.9.2")
	if err != nil {
		t.Logf("the emulator can't be compared with: %v", err)
	}
	return home
}

// edgePlayer plays cases against one server in one form.
type edgePlayer struct {
	name, url string
	query     bool
	base      string            // of queue URLs
	got       map[string]string // values of $R1, $M1 and so on
}

var (
	hosts      = regexp.MustCompile(`http://[^/"]+`) // of the URLs of queues
	longText   = regexp.MustCompile(`\$a(\d+)`)
	remembered = regexp.MustCompile(`\$[RM]\d+`)
)

// play makes the calls of a case, one per line: an action and its JSON. $Q is the URL of a queue of this case, $F that
// of a FIFO queue, $N and $G are their names, $a5 is aaaaa, $R2 is the receipt handle of the second message that was
// received, and $M2 its id.
func (p *edgePlayer) play(t *testing.T, name string, d *datadriven.TestData) (answers []string) {
	t.Helper()
	p.got = map[string]string{}
	if strings.Contains(d.Input, "$Q") {
		p.call(t, "CreateQueue", fmt.Sprintf(`{"QueueName":%q}`, name))
	}
	if strings.Contains(d.Input, "$F") {
		p.call(t, "CreateQueue", fmt.Sprintf(`{"QueueName":"%s.fifo","Attributes":{"FifoQueue":"true"}}`, name))
	}
	queueURL := func(name string) string { return p.base + "/" + name }
	for line := range strings.Lines(d.Input) {
		line = strings.NewReplacer("$Q", queueURL(name), "$F", queueURL(name+".fifo"), "$N", name, "$G",
			name+".fifo").Replace(strings.TrimSpace(line))
		line = longText.ReplaceAllStringFunc(line, func(s string) string {
			n, _ := strconv.Atoi(s[2:])
			return strings.Repeat("a", n)
		})
		line = remembered.ReplaceAllStringFunc(line, func(s string) string { return p.got[s] })
		action, body, _ := strings.Cut(line, " ")
		answer := strings.ReplaceAll(p.call(t, action, body), name, "$N")
		for as, value := range p.got {
			answer = strings.ReplaceAll(answer, value, as)
		}
		answers = append(answers, answer)
	}
	return answers
}

func (p *edgePlayer) call(t *testing.T, action, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	if p.query {
		query, err := sqsform.Query(action, body)
		if err != nil {
			t.Fatalf("%s %.200s: %v", action, body, err)
		}
		form := query.Encode()
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(form)), int64(len(form))
		r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	}
	// Emulators identify the service by the signature's scope.
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=00")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if p.query {
		return p.readXML(t, resp.StatusCode, b)
	}
	return p.readJSON(t, resp, b)
}

func (p *edgePlayer) readJSON(t *testing.T, resp *http.Response, b []byte) string {
	answer := map[string]any{}
	if len(b) > 0 { // some actions answer nothing, which clients treat as {}
		if err := json.Unmarshal(b, &answer); err != nil {
			t.Fatalf("%s: %q: %v", p.name, b, err)
		}
	}
	if resp.StatusCode != http.StatusOK {
		code, _, _ := strings.Cut(resp.Header.Get("x-amzn-query-error"), ";")
		kind, _ := answer["__type"].(string)
		return fmt.Sprintf("%d %s %s: %.300v", resp.StatusCode, kind[strings.LastIndex(kind, "#")+1:], code, answer["message"])
	}
	if messages, ok := answer["Messages"].([]any); ok {
		for _, m := range messages {
			n := strconv.Itoa(len(p.got)/2 + 1)
			p.got["$R"+n], p.got["$M"+n] = m.(map[string]any)["ReceiptHandle"].(string), m.(map[string]any)["MessageId"].(string)
		}
	}
	if made, ok := answer["QueueUrl"].(string); ok {
		p.base = made[:strings.LastIndex(made, "/")]
	}
	mask(answer)
	if p.name == "emulator" {
		maps.DeleteFunc(answer, func(_ string, v any) bool { return isEmpty(v) }) // the service omits empty lists, and our server must
	}
	shape, err := json.Marshal(answer) // with sorted keys
	if err != nil {
		t.Fatal(err)
	}
	return "200 " + hosts.ReplaceAllString(string(shape), "")
}

// changing are the fields whose values differ between servers or runs.
var changing = []string{"MessageId", "ReceiptHandle", "SequenceNumber", "SenderId", "SentTimestamp", "ApproximateFirstReceiveTimestamp",
	"CreatedTimestamp", "LastModifiedTimestamp", "NextToken", "TaskHandle", "StartedTimestamp"}

// mask replaces the values of changing fields with a word, and reduces an entry's error to its code.
func mask(answer map[string]any) {
	for name, value := range answer {
		switch v := value.(type) {
		case map[string]any:
			mask(v)
		case []any:
			for _, e := range v {
				if m, ok := e.(map[string]any); ok {
					if m["Code"] != nil {
						delete(m, "Message")
					}
					mask(m)
				}
			}
		default:
			if slices.Contains(changing, name) {
				answer[name] = "…"
			}
		}
	}
}

func isEmpty(v any) bool {
	list, isList := v.([]any)
	fields, isMap := v.(map[string]any)
	return isList && len(list) == 0 || isMap && len(fields) == 0
}

func (p *edgePlayer) readXML(t *testing.T, status int, b []byte) string {
	var answer struct {
		Code     string `xml:"Error>Code"`
		QueueURL string `xml:"CreateQueueResult>QueueUrl"`
		Messages []struct {
			ReceiptHandle, MessageId string
		} `xml:"ReceiveMessageResult>Message"`
	}
	if err := xml.Unmarshal(b, &answer); err != nil {
		t.Fatalf("%s: %q: %v", p.name, b, err)
	}
	if answer.QueueURL != "" {
		p.base = answer.QueueURL[:strings.LastIndex(answer.QueueURL, "/")]
	}
	for _, m := range answer.Messages {
		n := strconv.Itoa(len(p.got)/2 + 1)
		p.got["$R"+n], p.got["$M"+n] = m.ReceiptHandle, m.MessageId
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, answer.Code))
}

// merge writes the answers, one line per call, and more where they differ. If the emulator is absent, its lines are those expected.
func merge(answers [3][]string, expected []string, absent bool) string {
	var out bytes.Buffer
	at := 0
	for i, ours := range answers[0] {
		fmt.Fprintln(&out, ours)
		if query := answers[1][i]; query != queryOf(ours) {
			fmt.Fprintf(&out, "query %s\n", query)
		}
		for at++; at < len(expected) && strings.HasPrefix(expected[at], "query "); at++ {
		}
		if absent && at < len(expected) && strings.HasPrefix(expected[at], "emulator ") {
			fmt.Fprintln(&out, expected[at])
		}
		if !absent && kindOf(ours) != kindOf(answers[2][i]) && !strings.Contains(answers[2][i], " InvalidAction ") {
			fmt.Fprintf(&out, "emulator %s\n", answers[2][i])
		}
		if at < len(expected) && strings.HasPrefix(expected[at], "emulator ") {
			at++
		}
	}
	return out.String()
}

// queryOf returns the Query answer that corresponds to a JSON answer: its status and code.
func queryOf(answer string) string {
	if strings.HasPrefix(answer, "200") {
		return "200"
	}
	fields := strings.Fields(withoutMessage(answer))
	return fields[0] + " " + fields[len(fields)-1]
}

func withoutMessage(answer string) string {
	if strings.HasPrefix(answer, "200") {
		return answer
	}
	before, _, _ := strings.Cut(answer, ": ")
	return before
}

// kindOf returns what is compared with the emulator: the status, and the answer or the type of the error. Some of the
// emulator's types are not the model's, and its Query codes are its own.
func kindOf(answer string) string {
	if strings.HasPrefix(answer, "200") {
		return answer
	}
	fields := strings.Fields(withoutMessage(answer))
	kind := strings.TrimSuffix(fields[1], "Exception")
	if kind == "MissingParameter" {
		kind = "MissingRequiredParameter"
	}
	return fields[0] + " " + kind
}

// commented returns the first calls of the cases in a file that have a comment directly above them.
func commented(t *testing.T, path string) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(string(b), "\n")
	why := map[string]bool{}
	for i := 2; i < len(all); i++ {
		if all[i-1] == "play" && strings.HasPrefix(all[i-2], "# ") {
			why[all[i]] = true
		}
	}
	return why
}
