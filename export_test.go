package pawl

// WithEager is for the benchmark that chose how many small requests may be in flight.
func WithEager(n int) DialOptions { return DialOptions{eager: n} }
