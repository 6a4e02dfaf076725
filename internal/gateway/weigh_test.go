package gateway

import pawlv1 "github.com/pawlq/pawl/api/pawl/v1"

// manyOf returns a batch of n tasks.
func manyOf(n int, spec func(i int) *pawlv1.TaskSpec) *pawlv1.EnqueueBatchRequest {
	r := &pawlv1.EnqueueBatchRequest{}
	for i := range n {
		r.Tasks = append(r.Tasks, spec(i))
	}
	return r
}
