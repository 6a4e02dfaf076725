package gateway

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// uniqueOf reads a unique key. Like the other enums, that of conflicts has the numbers of package task.
func uniqueOf(p *pawlv1.Unique) (*task.Unique, error) {
	c := p.GetOnConflict()
	if c < 0 || c > pawlv1.OnConflict_ON_CONFLICT_REJECT {
		return nil, task.Invalid("unique.on_conflict", "%d is not keep, replace, keep_last or reject", c)
	}
	u := &task.Unique{Key: p.GetKey(), OnConflict: task.OnConflict(c)} // #nosec G115 -- checked above
	for _, s := range p.GetStates() {
		if s < pawlv1.State_STATE_SCHEDULED || s > pawlv1.State_STATE_CANCELLED {
			return nil, task.Invalid("unique.states", "%d is not a state", s)
		}
		state := task.State(s) // #nosec G115 -- checked above
		if u.States.Has(state) {
			return nil, task.Invalid("unique.states", "%s is there twice", state)
		}
		u.States |= task.StatesOf(state)
	}
	return u, nil
}

// uniqueProto is the unique key of a task; nil: it has none.
func uniqueProto(u *task.Unique) *pawlv1.Unique {
	if u == nil {
		return nil
	}
	p := &pawlv1.Unique{Key: u.Key, OnConflict: pawlv1.OnConflict(u.OnConflict)}
	for _, s := range u.States.List() {
		p.States = append(p.States, stateProto(s))
	}
	return p
}

// archivedUnique is the unique key of an archived task.
func archivedUnique(a *broker.ArchivedUnique) *pawlv1.Unique {
	if a == nil {
		return nil
	}
	p := &pawlv1.Unique{Key: a.Key}
	c, _ := task.ParseOnConflict(a.OnConflict)
	p.OnConflict = pawlv1.OnConflict(c)
	for _, name := range a.States {
		s, _ := task.ParseState(name)
		p.States = append(p.States, stateProto(s))
	}
	return p
}

// restoredUnique is that of the task that is made of an archived one: if another has the key by now, it is not made.
func restoredUnique(a *broker.ArchivedUnique) *pawlv1.Unique {
	p := archivedUnique(a)
	if p != nil {
		p.OnConflict = pawlv1.OnConflict_ON_CONFLICT_REJECT
	}
	return p
}

func (r *jsonReader) unique(path string) (*pawlv1.Unique, error) {
	p := &pawlv1.Unique{}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "key":
			if p.Key, err = r.str(at); err == nil && p.Key == "" {
				err = task.Invalid(at, "is empty; leave it out for one that stands for type and payload")
			}
		case "states":
			p.States, err = r.uniqueStates(at)
		case "on_conflict":
			p.OnConflict, err = r.onConflict(at)
		default:
			err = unknown(path, name)
		}
		return err
	})
	return p, err
}

func (r *jsonReader) uniqueStates(path string) ([]pawlv1.State, error) {
	if r.peek() != '[' {
		return nil, r.wrong(path, "a list")
	}
	states, err := r.states(path)
	if err == nil && len(states) == 0 {
		err = task.Invalid(path, "is empty; leave it out for %s", task.Unfinished)
	}
	return states, err
}

func (r *jsonReader) onConflict(path string) (pawlv1.OnConflict, error) {
	s, err := r.str(path)
	if err != nil {
		return 0, err
	}
	c, ok := task.ParseOnConflict(s)
	if !ok {
		return 0, task.Invalid(path, "%q is not keep, replace, keep_last or reject", task.Cut(s, 64))
	}
	return pawlv1.OnConflict(c), nil
}

func (x *exchange) unique(u *pawlv1.Unique) {
	if u == nil {
		return
	}
	x.within("unique", '{')
	x.str("key", u.GetKey())
	names := make([]string, len(u.GetStates()))
	for i, s := range u.GetStates() {
		names[i] = task.State(s).String()
	}
	x.strs("states", names)
	x.str("on_conflict", task.OnConflict(u.GetOnConflict()).String())
	x.close('}')
}
