package pawl

import (
	"strconv"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// aim is what a request says of where it belongs: to the shard of its task, or to a queue, whose shard the answers tell.
type aim struct {
	shard uint32
	known bool   // shard is set
	queue string // "": none
	whole bool   // all of the request is of the queue, or it is split: an answer of one shard tells where the queue lies
}

// aimOf reads where a request belongs. Requests of many tasks are aimed like their first: the node that gets them sends on
// what is for others.
func aimOf(req any) aim {
	switch r := req.(type) {
	case *pawlv1.EnqueueRequest:
		return aim{queue: queueName(r.GetTask()), whole: true}
	case *pawlv1.EnqueueBatchRequest:
		if len(r.GetTasks()) > 0 {
			return aim{queue: queueName(r.GetTasks()[0]), whole: true}
		}
	case *pawlv1.ClaimRequest:
		return aimOfShares(r.GetQueues())
	case *pawlv1.SettleRequest:
		return aimOfTask(firstTask(r))
	case interface{ GetTaskId() string }:
		return aimOfTask(r.GetTaskId())
	}
	return aim{}
}

func (a aim) nowhere() bool { return !a.known && a.queue == "" }

func aimOfTask(id string) aim {
	shard, ok := shardOf(id)
	return aim{shard: shard, known: ok}
}

// aimOfShares takes the queue that most tasks come from: the heaviest, the first if they have no weights.
func aimOfShares(shares []*pawlv1.QueueShare) aim {
	a, most := aim{whole: len(shares) == 1}, int32(-1)
	for _, s := range shares {
		if s.GetWeight() > most {
			a.queue, most = s.GetQueue(), s.GetWeight()
		}
	}
	return a
}

func queueName(t *pawlv1.TaskSpec) string {
	if t.GetQueue() == "" {
		return "default"
	}
	return t.GetQueue()
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

// maxShard is the largest number of a shard.
const maxShard = 1<<12 - 1

// shardOf reads the shard out of a task's id: a UUIDv7 whose three hexadecimal digits after the version are its number.
func shardOf(id string) (shard uint32, ok bool) {
	if len(id) != 36 || id[13] != '-' || id[14] != '7' || id[18] != '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(id[15:18], 16, 32)
	return uint32(n), err == nil
}
