package lanes

import "github.com/pawlq/pawl/internal/task"

// orders holds the runnable flows and lanes in the order of their turns.
type orders struct {
	order  [3]ranking[*Flow]             // the flows, by priority
	byType [3]map[string]*ranking[*Lane] // the lanes of each type
}

func newOrders() (o orders) {
	for i := range o.order {
		o.order[i] = ranking[*Flow]{
			order: func(f *Flow) order { return order{f.rank, f.first(i)} },
			place: func(f *Flow) *int32 { return &f.place[i] },
		}
		o.byType[i] = map[string]*ranking[*Lane]{}
	}
	return o
}

// byAge orders lanes by the age of their first tasks only.
func byAge(l *Lane) order { return order{first: l.first()} }

func newTypeOrder() *ranking[*Lane] {
	return &ranking[*Lane]{
		order: func(l *Lane) order { return order{l.flow.rank, l.first()} },
		place: func(l *Lane) *int32 { return &l.sameType },
	}
}

// hide removes a lane from the order. It is the inverse of Set.show.
func (o *orders) hide(l *Lane) {
	p, f := l.Priority-task.High, l.flow
	o.leaveType(l)
	if f.place[p] >= 0 && f.ready[p].Len() == 1 {
		o.order[p].drop(f) // while it still has a lane to be compared by
	}
	f.ready[p].drop(l)
	if f.place[p] >= 0 {
		o.order[p].moved(f)
	}
}

func (o *orders) typeOrder(l *Lane) *ranking[*Lane] {
	h := o.byType[l.Priority-task.High][l.Type]
	if h == nil {
		h = newTypeOrder()
		o.byType[l.Priority-task.High][l.Type] = h
	}
	return h
}

func (o *orders) leaveType(l *Lane) {
	if l.sameType < 0 {
		return
	}
	of := o.byType[l.Priority-task.High]
	if of[l.Type].drop(l); of[l.Type].Len() == 0 {
		delete(of, l.Type)
	}
}

// moved restores the order after the first task of a lane changed.
func (o *orders) moved(l *Lane) {
	p := l.Priority - task.High
	if l.own < 0 {
		return
	}
	l.flow.ready[p].moved(l)
	if l.sameType >= 0 {
		o.order[p].moved(l.flow)
		o.byType[p][l.Type].moved(l)
	}
}
