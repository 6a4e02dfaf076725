// Package cron computes when a schedule is due: cron expressions and intervals, in time zones. It knows no tasks, no clock and no
// state: the caller passes the time to start from.
//
// # Time zones
//
// An expression follows the clock of its time zone. When that clock is put forward, times that it skips are due at the moment of
// the jump. When it is put back, times that occur twice are due the first time only. There is one exception: an expression whose
// hour is `*` runs all day long, so it skips no hour, and runs in both of two hours that look alike.
//
// Intervals follow no local clock: they are counted from when they began.
package cron
