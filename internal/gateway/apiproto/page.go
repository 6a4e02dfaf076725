package apiproto

import (
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// MaxPageBytes ends a page early, so that the answer fits into a message.
const MaxPageBytes = 12 << 20

// MissingProto names the shards and nodes whose part an answer lacks.
func MissingProto(missing []verb.Missing) (out []*pawlv1.Missing) {
	for _, m := range missing {
		out = append(out, &pawlv1.Missing{Node: m.Node, Shard: m.Shard, Reason: task.Cut(m.Why, contract.MaxErrorText)})
	}
	return out
}

// DecodeTaskCursor decodes where a list of tasks continues: after a task's id, or its end and its id.
func DecodeTaskCursor(s string, byEnd bool) ([]byte, error) {
	at, err := DecodeCursor(TaskCursor, s)
	size := len(task.ID{})
	if byEnd {
		size += 8
	}
	if err == nil && at != nil && len(at) != size {
		err = BadCursor(s)
	}
	return at, err
}

// SearchedProto returns how far a search over several shards that continues after a place has come.
func SearchedProto(pages []broker.Page, stop []byte) *pawlv1.Searched {
	out := &pawlv1.Searched{Until: timestamppb.New(placeTime(stop))}
	for _, p := range pages {
		out.Rows += int64(p.Rows)
	}
	return out
}

// placeTime returns when the task of a place ended, or was created according to its id.
func placeTime(at []byte) time.Time {
	if len(at) > len(task.ID{}) {
		return broker.Time(binary.BigEndian.Uint64(at)).Time() // #nosec G115 -- a time, as it was written
	}
	return time.UnixMilli(task.ID(at).UnixMilli())
}

// PlaceOf returns where a list continues after a task.
func PlaceOf(v *broker.View, byEnd bool) []byte {
	if !byEnd {
		return v.ID[:]
	}
	at := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(v.ID)), uint64(v.Exec.EndedAt)) // #nosec G115 -- not negative
	return append(at, v.ID[:]...)
}

// TasksProto converts as many tasks as fit into one answer, at least one.
func TasksProto(views []*broker.View, withPayload bool) (items []*pawlv1.Task, fit int) {
	size := 0
	items = make([]*pawlv1.Task, 0, len(views))
	for _, v := range views {
		t := TaskProto(v, withPayload)
		if !withPayload {
			t.Result, t.Checkpoint = nil, nil
			if t.Parent != nil {
				t.Parent.Result = nil
			}
		}
		if size += proto.Size(t); size > MaxPageBytes && len(items) > 0 {
			break
		}
		items = append(items, t)
	}
	return items, len(items)
}
