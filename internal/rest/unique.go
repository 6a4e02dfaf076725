package rest

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

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
	if r.json.PeekKind() != '[' {
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
