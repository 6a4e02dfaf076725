package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// sqsClient speaks the JSON protocol of SQS.
type sqsClient struct {
	t *testing.T
	http.Client
}

func (s *server) sqs() *sqsClient {
	c := &sqsClient{t: s.t}
	// One connection per call: net/http interrupts its read of an idle connection with a deadline in the past, which may also make
	// the next read of a bufconn pipe time out.
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return s.pipe.DialContext(ctx)
	}}
	c.Transport = tr
	s.t.Cleanup(tr.CloseIdleConnections)
	return c
}

type sqsMessage struct {
	MessageId, ReceiptHandle, Body string
	Attributes                     map[string]string
}

type sqsAnswer struct {
	status     int
	queryError string
	raw        []byte

	Type       string `json:"__type"`
	Message    string `json:"message"`
	QueueUrl   string
	MessageId  string
	TaskHandle string
	Messages   []sqsMessage
	Attributes map[string]string
	Tags       map[string]string

	SequenceNumber string
	Successful     []struct{ Id string }
	Failed         []struct{ Id, Code string }
}

func (c *sqsClient) call(action, body string) (a sqsAnswer) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), "POST", "http://localhost/", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	resp, err := c.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	a.status, a.queryError = resp.StatusCode, resp.Header.Get("x-amzn-query-error")
	b, err := io.ReadAll(resp.Body)
	a.raw = b
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		c.t.Fatalf("%s %s: %q: %v", action, body, b, err)
	}
	return a
}

// does fails the test unless the call succeeds.
func (c *sqsClient) does(action, body string) sqsAnswer {
	c.t.Helper()
	a := c.call(action, body)
	if a.status != http.StatusOK {
		c.t.Fatalf("%s %s: %d %s: %s", action, body, a.status, a.Type, a.Message)
	}
	return a
}

// refused fails the test unless the call fails with a Query code.
func (c *sqsClient) refused(action, body, code string, status int) {
	c.t.Helper()
	if a := c.call(action, body); a.status != status || a.queryError != code+";Sender" {
		c.t.Errorf("%s %.200s: %d %q, want %d %q", action, body, a.status, a.queryError, status, code+";Sender")
	}
}

// receives fails the test unless the bodies are received in this order.
func (c *sqsClient) receives(queue string, wait int, bodies ...string) (got []sqsMessage) {
	c.t.Helper()
	got = c.does("ReceiveMessage", fmt.Sprintf(`{"QueueUrl":%q,"MaxNumberOfMessages":10,"WaitTimeSeconds":%d,"AttributeNames":["All"]}`,
		queue, wait)).Messages
	var have []string
	for _, m := range got {
		have = append(have, m.Body)
	}
	if fmt.Sprint(have) != fmt.Sprint(bodies) {
		c.t.Fatalf("received %q, want %q", have, bodies)
	}
	return got
}

func (c *sqsClient) hide(queue, handle string, seconds int) {
	c.t.Helper()
	c.does("ChangeMessageVisibility", fmt.Sprintf(`{"QueueUrl":%q,"ReceiptHandle":%q,"VisibilityTimeout":%d}`, queue, handle, seconds))
}

func (c *sqsClient) delete(queue, handle string) {
	c.t.Helper()
	c.does("DeleteMessage", fmt.Sprintf(`{"QueueUrl":%q,"ReceiptHandle":%q}`, queue, handle))
}

// inSQS runs a story on a node that serves SQS, in fake time, with a queue q and a visibility timeout of 30 s.
func inSQS(t *testing.T, story func(t *testing.T, s *server, c *sqsClient)) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{InMemory: true, SQS: true})
		c := s.sqs()
		if got := c.does("CreateQueue", `{"QueueName":"q","tags":{"a":"b"}}`).QueueUrl; got != "http://localhost/000000000000/q" {
			t.Fatalf("the URL of q is %s", got)
		}
		story(t, s, c)
	})
}

func TestSQSVisibility(t *testing.T) {
	inSQS(t, func(t *testing.T, _ *server, c *sqsClient) {
		c.does("SendMessage", `{"QueueUrl":"q","MessageBody":"a"}`)
		first := c.receives("q", 0, "a")[0]
		time.Sleep(29 * time.Second)
		c.receives("q", 0)
		began := time.Now()
		second := c.receives("q", 20, "a")[0]
		if took := time.Since(began); took < 500*time.Millisecond || took > 2*time.Second {
			t.Errorf("the message came back after %v, want 1 s", took)
		}
		if got := second.Attributes["ApproximateReceiveCount"]; got != "2" {
			t.Errorf("it was received %s times, want 2", got)
		}
		c.delete("q", first.ReceiptHandle) // an older handle deletes nothing
		c.hide("q", second.ReceiptHandle, 5)
		time.Sleep(4 * time.Second)
		c.receives("q", 0)
		time.Sleep(2 * time.Second)
		third := c.receives("q", 0, "a")[0]
		c.hide("q", third.ReceiptHandle, 0)
		fourth := c.receives("q", 0, "a")[0]
		time.Sleep(31 * time.Second)
		c.delete("q", first.ReceiptHandle)    // nor while the message is waiting
		c.hide("q", fourth.ReceiptHandle, 60) // its timeout has ended, but it is the latest
		time.Sleep(59 * time.Second)
		c.receives("q", 0)
		time.Sleep(2 * time.Second)
		fifth := c.receives("q", 0, "a")[0]
		time.Sleep(31 * time.Second)
		c.delete("q", fifth.ReceiptHandle)
		c.delete("q", fifth.ReceiptHandle)
		c.receives("q", 20)
		c.refused("ChangeMessageVisibility", fmt.Sprintf(`{"QueueUrl":"q","ReceiptHandle":%q,"VisibilityTimeout":5}`, fifth.ReceiptHandle),
			"InvalidParameterValue", 400)
		// In a batch the error has another code, which clients drop.
		late := c.does("ChangeMessageVisibilityBatch", fmt.Sprintf(`{"QueueUrl":"q","Entries":[{"Id":"a","ReceiptHandle":%q,`+
			`"VisibilityTimeout":5}]}`, fifth.ReceiptHandle))
		if len(late.Failed) != 1 || late.Failed[0].Code != "ReceiptHandleIsInvalid" {
			t.Errorf("a late change in a batch: %s", late.raw)
		}
	})
}

func TestSQSRedrive(t *testing.T) {
	inSQS(t, func(t *testing.T, _ *server, c *sqsClient) {
		c.does("CreateQueue", `{"QueueName":"dead"}`)
		c.does("SetQueueAttributes", `{"QueueUrl":"q",`+
			`"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:dead\",\"maxReceiveCount\":2}"}}`)
		id := c.does("SendMessage", `{"QueueUrl":"q","MessageBody":"a"}`).MessageId
		for range 2 {
			c.receives("q", 20, "a")
			c.receives("dead", 0)
			time.Sleep(31 * time.Second)
		}
		c.receives("q", 1)
		m := c.receives("dead", 0, "a")[0]
		if m.MessageId != id || m.Attributes["ApproximateReceiveCount"] != "3" ||
			m.Attributes["DeadLetterQueueSourceArn"] != "arn:aws:sqs:us-east-1:000000000000:q" {
			t.Errorf("the dead letter is %+v, want the id %s, 3 receives and its source", m, id)
		}
		c.delete("dead", m.ReceiptHandle)
		c.receives("dead", 20)
	})
}

func TestSQSAndSDKShareTasks(t *testing.T) {
	inSQS(t, func(t *testing.T, s *server, c *sqsClient) {
		client := s.client()
		sent, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "mail.send", Payload: []byte(`{"to":"a"}`)}, pawl.Queue("q"))
		if err != nil {
			t.Fatal(err)
		}
		m := c.receives("q", 0, `{"to":"a"}`)[0]
		if m.MessageId != sent.ID {
			t.Errorf("the message is %s, the task %s", m.MessageId, sent.ID)
		}
		c.delete("q", m.ReceiptHandle)
		if got, err := client.Task(t.Context(), sent.ID); err != nil || got.State != pawltype.StateSucceeded {
			t.Errorf("the task is %v, %v, want succeeded", got, err)
		}
		// Celery's envelope contains the name of its task.
		id := c.does("SendMessage", `{"QueueUrl":"q","MessageBody":"eyJoZWFkZXJzIjp7InRhc2siOiJ0YXNrcy5hZGQifX0="}`).MessageId
		if got, err := client.Task(t.Context(), id); err != nil || got.Type != "tasks.add" {
			t.Errorf("the task of Celery's message is %+v, %v, want the type tasks.add", got, err)
		}
	})
}

func TestSQSRefusals(t *testing.T) {
	inSQS(t, func(t *testing.T, s *server, c *sqsClient) {
		const ns = "AWS.SimpleQueueService."
		for _, r := range []struct {
			action, body, code string
			status             int
		}{
			{"GetQueueUrl", `{"QueueName":"none"}`, ns + "NonExistentQueue", 400},
			{"SendMessage", `{"QueueUrl":"http://x/1/none","MessageBody":"a"}`, ns + "NonExistentQueue", 400},
			{"SendMessage", `{"QueueUrl":"q"}`, "MissingParameter", 400},
			{"SendMessage", `{"QueueUrl":"q","MessageBody":"\u0001"}`, "InvalidMessageContents", 400},
			{"SendMessage", `{"QueueUrl":"q","MessageBody":"` + strings.Repeat("a", 1<<20+1) + `"}`, "InvalidParameterValue", 400},
			{"SendMessage", `{"QueueUrl":"q","MessageBody":"a","MessageDeduplicationId":"d"}`, "InvalidParameterValue", 400},
			{"SendMessage", `{"QueueUrl":"q","MessageBody":"a","MessageAttributes":{"n":{"DataType":"Number","StringValue":"x"}}}`,
				"InvalidParameterValue", 400},
			{"SendMessageBatch", `{"QueueUrl":"q","Entries":[]}`, ns + "EmptyBatchRequest", 400},
			{"SendMessageBatch", `{"QueueUrl":"q","Entries":[{"Id":"a","MessageBody":"a"},{"Id":"a","MessageBody":"a"}]}`,
				ns + "BatchEntryIdsNotDistinct", 400},
			{"SendMessageBatch", `{"QueueUrl":"q","Entries":[{"Id":"a.b","MessageBody":"a"}]}`, ns + "InvalidBatchEntryId", 400},
			{"SendMessageBatch", `{"QueueUrl":"q","Entries":[{"Id":"a","MessageBody":"` + strings.Repeat("a", 1<<20) +
				`"},{"Id":"b","MessageBody":"b"}]}`, ns + "BatchRequestTooLong", 400},
			{"ReceiveMessage", `{"QueueUrl":"q","WaitTimeSeconds":21}`, "InvalidParameterValue", 400},
			{"ReceiveMessage", `{"QueueUrl":"q","AttributeNames":["Zap"]}`, "InvalidAttributeName", 400},
			{"DeleteMessage", `{"QueueUrl":"q","ReceiptHandle":"junk"}`, "ReceiptHandleIsInvalid", 400},
			{"CreateQueue", `{"QueueName":"q","Attributes":{"DelaySeconds":"1"}}`, "QueueAlreadyExists", 400},
			{"CreateQueue", `{"QueueName":"a b"}`, "InvalidParameterValue", 400},
			{"CreateQueue", `{"QueueName":"r","Attributes":{"DelaySeconds":"901"}}`, "InvalidAttributeValue", 400},
			{"SetQueueAttributes", `{"QueueUrl":"q",` +
				`"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:none\",` +
				`\"maxReceiveCount\":2}"}}`,
				"InvalidParameterValue", 400},
			{"Zap", `{}`, "InvalidAction", 400},
		} {
			c.refused(r.action, r.body, r.code, r.status)
		}
		c.does("PurgeQueue", `{"QueueUrl":"q"}`)
		c.refused("PurgeQueue", `{"QueueUrl":"q"}`, ns+"PurgeQueueInProgress", http.StatusForbidden)
		time.Sleep(time.Minute)
		c.does("PurgeQueue", `{"QueueUrl":"q"}`)
		// A handle is valid for its own queue only.
		c.does("CreateQueue", `{"QueueName":"other"}`)
		c.does("SendMessage", `{"QueueUrl":"q","MessageBody":"a"}`)
		c.refused("DeleteMessage", fmt.Sprintf(`{"QueueUrl":"other","ReceiptHandle":%q}`, c.receives("q", 0, "a")[0].ReceiptHandle),
			"ReceiptHandleIsInvalid", 400)
		// Neither claimed nor delayed messages nor dead letters keep a queue from being deleted.
		c.does("SendMessage", `{"QueueUrl":"q","MessageBody":"c"}`)
		worker := claims.New(s.client())
		claimed, err := worker.Claim(t.Context(), claims.Request{Queues: pawl.Strict{"q"}, Worker: "w"})
		if err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		if _, err := worker.Fail(t.Context(), claimed[0], pawl.DeadLetter(errors.New("no such user"))); err != nil {
			t.Fatal(err)
		}
		c.does("SendMessage", `{"QueueUrl":"q","MessageBody":"b","DelaySeconds":900}`)
		c.does("DeleteQueue", `{"QueueUrl":"q"}`)
		c.refused("SendMessage", `{"QueueUrl":"q","MessageBody":"a"}`, ns+"NonExistentQueue", 400)
	})
}

func TestSQSQuery(t *testing.T) {
	inSQS(t, func(t *testing.T, _ *server, c *sqsClient) {
		ask := func(form url.Values) (int, string) {
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/000000000000/q", strings.NewReader(form.Encode()))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("X-Amz-Target", "AmazonSQSv20121105.SendMessage") // some clients send it with forms
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(b)
		}
		if status, got := ask(url.Values{"Action": {"SendMessage"}, "MessageBody": {"a\rb"}}); status != 200 ||
			!strings.Contains(got, "<SendMessageResult><MessageId>") {
			t.Errorf("send: %d %s", status, got)
		}
		if status, got := ask(url.Values{"Action": {"ReceiveMessage"}, "AttributeName.1": {"ApproximateReceiveCount"}}); status != 200 ||
			!strings.Contains(got, "<Body>a&#xD;b</Body><Attribute><Name>ApproximateReceiveCount</Name><Value>1</Value></Attribute>") {
			t.Errorf("receive: %d %s", status, got)
		}
		if status, got := ask(url.Values{"Action": {"GetQueueUrl"}, "QueueName": {"none"}}); status != 400 ||
			!strings.Contains(got, "<Code>AWS.SimpleQueueService.NonExistentQueue</Code>") {
			t.Errorf("a queue that is not there: %d %s", status, got)
		}
	})
}

// TestSQSIsOffByDefault: without the flag nothing of SQS is served.
func TestSQSIsOffByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{InMemory: true})
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v1/nothing", strings.NewReader(`{"QueueName":"q"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Amz-Target", "AmazonSQS.CreateQueue")
		resp, err := s.sqs().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusForbidden ||
			!strings.Contains(string(body), "--sqs") {
			t.Errorf("%d %s, %v, want a refusal that names --sqs", resp.StatusCode, body, err)
		}
	})
}

// TestSQSRequiresTokens: while calls need a token, a call with neither a signature nor a token is refused.
func TestSQSRequiresTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{InMemory: true, SQS: true, Tokens: TokensAlways})
		s.sqs().refused("ListQueues", `{}`, "MissingAuthenticationToken", http.StatusForbidden)
	})
}
