package rest

import (
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// batch decodes the items of a batch. Items that cannot be decoded are refused individually.
type batch[T proto.Message] struct {
	field   string
	max     int
	all     []T
	refused []*pawlv1.Error // one per item; nil for the valid ones
}

// read reads a body that holds nothing but the items.
func (b *batch[T]) read(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	err := x.fields(func(r *apijson.Reader, name string) error {
		if name != b.field {
			return apijson.Unknown("", name)
		}
		return b.items(r)
	})
	if err == nil && len(b.all) == 0 {
		err = task.Invalid(b.field, "is required, with 1 to %d items", b.max)
	}
	return err
}

func (b *batch[T]) items(r *apijson.Reader) error {
	next := func() proto.Message {
		var none T
		item := none.ProtoReflect().New().Interface()
		b.all = append(b.all, item.(T))
		return item
	}
	return r.Items(b.field, b.max, next, func(err error) {
		b.refused = append(b.refused, nil)
		if err != nil {
			b.refused[len(b.refused)-1] = contract.ErrorProto(b.refusal(err))
		}
	})
}

func (b *batch[T]) refusal(err error) *task.Error {
	if e, ok := task.AsError(err); ok {
		return e
	}
	e, _ := task.AsError(task.Invalid(b.field, "%v", err))
	return e
}

// good returns the items that could be decoded.
func (b *batch[T]) good() (good []T) {
	for i, item := range b.all {
		if b.refused[i] == nil {
			good = append(good, item)
		}
	}
	return good
}

// results writes the results of all items in order: the answers for the good ones, the refusals for the others.
func (b *batch[T]) results(x *exchange, good, refused func(i int)) {
	x.Open('{')
	x.Within("results", '[')
	n := 0
	for i := range b.all {
		x.Open('{')
		if b.refused[i] != nil {
			refused(i)
		} else {
			good(n)
			n++
		}
		x.Close('}')
	}
	x.Close(']')
	x.Close('}')
}

// enqueueBatch refuses bad tasks individually, including those that cannot be decoded.
func enqueueBatch(x *exchange) error {
	b := batch[*pawlv1.TaskSpec]{field: "tasks", max: x.Batch}
	if err := b.read(x); err != nil {
		return err
	}
	var got *pawlv1.EnqueueBatchResponse
	if specs := b.good(); len(specs) > 0 {
		var err error
		got, err = ask[*pawlv1.EnqueueBatchRequest, *pawlv1.EnqueueBatchResponse](x, x.on.RPC, func(in *pawlv1.EnqueueBatchRequest) error {
			in.Tasks = specs
			return nil
		})
		if err != nil {
			return err
		}
	}
	b.results(x, func(i int) { x.Fields(got.GetResults()[i]) },
		func(i int) { x.Fields(&pawlv1.EnqueueResult{Error: b.refused[i]}) })
	return nil
}

// settled is an item of a request that acks, fails, extends or releases.
type settled interface {
	proto.Message
	GetTaskId() string
}

func acks(x *exchange) error {
	return settle(x, "acks", func(in *pawlv1.SettleRequest, good []*pawlv1.AckRequest) { in.Acks = good }, (*pawlv1.SettleResponse).GetAcks)
}

func fails(x *exchange) error {
	return settle(x, "fails", func(in *pawlv1.SettleRequest, good []*pawlv1.FailRequest) { in.Fails = good },
		(*pawlv1.SettleResponse).GetFails)
}

func extends(x *exchange) error {
	return settle(x, "extends", func(in *pawlv1.SettleRequest, good []*pawlv1.ExtendRequest) { in.Extends = good },
		(*pawlv1.SettleResponse).GetExtends)
}

func releases(x *exchange) error {
	return settle(x, "releases", func(in *pawlv1.SettleRequest, good []*pawlv1.ReleaseRequest) { in.Releases = good },
		(*pawlv1.SettleResponse).GetReleases)
}

// settle serves the batch form of ack, fail, extend and release. Each item has its own result.
func settle[T settled](x *exchange, field string, put func(*pawlv1.SettleRequest, []T),
	answers func(*pawlv1.SettleResponse) []*pawlv1.Settled) error {
	b := batch[T]{field: field, max: contract.MaxSettle}
	if err := b.read(x); err != nil {
		return err
	}
	got, err := ask[*pawlv1.SettleRequest, *pawlv1.SettleResponse](x, x.on.RPC, func(in *pawlv1.SettleRequest) error {
		put(in, b.good())
		return nil
	})
	if err != nil {
		return err
	}
	b.results(x, func(i int) {
		s := answers(got)[i]
		if field == "extends" && s.GetError() == nil {
			x.Fields(&pawlv1.ExtendResponse{TaskId: s.GetTaskId(), LeaseExpiresAt: s.GetLeaseExpiresAt()})
			return
		}
		x.Fields(s)
	}, func(i int) {
		x.Fields(&pawlv1.Settled{TaskId: b.all[i].GetTaskId(), Error: b.refused[i]})
	})
	return nil
}
