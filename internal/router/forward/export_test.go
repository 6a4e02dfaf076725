package forward

import (
	"github.com/pawlq/pawl/internal/verb"
)

// These are exported for the tests, whose nodes are assembled above this package.
const (
	SearchTime       = searchTime
	LeaderlessTime   = leaderlessTime
	LeaderTime       = leaderTime
	MaxMapAge        = maxMapAge
	DeposedGrace     = deposedGrace
	RemoteCheckEvery = remoteCheckEvery
)

var (
	ErrNewLeader = errNewLeader
	FaultOf      = faultOf
	ReadFault    = readFault
)

// Err returns the error that the caller gets.
func (f *Fault) Err(shard, node uint32) error { return f.err(shard, node) }

// CallNamed returns an empty call of a verb or a method.
func (f *Forwarder) CallNamed(name string) verb.Call { return f.callNamed(name) }

// Methods returns the names of the methods.
func (f *Forwarder) Methods() (names []string) {
	f.methods.Range(func(name, _ any) bool {
		names = append(names, name.(string))
		return true
	})
	return names
}
