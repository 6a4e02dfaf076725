package rest

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

// createSchedule reads only the fields of the schedule itself, not those that say how to put it.
func createSchedule(x *exchange) error {
	got, err := ask[*pawlv1.PutScheduleRequest, *pawlv1.PutScheduleResponse](x, x.on.RPC, func(in *pawlv1.PutScheduleRequest) error {
		in.Spec, in.CreateOnly = &pawlv1.ScheduleSpec{}, true
		if _, err := x.query(); err != nil {
			return err
		}
		return x.readInto(in.GetSpec())
	})
	if err != nil {
		return err
	}
	x.answer(got)
	return nil
}

// putSchedule takes the name from the path. The body may repeat it.
func putSchedule(x *exchange) error {
	got, err := ask[*pawlv1.PutScheduleRequest, *pawlv1.PutScheduleResponse](x, x.on.RPC, func(in *pawlv1.PutScheduleRequest) error {
		name := x.r.PathValue("name")
		in.Spec = &pawlv1.ScheduleSpec{Name: name}
		if _, err := x.query(); err != nil {
			return err
		}
		if err := x.readInto(in); err != nil {
			return err
		}
		if inBody := in.GetSpec().GetName(); inBody != name {
			return task.Invalid("name", "%q differs from %q in the path", task.Cut(inBody, 64), task.Cut(name, 64))
		}
		return nil
	})
	if err != nil {
		return err
	}
	x.answer(got)
	return nil
}
