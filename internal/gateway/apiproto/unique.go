package apiproto

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// uniqueOf decodes a unique key. Like the other enums, OnConflict has the numbers of package task.
func uniqueOf(p *pawlv1.Unique) (*task.Unique, error) {
	c := p.GetOnConflict()
	if c < 0 || c > pawlv1.OnConflict_ON_CONFLICT_REJECT {
		return nil, task.Invalid("unique.on_conflict", "%d is not keep, replace, keep_last or reject", c)
	}
	if p.Key != nil && p.GetKey() == "" {
		return nil, contract.Empty("unique.key")
	}
	u := &task.Unique{Key: p.GetKey(), OnConflict: task.OnConflict(c)} // #nosec G115 -- checked above
	for _, s := range p.GetStates() {
		if s < pawlv1.State_STATE_SCHEDULED || s > pawlv1.State_STATE_CANCELLED {
			return nil, task.Invalid("unique.states", "%d is not a state", s)
		}
		state := task.State(s) // #nosec G115 -- checked above
		if u.States.Has(state) {
			return nil, task.Invalid("unique.states", "%s is given twice", state)
		}
		u.States |= task.StatesOf(state)
	}
	return u, nil
}

// uniqueProto converts the unique key of a task; nil: it has none.
func uniqueProto(u *task.Unique) *pawlv1.Unique {
	if u == nil {
		return nil
	}
	p := &pawlv1.Unique{Key: textProto(u.Key), OnConflict: pawlv1.OnConflict(u.OnConflict)}
	for _, s := range u.States.List() {
		p.States = append(p.States, StateProto(s))
	}
	return p
}
