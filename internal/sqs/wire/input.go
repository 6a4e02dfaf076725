package wire

// Input holds the parameters of any action; each reads its own fields. A nil number or text was not given.
type Input struct {
	QueueURL    string `json:"QueueUrl"`
	QueueName   string
	NamePrefix  string `json:"QueueNamePrefix"`
	MaxResults  *int
	NextToken   string
	Attributes  map[string]string
	Tags        map[string]string // in JSON also "tags"
	TagKeys     []string
	AccountIDs  []string `json:"AWSAccountIds"`
	ActionNames []string `json:"Actions"`
	Label       string

	Body             string               `json:"MessageBody"`
	DelaySeconds     *int                 `json:"DelaySeconds"`
	MessageAttrs     map[string]Attribute `json:"MessageAttributes"`
	SystemAttrs      map[string]Attribute `json:"MessageSystemAttributes"`
	DeduplicationID  *string              `json:"MessageDeduplicationId"`
	GroupID          *string              `json:"MessageGroupId"`
	Entries          []Entry
	AttributeNames   []string
	SystemAttrNames  []string `json:"MessageSystemAttributeNames"`
	MessageAttrNames []string `json:"MessageAttributeNames"`
	Max              *int     `json:"MaxNumberOfMessages"`
	Visibility       *int     `json:"VisibilityTimeout"`
	Wait             *int     `json:"WaitTimeSeconds"`
	AttemptID        string   `json:"ReceiveRequestAttemptId"`
	ReceiptHandle    string

	SourceARN      string `json:"SourceArn"`
	DestinationARN string `json:"DestinationArn"`
	MaxPerSecond   *int   `json:"MaxNumberOfMessagesPerSecond"`
	TaskHandle     string
}

// Entry is one entry of a batch.
type Entry struct {
	ID              string               `json:"Id"`
	Body            string               `json:"MessageBody"`
	DelaySeconds    *int                 `json:"DelaySeconds"`
	MessageAttrs    map[string]Attribute `json:"MessageAttributes"`
	SystemAttrs     map[string]Attribute `json:"MessageSystemAttributes"`
	DeduplicationID *string              `json:"MessageDeduplicationId"`
	GroupID         *string              `json:"MessageGroupId"`
	ReceiptHandle   string
	Visibility      *int `json:"VisibilityTimeout"`
}

// Attribute is a typed value that is sent with a message.
type Attribute struct {
	StringValue *string `json:",omitempty"`
	BinaryValue []byte  `json:",omitempty"`
	DataType    string
	// The protocol has lists of values, which Amazon SQS refuses.
	StringList []string `json:"StringListValues,omitempty"`
	BinaryList [][]byte `json:"BinaryListValues,omitempty"`
}

// Size returns what an attribute adds to a message's size, besides its name.
func (a *Attribute) Size() int {
	n := len(a.DataType) + len(a.BinaryValue)
	if a.StringValue != nil {
		n += len(*a.StringValue)
	}
	return n
}
