package route

import (
	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Destination is what a request says of where it belongs: to the shard of its task, or to a queue, whose shard the answers tell.
type Destination struct {
	shard uint32
	known bool   // shard is set
	queue string // "": none
	whole bool   // all of the request is of the queue, or it is split: an answer of one shard tells where the queue lies
}

// destinationOf reads where a request belongs. Requests of many tasks are aimed like their first: the node that gets them sends on
// what is for others.
func destinationOf(req any) Destination {
	switch r := req.(type) {
	case *pawlv1.EnqueueRequest:
		return Destination{queue: convert.QueueName(r.GetTask()), whole: true}
	case *pawlv1.EnqueueBatchRequest:
		if len(r.GetTasks()) > 0 {
			return Destination{queue: convert.QueueName(r.GetTasks()[0]), whole: true}
		}
	case *pawlv1.ClaimRequest:
		return OfShares(r.GetQueues())
	case *pawlv1.SettleRequest:
		return ofTask(firstTask(r))
	case interface{ GetTaskId() string }:
		return ofTask(r.GetTaskId())
	}
	return Destination{}
}

func (a Destination) nowhere() bool { return !a.known && a.queue == "" }

// OfShard is the destination of what belongs to a shard.
func OfShard(shard uint32) Destination { return Destination{shard: shard, known: true} }

func ofTask(id string) Destination {
	shard, ok := convert.ShardOf(id)
	return Destination{shard: shard, known: ok}
}

// OfShares takes the queue that most tasks come from: the heaviest, the first if they have no weights.
func OfShares(shares []*pawlv1.QueueShare) Destination {
	a, most := Destination{whole: len(shares) == 1}, int32(-1)
	for _, s := range shares {
		if s.GetWeight() > most {
			a.queue, most = s.GetQueue(), s.GetWeight()
		}
	}
	return a
}

func firstTask(r *pawlv1.SettleRequest) string {
	switch {
	case len(r.GetAcks()) > 0:
		return r.GetAcks()[0].GetTaskId()
	case len(r.GetFails()) > 0:
		return r.GetFails()[0].GetTaskId()
	case len(r.GetReleases()) > 0:
		return r.GetReleases()[0].GetTaskId()
	case len(r.GetExtends()) > 0:
		return r.GetExtends()[0].GetTaskId()
	}
	return ""
}
