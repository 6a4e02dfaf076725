package humanize

// seriesLength is how many steps of a series a row of a table has room for.
const seriesLength = 30

// Series makes one step of two where there are more than a row of a table has room for.
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
