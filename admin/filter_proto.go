package admin

import (
	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// filterOf is the inverse of filterProto.
func filterOf(p *pawlv1.Filter) *Filter {
	f := &Filter{Queue: p.GetQueue(), Type: p.GetType(), Tag: p.GetTag(), Key: p.GetKey(), Worker: p.GetWorker(), Error: p.GetError(),
		Fingerprint: p.GetFingerprint(), Operation: p.GetOperation(), CreatedAfter: convert.Time(p.GetCreatedAfter()),
		CreatedBefore: convert.Time(p.GetCreatedBefore()), Text: p.GetQ()}
	for _, s := range p.GetStates() {
		f.States = append(f.States, convert.State(s))
	}
	for _, c := range p.GetPayload() {
		f.Payload = append(f.Payload, PayloadField{c.GetPath(), c.GetValue()})
	}
	f.all = f.String() == ""
	return f
}

// changeProto is filterProto for a call that changes the tasks.
func changeProto(f *Filter) (*pawlv1.Filter, error) {
	if !f.all && f.String() == "" {
		return nil, convert.Invalid("filter", "is empty: AllTasks() selects every task")
	}
	return filterProto(*f)
}

func filterProto(f Filter) (*pawlv1.Filter, error) {
	states, err := convert.StatesProto("state", f.States)
	if err != nil {
		return nil, err
	}
	var payload []*pawlv1.PayloadField
	for _, c := range f.Payload {
		payload = append(payload, &pawlv1.PayloadField{Path: c.Path, Value: c.Value})
	}
	return &pawlv1.Filter{Queue: convert.Text(f.Queue), States: states, Type: convert.Text(f.Type), Tag: convert.Text(f.Tag),
		Key: convert.Text(f.Key), Worker: convert.Text(f.Worker), Error: convert.Text(f.Error), Fingerprint: convert.Text(f.Fingerprint),
		Operation: convert.Text(f.Operation), CreatedAfter: convert.Timestamp(f.CreatedAfter), CreatedBefore: convert.Timestamp(f.CreatedBefore),
		Q: convert.Text(f.Text), Payload: payload}, nil
}
