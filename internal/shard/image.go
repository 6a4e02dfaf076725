package shard

import (
	"context"

	"github.com/pawlq/pawl/internal/store"
)

// Image runs read on the caller's goroutine with a snapshot of the state as it was at some moment of the call, for as long as
// read takes. Only the leader has one to give, so all that was answered before the call is in it. Its ctx ends with the
// caller's, and when the replica stops or goes on from another state: then read must return soon, since the replica waits
// for it. An error of read is returned as it is; others are as for View, with ErrStopped for a replica that read had to make
// way for.
func (s *Shard) Image(ctx context.Context, read func(ctx context.Context, snap *store.Snapshot) error) (at Stamp, err error) {
	c := newCall(ctx)
	if err := s.do(c); err != nil {
		return at, err
	}
	defer c.view.release()
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.view.ctx, cancel)()
	_, err = readView(c.view, func(store.Reader) (struct{}, error) { return struct{}{}, read(held, c.view.snap) })
	if err != nil && c.view.ctx.Err() != nil && ctx.Err() == nil {
		err = ErrStopped
	}
	return c.stamp, err
}
