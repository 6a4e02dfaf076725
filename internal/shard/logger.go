package shard

import (
	"fmt"
	"log/slog"
)

// raftLogger forwards the log of etcd's raft. Its panics report broken invariants; the loop then stops the replica.
// It names replicas by ids that mean nothing to people, so its warnings go to debug: the loop logs what people should know about leaders.
type raftLogger struct {
	log   *slog.Logger
	shard uint32
}

func (r raftLogger) write(level func(string, ...any), text string) {
	level("raft", "shard", r.shard, "event", text)
}

func (r raftLogger) Debug(v ...any)              { r.write(r.log.Debug, fmt.Sprint(v...)) }
func (r raftLogger) Debugf(f string, v ...any)   { r.write(r.log.Debug, fmt.Sprintf(f, v...)) }
func (r raftLogger) Info(v ...any)               { r.write(r.log.Debug, fmt.Sprint(v...)) }
func (r raftLogger) Infof(f string, v ...any)    { r.write(r.log.Debug, fmt.Sprintf(f, v...)) }
func (r raftLogger) Warning(v ...any)            { r.write(r.log.Debug, fmt.Sprint(v...)) }
func (r raftLogger) Warningf(f string, v ...any) { r.write(r.log.Debug, fmt.Sprintf(f, v...)) }
func (r raftLogger) Error(v ...any)              { r.write(r.log.Error, fmt.Sprint(v...)) }
func (r raftLogger) Errorf(f string, v ...any)   { r.write(r.log.Error, fmt.Sprintf(f, v...)) }
func (r raftLogger) Fatal(v ...any)              { panic(fmt.Sprint(v...)) }
func (r raftLogger) Fatalf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }
func (r raftLogger) Panic(v ...any)              { panic(fmt.Sprint(v...)) }
func (r raftLogger) Panicf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }
