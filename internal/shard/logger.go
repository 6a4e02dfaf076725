package shard

import (
	"fmt"
	"log/slog"
)

// raftLogger passes on what etcd's raft says. Its panics are for broken invariants; the loop stops the replica then.
// It calls replicas by ids that tell people nothing, so its warnings are for debugging: what people should know of leaders the loop logs.
type raftLogger struct {
	log   *slog.Logger
	shard uint32
}

func (r raftLogger) say(level func(string, ...any), text string) {
	level("raft", "shard", r.shard, "event", text)
}

func (r raftLogger) Debug(v ...any)              { r.say(r.log.Debug, fmt.Sprint(v...)) }
func (r raftLogger) Debugf(f string, v ...any)   { r.say(r.log.Debug, fmt.Sprintf(f, v...)) }
func (r raftLogger) Info(v ...any)               { r.say(r.log.Debug, fmt.Sprint(v...)) }
func (r raftLogger) Infof(f string, v ...any)    { r.say(r.log.Debug, fmt.Sprintf(f, v...)) }
func (r raftLogger) Warning(v ...any)            { r.say(r.log.Debug, fmt.Sprint(v...)) }
func (r raftLogger) Warningf(f string, v ...any) { r.say(r.log.Debug, fmt.Sprintf(f, v...)) }
func (r raftLogger) Error(v ...any)              { r.say(r.log.Error, fmt.Sprint(v...)) }
func (r raftLogger) Errorf(f string, v ...any)   { r.say(r.log.Error, fmt.Sprintf(f, v...)) }
func (r raftLogger) Fatal(v ...any)              { panic(fmt.Sprint(v...)) }
func (r raftLogger) Fatalf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }
func (r raftLogger) Panic(v ...any)              { panic(fmt.Sprint(v...)) }
func (r raftLogger) Panicf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }
