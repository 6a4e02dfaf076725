package outbox

import (
	"fmt"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

// The column task is the body of POST /api/v1/tasks without the fields that have their own columns, queue and
// request_id. Follow-up tasks have a queue. A payload keeps every byte: a repeat of an idempotency key must have the
// same payload.

// writeTask returns the column task for a task without queue and request_id.
func writeTask(s *pawlv1.TaskSpec) ([]byte, error) {
	if err := checkPayloads(s, ""); err != nil {
		return nil, err
	}
	return apijson.Marshal(s), nil
}

// checkPayloads rejects a payload that is not JSON although its content type says so: it would spoil the whole row.
func checkPayloads(s *pawlv1.TaskSpec, path string) error {
	if len(s.Payload) > 0 && contract.IsJSON(s.ContentType) {
		if err := apijson.CheckJSON(s.Payload); err != nil {
			return convert.Invalid(path+"payload", "is not JSON, which content type %q requires: %v", s.ContentType, err)
		}
	}
	for i, next := range s.Then {
		if err := checkPayloads(next, fmt.Sprintf("%sthen[%d].", path, i)); err != nil {
			return err
		}
	}
	return nil
}

// readTask reads the column task, as REST reads the body of an enqueue.
func readTask(text []byte) (*pawlv1.TaskSpec, error) {
	s := &pawlv1.TaskSpec{}
	if err := apijson.Decode("task", text, s); err != nil {
		refusal, _ := task.AsError(err)
		return nil, &pawltype.Error{Code: pawltype.ErrorCode(refusal.Code), Field: refusal.Field, Message: refusal.Message}
	}
	switch {
	case s.GetQueue() != "":
		return nil, convert.Invalid("queue", "%q is set in the task column: it belongs in the queue column", s.GetQueue())
	case s.GetRequestId() != "":
		return nil, convert.Invalid("request_id", "%q is set in the task column: it belongs in the id column", s.GetRequestId())
	}
	return s, nil
}
