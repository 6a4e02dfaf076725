package sqs

import (
	"encoding/json"
	"slices"

	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
)

// allow is the RedriveAllowPolicy attribute of a dead-letter queue: which source queues may use it.
type allow struct {
	Permission string   `json:"redrivePermission"` // allowAll, denyAll or byQueue
	Sources    []string `json:"sourceQueueArns"`
}

// maxSources bounds the queues that a byQueue policy may name.
const maxSources = 10

func checkAllow(value string) error {
	var a allow
	bad := func(reason string) error { return wire.BadValue(value, "RedriveAllowPolicy", reason) }
	switch {
	case json.Unmarshal([]byte(value), &a) != nil || !slices.Contains([]string{"allowAll", "denyAll", "byQueue"}, a.Permission):
		return bad("Amazon SQS can't create the redrive allow policy, as it’s in an unsupported format.")
	case a.Permission != "byQueue" && len(a.Sources) > 0:
		return bad("You can specify sourceQueueArns only when redrivePermission is set to byQueue.")
	case a.Permission == "byQueue" && (len(a.Sources) == 0 || len(a.Sources) > maxSources):
		return bad("You can specify between 1 and 10 sourceQueueArns.")
	}
	for _, arn := range a.Sources {
		if _, ok := queueOfARN(arn); !ok {
			return bad("Amazon SQS can't create the redrive allow policy, as it’s in an unsupported format.")
		}
	}
	return nil
}

// mayRedrive rejects a redrive policy whose dead-letter queue does not allow the request's queue as a source.
func (x *exchange) mayRedrive(target *queues.Queue, value string) error {
	own := x.in.QueueName // of CreateQueue
	if own == "" {
		own, _ = x.queueName()
	}
	if allows(target, own) {
		return nil
	}
	return wire.BadValue(value, "RedrivePolicy", "Queue does not have permissions to redrive on the dead letter target.")
}

// allows reports whether a dead-letter queue takes messages of a source.
func allows(target *queues.Queue, source string) bool {
	var a allow
	policy := attributeOf(&target.Config, "RedriveAllowPolicy")
	if policy == "" || json.Unmarshal([]byte(policy), &a) != nil || a.Permission == "allowAll" {
		return true
	}
	return a.Permission == "byQueue" && slices.ContainsFunc(a.Sources, func(arn string) bool {
		name, _ := queueOfARN(arn)
		return name == source
	})
}
