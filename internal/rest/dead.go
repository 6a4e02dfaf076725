package rest

import (
	"strings"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

// listDead lists the dead letters of a queue or, with group_by=error, counts them by error. It also serves poisoned tasks.
func listDead(x *exchange) error {
	if x.r.URL.Query().Has("group_by") {
		return groupDead(x)
	}
	return callRPC(x)
}

// groupDead counts the dead letters of a queue, or of all. There is no list of the latter: GET /api/v1/tasks lists tasks.
func groupDead(x *exchange) error {
	q, err := x.query("group_by")
	if err != nil {
		return err
	}
	if by := q.Get("group_by"); by != "error" {
		return task.Invalid("group_by", "%q is not error, which is the only grouping", task.Cut(by, 64))
	}
	got, err := ask[*pawlv1.GroupDeadRequest, proto.Message](x, "OperatorService/GroupDead", func(in *pawlv1.GroupDeadRequest) error {
		if queue := x.r.PathValue("queue"); queue != "" {
			in.Queue = &queue
		}
		in.Poisoned = strings.HasSuffix(x.on.Path, "/poisoned")
		return nil
	})
	if err != nil {
		return err
	}
	x.Message(got)
	return nil
}
