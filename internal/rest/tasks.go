package rest

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/task"
)

// headerAge is the maximum age of a stale read.
const headerAge = "Pawl-Age"

func getTask(x *exchange) error {
	got, err := ask[*pawlv1.GetTaskRequest, *pawlv1.GetTaskResponse](x, x.on.RPC, func(in *pawlv1.GetTaskRequest) error {
		return x.request(in)
	})
	if err != nil {
		return err
	}
	if got.GetAge() != nil {
		x.w.Header().Set(headerAge, got.GetAge().AsDuration().String())
	}
	x.answer(got)
	return nil
}

// listTasks leaves out payloads unless the query has fields=payload.
func listTasks(x *exchange) error {
	got, err := ask[*pawlv1.ListTasksRequest, *pawlv1.ListTasksResponse](x, x.on.RPC, func(in *pawlv1.ListTasksRequest) error {
		if err := x.request(in, "fields"); err != nil {
			return err
		}
		if q := x.r.URL.Query(); q.Has("fields") {
			if f := q.Get("fields"); f != "payload" {
				return task.Invalid("fields", "%q is not payload", task.Cut(f, 64))
			}
			in.WithPayload = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	x.answer(got)
	return nil
}

// updateTask reads the task if its payload is to change: the meaning of the request's payload depends on the task's content type.
func updateTask(x *exchange) error {
	got, err := ask[*pawlv1.UpdateTaskRequest, *pawlv1.UpdateTaskResponse](x, x.on.RPC, func(in *pawlv1.UpdateTaskRequest) error {
		if err := x.request(in); err != nil || in.Payload == nil {
			return err
		}
		was, err := ask[*pawlv1.GetTaskRequest, *pawlv1.GetTaskResponse](x, "ProducerService/GetTask",
			func(of *pawlv1.GetTaskRequest) error {
				of.TaskId = in.GetTaskId()
				return nil
			})
		if err == nil {
			in.Payload, err = apijson.Data("payload", in.GetPayload(), was.GetTask().GetContentType())
		}
		return err
	})
	if err != nil {
		return err
	}
	x.answer(got)
	return nil
}
