package pawl

// WithEager is for the benchmark that was used to choose how many small requests may be in flight.
func WithEager(n int) DialOptions { return DialOptions{eager: n} }
