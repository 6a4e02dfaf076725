package admin

import (
	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// selectionOf is the inverse of filterProto.
func selectionOf(p *pawlv1.Filter) *Filter {
	f := filterOf(p)
	f.all = f.String() == ""
	return &f
}

// changeProto is filterProto for a call that changes the tasks.
func changeProto(f *Filter) (*pawlv1.Filter, error) {
	if !f.all && f.String() == "" {
		return nil, convert.Invalid("filter", "is empty: AllTasks() selects every task")
	}
	return filterProto(*f)
}

func filterProto(f Filter) (out *pawlv1.Filter, err error) {
	out = f.message()
	out.States, err = convert.StatesProto("state", f.States)
	return out, err
}
