package route

import (
	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Destination is where a request belongs: the shard of its task, or a queue, whose shard the responses report.
type Destination struct {
	shard uint32
	known bool   // shard is set
	queue string // "": none
	whole bool   // all of the request is for the queue, or it is split: a response from one shard shows where the queue is
}

// destinationOf returns where a request belongs. A request with many tasks is sent where its first one belongs: the node that
// gets it forwards the others.
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

// OfShard returns the destination of a shard.
func OfShard(shard uint32) Destination { return Destination{shard: shard, known: true} }

func ofTask(id string) Destination {
	shard, ok := convert.ShardOf(id)
	return Destination{shard: shard, known: ok}
}

// OfShares returns the queue that most tasks come from: the one with the highest weight, or the first if they have none.
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
