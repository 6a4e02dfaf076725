package engine

// Happened is something that a round did to an operation or a schedule, in the words of the events.
type Happened struct {
	What      string // such as operation.done
	Namespace string
	Name      string // of a schedule; of an operation its id
	Queue     string // of the tasks that it is about, if it is one
	Type      string // of a schedule's task
	Reason    string
	Count     int // of a missed schedule, its ticks
}

// operationHappened tells what became of an operation.
func (r *Round) operationHappened(ns string, o *Operation, what, why string) {
	r.Happened = append(r.Happened, Happened{What: "operation." + what, Namespace: ns, Name: o.ID.String(), Queue: o.Spec.Filter.Queue, Reason: why})
}

// scheduleMissed tells that ticks of a schedule were skipped since they were late, or made their tasks late.
func (r *Round) scheduleMissed(ns string, p *plan, reason string, ticks int) {
	r.Happened = append(r.Happened, Happened{What: "schedule.missed", Namespace: ns, Name: p.Name, Queue: p.Task.Queue, Type: p.Task.Type, Reason: reason, Count: ticks})
}
