package pawl

// WithEager is for the benchmark that chose eagerRequests.
var WithEager = withEager
