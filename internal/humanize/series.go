package humanize

// seriesLength is how many steps of a series fit into a table row.
const seriesLength = 30

// Series halves the number of steps by merging pairs if there are more than fit into a table row.
func Series(steps []int64) []int64 {
	if len(steps) <= seriesLength {
		return steps
	}
	out := make([]int64, (len(steps)+1)/2)
	for i, n := range steps {
		out[i/2] += n
	}
	return out
}
