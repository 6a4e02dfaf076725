// Package cron tells when a schedule is due: cron expressions and intervals, in time zones. It knows no tasks, no clock and no
// state: whoever asks says from when on.
//
// # Time zones
//
// An expression is read on the clock of its time zone. When that clock is put forward, what it skips is due at the moment when
// it jumps. When it is put back, what it shows twice is due the first time only. There is one exception: an expression whose
// hour is `*` means to run all day long, so it knows no skipped hours, and runs in both of two that look alike.
//
// Intervals don't look at any clock on a wall: they count from when they began.
package cron
