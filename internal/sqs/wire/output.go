package wire

// Output holds the response fields of any action.
type Output struct {
	QueueURL   string            `json:"QueueUrl,omitempty"`
	QueueURLs  []string          `json:"QueueUrls,omitempty"`
	Sources    []string          `json:"queueUrls,omitzero"` // of ListDeadLetterSourceQueues, which returns an empty list too
	NextToken  string            `json:",omitempty"`
	Attributes map[string]string `json:",omitempty"`
	Tags       map[string]string `json:",omitempty"`
	Sent       *Sent             `json:",embed"`
	Messages   []Message         `json:",omitempty"`
	Successful []Result          `json:",omitempty"`
	Failed     []Failed          `json:",omitempty"`
	TaskHandle string            `json:",omitempty"`                                 // of StartMessageMoveTask
	Moved      *int64            `json:"ApproximateNumberOfMessagesMoved,omitempty"` // of CancelMessageMoveTask
	Moves      []MoveTask        `json:"Results,omitempty"`                          // of ListMessageMoveTasks
}

// MoveTask is the status of a message move task.
type MoveTask struct {
	Moved             int64  `json:"ApproximateNumberOfMessagesMoved"`
	ToMove            int64  `json:"ApproximateNumberOfMessagesToMove"`
	Target            string `json:"DestinationArn,omitempty"` // empty: back to where the messages came from
	Failure           string `json:"FailureReason,omitempty"`
	PerSecond         int    `json:"MaxNumberOfMessagesPerSecond,omitzero"`
	Source            string `json:"SourceArn"`
	StartedUnixMillis int64  `json:"StartedTimestamp"`
	Status            string
	Handle            string `json:"TaskHandle,omitempty"` // while it runs
}

// Sent describes an accepted message.
type Sent struct {
	MD5OfBody             string `json:"MD5OfMessageBody"`
	MD5OfAttributes       string `json:"MD5OfMessageAttributes,omitempty"`
	MD5OfSystemAttributes string `json:"MD5OfMessageSystemAttributes,omitempty"`
	MessageID             string `json:"MessageId"`
	SequenceNumber        string `json:",omitempty"`
}

// Message is a message as a consumer receives it.
type Message struct {
	ID                string `json:"MessageId"`
	ReceiptHandle     string
	MD5OfBody         string
	Body              string
	Attributes        map[string]string    `json:",omitempty"` // system attributes
	MD5OfAttributes   string               `json:"MD5OfMessageAttributes,omitempty"`
	MessageAttributes map[string]Attribute `json:",omitempty"`
}

// Result is a successful entry of a batch.
type Result struct {
	ID   string `json:"Id"`
	Sent *Sent  `json:",embed"` // of SendMessageBatch
}

// Failed is a failed entry of a batch.
type Failed struct {
	ID  string
	Err *Error
}

// Actions whose response has no result in Query.
var resultless = map[string]bool{
	"AddPermission": true, "ChangeMessageVisibility": true, "DeleteMessage": true, "DeleteQueue": true, "PurgeQueue": true,
	"RemovePermission": true, "SetQueueAttributes": true, "TagQueue": true, "UntagQueue": true,
}
