package wire

// Output is what an answer says, whichever action it is of.
type Output struct {
	QueueURL   string
	QueueURLs  []string
	NextToken  string
	Attributes map[string]string
	Tags       map[string]string
	Sent       *Sent
	Messages   []Message
	Successful []Result
	Failed     []Failed
	TaskHandle string     // of StartMessageMoveTask
	Moved      *int64     // of CancelMessageMoveTask
	Moves      []MoveTask // of ListMessageMoveTasks
}

// MoveTask is how a message move task stands.
type MoveTask struct {
	Handle            string // while it runs
	Status, Failure   string
	Source, Target    string // ARNs; no target: back to where the messages came from
	PerSecond         int    // 0: not said
	Moved, ToMove     int64
	StartedUnixMillis int64
}

// Sent tells of a message that was taken.
type Sent struct {
	MessageID, MD5OfBody, MD5OfAttributes, MD5OfSystemAttributes, SequenceNumber string
}

// Message is a message as a consumer gets it.
type Message struct {
	ID, ReceiptHandle, Body, MD5OfBody string
	MD5OfAttributes                    string
	Attributes                         map[string]string // of the system
	MessageAttributes                  map[string]Attribute
}

// Result is an entry of a batch that was done.
type Result struct {
	ID   string
	Sent *Sent // of SendMessageBatch
}

// Failed is an entry of a batch that was refused.
type Failed struct {
	ID  string
	Err *Error
}

// Actions whose answer in Query has no result.
var resultless = map[string]bool{
	"AddPermission": true, "ChangeMessageVisibility": true, "DeleteMessage": true, "DeleteQueue": true, "PurgeQueue": true,
	"RemovePermission": true, "SetQueueAttributes": true, "TagQueue": true, "UntagQueue": true,
}
