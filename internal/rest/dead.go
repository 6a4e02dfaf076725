package rest

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
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
	x.message(got)
	return nil
}

// rate parses tasks per second: "50/s", "30/m", "1000/h". Other intervals, as in 100/10s, are for people: the command line parses
// them.
func (r *jsonReader) rate(path string) (float64, error) {
	s, err := r.str(path)
	if err != nil {
		return 0, err
	}
	number, per, _ := strings.Cut(s, "/")
	f, err := strconv.ParseFloat(number, 64)
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[per]
	switch {
	case err != nil || seconds == 0 || !(f > 0):
		return 0, task.Invalid(path, `%q is not a rate such as "50/s", "30/m" or "1000/h": a number above 0, in a second, a minute or an hour`, task.Cut(s, 64))
	case f/seconds > contract.MaxRate:
		return 0, task.Invalid(path, "%q is more than %d/s", task.Cut(s, 64), int(contract.MaxRate))
	}
	return f / seconds, nil
}
