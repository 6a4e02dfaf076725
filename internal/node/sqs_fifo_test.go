package node

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// inFIFO runs a story with a FIFO queue f.fifo and a visibility timeout of 30 s.
func inFIFO(t *testing.T, attributes string, story func(t *testing.T, c *sqsClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, SQS: true}).sqs()
		c.does("CreateQueue", `{"QueueName":"f.fifo","Attributes":{"FifoQueue":"true"`+attributes+`}}`)
		story(t, c)
	})
}

// put sends a message whose body is its group and deduplication ID, such as "g1-1".
func (c *sqsClient) put(body string) sqsAnswer {
	c.t.Helper()
	group, _, _ := strings.Cut(body, "-")
	return c.does("SendMessage", fmt.Sprintf(`{"QueueUrl":"f.fifo","MessageBody":%q,"MessageGroupId":%q,"MessageDeduplicationId":%q}`,
		body, group, body))
}

func TestSQSFIFOGroups(t *testing.T) {
	inFIFO(t, "", func(t *testing.T, c *sqsClient) {
		last := ""
		for _, body := range []string{"g1-1", "g2-1", "g1-2", "g2-2", "g1-3"} {
			sent := c.put(body)
			if len(sent.SequenceNumber) != 20 || sent.SequenceNumber <= last {
				t.Errorf("the sequence number of %s is %q, after %q", body, sent.SequenceNumber, last)
			}
			last = sent.SequenceNumber
		}
		got := c.receives("f.fifo", 0, "g1-1", "g1-2", "g1-3", "g2-1", "g2-2") // group by group
		if a := got[4].Attributes; a["MessageGroupId"] != "g2" || a["MessageDeduplicationId"] != "g2-2" || len(a["SequenceNumber"]) != 20 {
			t.Errorf("the attributes are %v", a)
		}
		c.put("g1-4")
		c.receives("f.fifo", 1) // the group is in flight
		c.delete("f.fifo", got[0].ReceiptHandle)
		c.hide("f.fifo", got[1].ReceiptHandle, 0)
		second := c.receives("f.fifo", 0, "g1-2") // its third, which comes later, is still in flight
		c.receives("f.fifo", 0)
		c.hide("f.fifo", second[0].ReceiptHandle, 0)
		c.hide("f.fifo", got[2].ReceiptHandle, 0)
		c.delete("f.fifo", got[3].ReceiptHandle)
		c.delete("f.fifo", got[4].ReceiptHandle)
		again := c.receives("f.fifo", 0, "g1-2", "g1-3", "g1-4")
		c.delete("f.fifo", again[0].ReceiptHandle)
		c.delete("f.fifo", again[0].ReceiptHandle) // repeating it is no error
		time.Sleep(31 * time.Second)
		late := func(when, handle string) {
			t.Helper()
			c.refused("DeleteMessage", fmt.Sprintf(`{"QueueUrl":"f.fifo","ReceiptHandle":%q}`, handle), "InvalidParameterValue", 400)
			failed := c.does("DeleteMessageBatch", fmt.Sprintf(`{"QueueUrl":"f.fifo","Entries":[{"Id":"a","ReceiptHandle":%q}]}`,
				handle)).Failed
			if len(failed) != 1 || failed[0].Code != "InvalidParameterValue" {
				t.Errorf("%s, a batch with an expired handle failed with %v", when, failed)
			}
		}
		late("while the message waits", again[1].ReceiptHandle)
		c.receives("f.fifo", 0, "g1-3", "g1-4")
		late("when it was received again", again[1].ReceiptHandle)
	})
}

func TestSQSFIFODeduplication(t *testing.T) {
	inFIFO(t, "", func(t *testing.T, c *sqsClient) {
		send := func(body, group, dedup string) sqsAnswer {
			t.Helper()
			return c.does("SendMessage", fmt.Sprintf(`{"QueueUrl":"f.fifo","MessageBody":%q,"MessageGroupId":%q,`+
				`"MessageDeduplicationId":%q}`,
				body, group, dedup))
		}
		first := send("a", "g", "1")
		for _, again := range []sqsAnswer{send("other", "g", "1"), send("other", "h", "1")} { // whatever the body and the group
			if again.MessageId != first.MessageId || again.SequenceNumber != first.SequenceNumber {
				t.Errorf("a repeat is %s %s, the first was %s %s", again.MessageId, again.SequenceNumber, first.MessageId,
					first.SequenceNumber)
			}
		}
		c.delete("f.fifo", c.receives("f.fifo", 0, "a")[0].ReceiptHandle)
		time.Sleep(4*time.Minute + 50*time.Second)
		if again := send("a", "g", "1"); again.MessageId != first.MessageId || again.SequenceNumber != first.SequenceNumber {
			t.Errorf("after the message was deleted, a repeat is %s %s, not %s %s", again.MessageId, again.SequenceNumber, first.MessageId,
				first.SequenceNumber)
		}
		time.Sleep(20 * time.Second)
		if send("b", "g", "1").MessageId == first.MessageId {
			t.Error("after 5 minutes the id still stands for the first message")
		}
		c.does("PurgeQueue", `{"QueueUrl":"f.fifo"}`)
		send("c", "g", "1") // a purge forgets the IDs
		c.receives("f.fifo", 0, "c")
	})
	inFIFO(t, `,"ContentBasedDeduplication":"true","DeduplicationScope":"messageGroup"`, func(t *testing.T, c *sqsClient) {
		for _, group := range []string{"g", "g", "h"} {
			c.does("SendMessage", fmt.Sprintf(`{"QueueUrl":"f.fifo","MessageBody":"same","MessageGroupId":%q}`, group))
		}
		c.receives("f.fifo", 0, "same", "same") // one per group
	})
}

func TestSQSFIFOReceiveAttempt(t *testing.T) {
	inFIFO(t, "", func(t *testing.T, c *sqsClient) {
		c.put("g-1")
		c.put("h-1")
		receive := func(attempt string) (got []string) {
			t.Helper()
			for _, m := range c.does("ReceiveMessage",
				fmt.Sprintf(`{"QueueUrl":"f.fifo","MaxNumberOfMessages":10,"ReceiveRequestAttemptId":%q}`,
					attempt)).Messages {
				got = append(got, m.ReceiptHandle)
			}
			return got
		}
		first := receive("a")
		time.Sleep(20 * time.Second)
		if again := receive("a"); len(first) != 2 || !slices.Equal(first, again) {
			t.Errorf("the repeat got %q, the first %q", again, first)
		}
		if other := receive("b"); len(other) != 0 {
			t.Errorf("another attempt got %q", other)
		}
		time.Sleep(20 * time.Second) // hidden again by the retry
		c.receives("f.fifo", 0)
		time.Sleep(11 * time.Second)
		if got := receive("c"); len(got) != 2 {
			t.Errorf("after the visibility timeout %d messages are there, want 2", len(got))
		}
	})
}

func TestSQSFIFORefusals(t *testing.T) {
	inFIFO(t, "", func(t *testing.T, c *sqsClient) {
		c.does("CreateQueue", `{"QueueName":"std"}`)
		for _, r := range []struct{ action, body, code string }{
			{"CreateQueue", `{"QueueName":"x.fifo"}`, "InvalidParameterValue"},
			{"CreateQueue", `{"QueueName":"x","Attributes":{"FifoQueue":"true"}}`, "InvalidParameterValue"},
			{"CreateQueue", `{"QueueName":"x","Attributes":{"FifoQueue":"false"}}`, "InvalidAttributeName"},
			{"CreateQueue", `{"QueueName":"x","Attributes":{"DeduplicationScope":"queue"}}`, "InvalidAttributeName"},
			{"CreateQueue", `{"QueueName":"x.fifo","Attributes":{"FifoQueue":"true","FifoThroughputLimit":"perMessageGroupId"}}`,
				"InvalidAttributeValue"},
			{"SetQueueAttributes", `{"QueueUrl":"f.fifo","Attributes":{"FifoQueue":"false"}}`, "InvalidAttributeValue"},
			{"SetQueueAttributes", `{"QueueUrl":"std","Attributes":{"ContentBasedDeduplication":"true"}}`, "InvalidAttributeName"},
			{"SetQueueAttributes", `{"QueueUrl":"f.fifo",` +
				`"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:std\",` +
				`\"maxReceiveCount\":2}"}}`,
				"InvalidParameterValue"},
			{"SendMessage", `{"QueueUrl":"f.fifo","MessageBody":"a"}`, "MissingParameter"},
			{"SendMessage", `{"QueueUrl":"f.fifo","MessageBody":"a","MessageGroupId":"g"}`, "InvalidParameterValue"},
			{"SendMessage", `{"QueueUrl":"f.fifo","MessageBody":"a","MessageGroupId":"g","MessageDeduplicationId":"1","DelaySeconds":1}`,
				"InvalidParameterValue"},
			{"SendMessage", `{"QueueUrl":"f.fifo","MessageBody":"a","MessageGroupId":"g","MessageDeduplicationId":"ü"}`,
				"InvalidParameterValue"},
			{"ReceiveMessage", `{"QueueUrl":"std","ReceiveRequestAttemptId":"a"}`, "InvalidParameterValue"},
		} {
			c.refused(r.action, r.body, r.code, 400)
		}
		got := c.does("GetQueueAttributes", `{"QueueUrl":"f.fifo","AttributeNames":["All"]}`).Attributes
		for name, want := range map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue",
			"FifoThroughputLimit": "perQueue"} {
			if got[name] != want {
				t.Errorf("%s is %q, want %q", name, got[name], want)
			}
		}
		if _, there := c.does("GetQueueAttributes", `{"QueueUrl":"std","AttributeNames":["All"]}`).Attributes["FifoQueue"]; there {
			t.Error("a standard queue has the attribute FifoQueue")
		}
		c.receives("f.fifo", 0)
	})
}

// A message of a FIFO queue that was received too often goes to the dead-letter queue, and those behind it follow in the queue.
func TestSQSFIFORedrive(t *testing.T) {
	inFIFO(t, "", func(t *testing.T, c *sqsClient) {
		c.does("CreateQueue", `{"QueueName":"d.fifo","Attributes":{"FifoQueue":"true"}}`)
		c.does("SetQueueAttributes", `{"QueueUrl":"f.fifo",`+
			`"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:d.fifo\",`+
			`\"maxReceiveCount\":1}"}}`)
		c.put("g-1")
		c.hide("f.fifo", c.receives("f.fifo", 0, "g-1")[0].ReceiptHandle, 0)
		c.put("g-2")
		c.receives("f.fifo", 0, "g-2")
		if a := c.receives("d.fifo", 0, "g-1")[0].Attributes; a["MessageGroupId"] != "g" || a["ApproximateReceiveCount"] != "2" {
			t.Errorf("the dead letter has %v", a)
		}
	})
}

// die sends messages to q and lets them go to its dead-letter queue.
func (c *sqsClient) die(queue string, bodies ...string) {
	c.t.Helper()
	c.does("SetQueueAttributes", fmt.Sprintf(`{"QueueUrl":%q,`+
		`"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:dead\",\"maxReceiveCount\":1}"}}`,
		queue))
	for _, body := range bodies {
		c.does("SendMessage", fmt.Sprintf(`{"QueueUrl":%q,"MessageBody":%q}`, queue, body))
	}
	for _, m := range c.receives(queue, 0, bodies...) {
		c.hide(queue, m.ReceiptHandle, 0)
	}
	c.receives(queue, 0)
}

const deadARN = "arn:aws:sqs:us-east-1:000000000000:dead"

// moves returns the move tasks of the queue dead.
func (c *sqsClient) moves() (all []sqsMove) {
	c.t.Helper()
	var a struct{ Results []sqsMove }
	if err := json.Unmarshal(c.does("ListMessageMoveTasks", `{"SourceArn":"`+deadARN+`","MaxResults":10}`).raw, &a); err != nil {
		c.t.Fatal(err)
	}
	return a.Results
}

type sqsMove struct {
	Status, SourceArn, DestinationArn, TaskHandle                       string
	ApproximateNumberOfMessagesMoved, ApproximateNumberOfMessagesToMove int
	MaxNumberOfMessagesPerSecond                                        int
	StartedTimestamp                                                    int64
}

func TestSQSMoveTasks(t *testing.T) {
	inSQS(t, func(t *testing.T, _ *server, c *sqsClient) {
		c.does("CreateQueue", `{"QueueName":"dead"}`)
		c.does("CreateQueue", `{"QueueName":"p"}`)
		c.refused("StartMessageMoveTask", `{"SourceArn":"`+deadARN+`"}`, "InvalidParameterValue", 400) // it is no queue's dead-letter queue
		c.die("q", "a", "b")
		c.die("p", "c")
		for _, r := range []struct {
			body, code string
			status     int
		}{
			{`{}`, "MissingParameter", 400},
			{`{"SourceArn":"arn:aws:sqs:us-east-1:000000000000:none"}`, "ResourceNotFoundException", 404},
			{`{"SourceArn":"nothing"}`, "InvalidParameterValue", 400},
			{`{"SourceArn":"` + deadARN + `","DestinationArn":"` + deadARN + `"}`, "InvalidParameterValue", 400},
			{`{"SourceArn":"` + deadARN + `","DestinationArn":"arn:aws:sqs:us-east-1:000000000000:none"}`, "ResourceNotFoundException",
				404},
			{`{"SourceArn":"` + deadARN + `","MaxNumberOfMessagesPerSecond":501}`, "InvalidParameterValue", 400},
		} {
			c.refused("StartMessageMoveTask", r.body, r.code, r.status)
		}
		if c.does("StartMessageMoveTask", `{"SourceArn":"`+deadARN+`"}`).TaskHandle == "" {
			t.Error("a move task has no handle")
		}
		time.Sleep(10 * time.Second)
		back := c.does("ReceiveMessage", `{"QueueUrl":"q","MaxNumberOfMessages":10,"AttributeNames":["All"]}`).Messages
		if len(back) != 2 || back[0].Body+back[1].Body != "ab" && back[0].Body+back[1].Body != "ba" {
			t.Fatalf("q has %+v again", back)
		}
		moved := back[0].Attributes
		if moved["ApproximateReceiveCount"] != "1" || moved["DeadLetterQueueSourceArn"] != "" {
			t.Errorf("a message that came back has %v", moved)
		}
		c.receives("p", 0, "c")
		c.receives("dead", 0)
		if got := c.moves(); len(got) != 1 || got[0].Status != "COMPLETED" || got[0].ApproximateNumberOfMessagesMoved != 3 ||
			got[0].ApproximateNumberOfMessagesToMove != 3 || got[0].SourceArn != deadARN || got[0].TaskHandle != "" ||
			got[0].DestinationArn != "" || got[0].StartedTimestamp == 0 {
			t.Errorf("the move tasks are %+v", got)
		}
	})
}

// A move task with a rate runs for a while: no other may start meanwhile, and it can be cancelled.
func TestSQSMoveTaskIsCancelled(t *testing.T) {
	inSQS(t, func(t *testing.T, _ *server, c *sqsClient) {
		c.does("CreateQueue", `{"QueueName":"dead"}`)
		c.does("CreateQueue", `{"QueueName":"other"}`)
		c.die("q", "1", "2", "3", "4", "5", "6", "7", "8", "9")
		target := "arn:aws:sqs:us-east-1:000000000000:other"
		handle := c.does("StartMessageMoveTask", `{"SourceArn":"`+deadARN+`","DestinationArn":"`+target+
			`","MaxNumberOfMessagesPerSecond":1}`).TaskHandle
		time.Sleep(3500 * time.Millisecond)
		if got := c.moves(); len(got) != 1 || got[0].Status != "RUNNING" || got[0].TaskHandle != handle ||
			got[0].DestinationArn != target || got[0].MaxNumberOfMessagesPerSecond != 1 {
			t.Fatalf("the move tasks are %+v", got)
		}
		c.refused("StartMessageMoveTask", `{"SourceArn":"`+deadARN+`"}`, "InvalidParameterValue", 400)
		c.refused("CancelMessageMoveTask", `{"TaskHandle":"junk"}`, "InvalidParameterValue", 400)
		c.refused("CancelMessageMoveTask",
			`{"TaskHandle":"eyJ0YXNrSWQiOiIwMDExMjIzMzQ0NTU2Njc3ODg5OWFhIiwic291cmNlQXJuIjoi`+
				`YXJuOmF3czpzcXM6dXMtZWFzdC0xOjAwMDAwMDAwMDAwMDpkZWFkIn0="}`, "ResourceNotFoundException", 404)
		c.does("CancelMessageMoveTask", fmt.Sprintf(`{"TaskHandle":%q}`, handle))
		time.Sleep(20 * time.Second)
		got := c.moves()
		if n := got[0].ApproximateNumberOfMessagesMoved; got[0].Status != "CANCELLED" || n < 2 || n > 6 {
			t.Errorf("the move tasks are %+v", got)
		}
		c.refused("CancelMessageMoveTask", fmt.Sprintf(`{"TaskHandle":%q}`, handle), "AWS.SimpleQueueService.UnsupportedOperation", 400)
		left := c.does("GetQueueAttributes",
			`{"QueueUrl":"dead","AttributeNames":["ApproximateNumberOfMessages"]}`).Attributes["ApproximateNumberOfMessages"]
		if left != fmt.Sprint(9-got[0].ApproximateNumberOfMessagesMoved) {
			t.Errorf("%s messages are left of 9, %d were moved", left, got[0].ApproximateNumberOfMessagesMoved)
		}
	})
}

func TestSQSPermissions(t *testing.T) {
	inSQS(t, func(t *testing.T, _ *server, c *sqsClient) {
		policy := func() string {
			return c.does("GetQueueAttributes", `{"QueueUrl":"q","AttributeNames":["Policy"]}`).Attributes["Policy"]
		}
		add := func(label, actions string) string {
			return fmt.Sprintf(`{"QueueUrl":"q","Label":%q,"AWSAccountIds":["111111111111"],"Actions":%s}`, label, actions)
		}
		c.does("AddPermission", add("one", `["SendMessage"]`))
		c.does("AddPermission", add("two", `["ReceiveMessage","DeleteMessage"]`))
		const arn = "arn:aws:sqs:us-east-1:000000000000:q"
		one := `{"Sid":"one","Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111111111111:root"},"Action":"SQS:SendMessage",` +
			`"Resource":"` +
			arn + `"}`
		two := `{"Sid":"two","Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111111111111:root"},"Action":["SQS:ReceiveMessage",` +
			`"SQS:DeleteMessage"],"Resource":"` + arn + `"}`
		of := func(statements string) string {
			return `{"Version":"2008-10-17","Id":"` + arn + `/SQSDefaultPolicy","Statement":[` + statements + `]}`
		}
		if got := policy(); got != of(one+","+two) {
			t.Errorf("the policy is %s", got)
		}
		c.refused("AddPermission", add("one", `["SendMessage"]`), "InvalidParameterValue", 400)
		c.refused("AddPermission", add("three", `["Zap"]`), "InvalidParameterValue", 400)
		c.refused("AddPermission", `{"QueueUrl":"q","Label":"three","AWSAccountIds":["me"],"Actions":["SendMessage"]}`,
			"InvalidParameterValue", 400)
		c.refused("RemovePermission", `{"QueueUrl":"q","Label":"three"}`, "InvalidParameterValue", 400)
		c.does("RemovePermission", `{"QueueUrl":"q","Label":"one"}`)
		if got := policy(); got != of(two) {
			t.Errorf("the policy is %s", got)
		}
		c.does("RemovePermission", `{"QueueUrl":"q","Label":"two"}`)
		if got := policy(); got != "" {
			t.Errorf("without statements, the policy is %s", got)
		}
	})
}

// RedriveAllowPolicy decides which queues may have a queue as their dead-letter queue.
func TestSQSRedriveAllowPolicy(t *testing.T) {
	inSQS(t, func(t *testing.T, _ *server, c *sqsClient) {
		c.does("CreateQueue", `{"QueueName":"dead"}`)
		allow := func(policy string) string {
			return fmt.Sprintf(`{"QueueUrl":"dead","Attributes":{"RedriveAllowPolicy":%q}}`, policy)
		}
		redrive := `{"QueueUrl":"q","Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"` + deadARN + `\",\"maxReceiveCount\":1}"}}`
		for policy, allowed := range map[string]bool{
			`{"redrivePermission":"allowAll"}`: true, `{"redrivePermission":"denyAll"}`: false,
			`{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:q"]}`: true,
			`{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:p"]}`: false,
		} {
			c.does("SetQueueAttributes", allow(policy))
			if allowed {
				c.does("SetQueueAttributes", redrive)
			} else {
				c.refused("SetQueueAttributes", redrive, "InvalidParameterValue", 400)
			}
		}
		for _, policy := range []string{`{}`, `{"redrivePermission":"all"}`, `{"redrivePermission":"byQueue"}`,
			`{"redrivePermission":"denyAll","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:q"]}`,
			`{"redrivePermission":"byQueue","sourceQueueArns":["q"]}`} {
			c.refused("SetQueueAttributes", allow(policy), "InvalidParameterValue", 400)
		}
	})
}
