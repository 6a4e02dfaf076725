package access

// sqsNeeds has a row for each SQS action. Whoever may send or receive may also read a queue's attributes, since clients do so
// first.
var sqsNeeds = map[string]Need{
	"SendMessage":                  {OfQueues, produce, false},
	"SendMessageBatch":             {OfQueues, produce, false},
	"ReceiveMessage":               {OfQueues, consume, true},
	"DeleteMessage":                {OfClaims, consume, false},
	"DeleteMessageBatch":           {OfClaims, consume, false},
	"ChangeMessageVisibility":      {OfClaims, consume, false},
	"ChangeMessageVisibilityBatch": {OfClaims, consume, false},
	"GetQueueUrl":                  {OfQueues, produce | consume | observe, false},
	"GetQueueAttributes":           {OfQueues, produce | consume | observe, false},
	"ListQueues":                   {OfQueues, produce | consume | observe, false},
	"ListDeadLetterSourceQueues":   {OfQueues, produce | consume | observe, false},
	"ListQueueTags":                {OfQueues, produce | consume | observe, false},
	"CreateQueue":                  {OfQueues, operate, false},
	"DeleteQueue":                  {OfQueues, operate, false},
	"PurgeQueue":                   {OfQueues, operate, false},
	"SetQueueAttributes":           {OfQueues, operate, false},
	"TagQueue":                     {OfQueues, operate, false},
	"UntagQueue":                   {OfQueues, operate, false},
	"AddPermission":                {OfQueues, operate, false},
	"RemovePermission":             {OfQueues, operate, false},
	"StartMessageMoveTask":         {OfQueues, operate, false},
	"CancelMessageMoveTask":        {OfQueues, operate, false},
	"ListMessageMoveTasks":         {OfQueues, operate | observe, false},
}
