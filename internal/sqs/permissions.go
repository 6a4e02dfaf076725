package sqs

import (
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// policy is the Policy attribute as AddPermission writes it. It is stored and returned but not enforced: the access key decides
// what a caller may do.
type policy struct {
	Version   string
	ID        string            `json:"Id"`
	Statement []json.RawMessage `json:"Statement"`
}

type statement struct {
	Sid, Effect string
	Principal   struct{ AWS any }
	Action      any // a string or a list
	Resource    string
}

const (
	maxStatements = 20
	maxActions    = 7
)

var accountForm = regexp.MustCompile(`^[0-9]{12}$`)

// grantable are the actions that can be granted.
var grantable = []string{"*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes",
	"GetQueueUrl", "ListDeadLetterSourceQueues", "PurgeQueue"}

// ownerOnly are actions that can't be granted.
var ownerOnly = []string{"AddPermission", "CancelMessageMoveTask", "CreateQueue", "DeleteQueue", "ListMessageMoveTasks",
	"ListQueues", "ListQueueTags", "RemovePermission", "SetQueueAttributes", "StartMessageMoveTask", "TagQueue", "UntagQueue"}

// addPermission implements AddPermission.
func addPermission(x *exchange) error {
	in := x.in
	switch {
	case in.Label == "":
		return wire.Missing("Label")
	case !nameForm.MatchString(in.Label):
		return wire.BadValue(task.Cut(in.Label, 100), "Label",
			"Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.")
	case len(in.AccountIDs) == 0:
		return wire.BadValue("[]", "PrincipalId", "Unable to verify.")
	case len(in.ActionNames) == 0:
		return wire.Missing("Actions")
	case len(in.ActionNames) > maxActions:
		return wire.ErrOverLimit.With("%d Actions were found, maximum allowed is %d.", len(in.ActionNames), maxActions)
	}
	for _, a := range in.ActionNames {
		switch {
		case slices.Contains(grantable, a):
		case slices.Contains(ownerOnly, a):
			return wire.BadValue("SQS:"+a, "ActionName", "Only the queue owner is allowed to invoke this action.")
		default:
			return wire.BadValue("SQS:"+task.Cut(a, 100), "ActionName", "Please refer to the appropriate WSDL for a list of valid actions.")
		}
	}
	s := statement{Sid: in.Label, Effect: "Allow"}
	var principals, actions []string
	for _, id := range in.AccountIDs {
		if !accountForm.MatchString(id) {
			return wire.BadValue(task.Cut(id, 100), "PrincipalId", "Unable to verify.")
		}
		principals = append(principals, "arn:aws:iam::"+id+":root")
	}
	for _, a := range in.ActionNames {
		actions = append(actions, "SQS:"+a)
	}
	s.Principal.AWS, s.Action = oneOrAll(principals), oneOrAll(actions)
	return x.changePolicy(func(p *policy, arn string) error {
		if labeled(p, in.Label) >= 0 {
			return wire.BadValue(in.Label, "Label", "Already exists.")
		}
		if len(p.Statement) >= maxStatements {
			return wire.ErrOverLimit.With("%d statements were found, maximum allowed is %d.", len(p.Statement)+1, maxStatements)
		}
		s.Resource = arn
		b, err := json.Marshal(s)
		p.Statement = append(p.Statement, b)
		return err
	})
}

// removePermission implements RemovePermission.
func removePermission(x *exchange) error {
	if x.in.Label == "" {
		return wire.Missing("Label")
	}
	return x.changePolicy(func(p *policy, _ string) error {
		at := labeled(p, x.in.Label)
		if at < 0 {
			return wire.BadValue(task.Cut(x.in.Label, 100), "Label", "can't find label.")
		}
		p.Statement = slices.Delete(p.Statement, at, at+1)
		return nil
	})
}

// oneOrAll returns a list as policies write it: a single item without the list.
func oneOrAll(list []string) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}

// labeled returns the index of the statement with a label; -1: there is none.
func labeled(p *policy, label string) int {
	return slices.IndexFunc(p.Statement, func(raw json.RawMessage) bool {
		var s struct{ Sid string }
		return json.Unmarshal(raw, &s) == nil && s.Sid == label
	})
}

// changePolicy changes the policy of the request's queue. A policy without statements is removed.
func (x *exchange) changePolicy(change func(p *policy, arn string) error) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	arn := x.arnOf(q.Name)
	return x.Core.PutQueue(x.ctx, q.Name, func(c *task.QueueConfig) error {
		if c.Version == 0 {
			return task.NotFound("queue", q.Name)
		}
		p := policy{Version: "2008-10-17", ID: arn + "/SQSDefaultPolicy"}
		if text := attributeOf(c, "Policy"); text != "" && json.Unmarshal([]byte(text), &p) != nil {
			return wire.ErrInvalidAttributeValue.With("The queue has a policy that can not be changed by labels: set the attribute Policy.")
		}
		if err := change(&p, arn); err != nil {
			return err
		}
		value := ""
		if len(p.Statement) > 0 {
			b, err := json.Marshal(p)
			if err != nil {
				return err
			}
			value = string(b)
		}
		if len(value) > texts["Policy"] {
			return wire.ErrOverLimit.With("The policy has %d bytes, maximum allowed is %d.", len(value), texts["Policy"])
		}
		setAttributesOf(c, map[string]string{"Policy": value}, time.Now())
		return nil
	})
}
