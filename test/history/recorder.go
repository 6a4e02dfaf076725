package history

import (
	"slices"
	"sync"
	"time"
)

// Recorder collects the records of many clients. It may be used by many goroutines.
type Recorder struct {
	began time.Time

	mu      sync.Mutex
	records []Record
}

// NewRecorder starts a clock for CallNS and ReturnNS.
func NewRecorder() *Recorder { return &Recorder{began: time.Now()} }

// Now returns the time since the recorder began, in nanoseconds. It never decreases.
func (r *Recorder) Now() int64 { return int64(time.Since(r.began)) }

// Began returns the wall clock when Now was 0, for Options.Began.
func (r *Recorder) Began() time.Time { return r.began }

// Add records calls that were answered or given up.
func (r *Recorder) Add(records ...Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, records...)
}

// Records returns what was recorded so far.
func (r *Recorder) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}
