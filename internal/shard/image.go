package shard

import (
	"context"

	"github.com/pawlq/pawl/internal/store"
)

// Image runs read on the caller's goroutine with a snapshot of the state at some moment during the call, for as long as read
// takes. Only the leader provides it, so the snapshot includes everything that was answered before the call. The ctx passed to
// read ends with the caller's, and when the replica stops or installs a snapshot: then read must return soon, since the
// replica waits for it. An error of read is returned unchanged; others are as for View. It is ErrStopped if read was cut
// short by the replica.
func (s *Shard) Image(ctx context.Context, read func(ctx context.Context, snap *store.Snapshot) error) (at Stamp, err error) {
	c := newCall(ctx)
	if err := s.do(c); err != nil {
		return at, err
	}
	defer c.view.release()
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.view.ctx, cancel)()
	_, err = readView(s, c.view, func(store.Reader) (struct{}, error) { return struct{}{}, read(held, c.view.snap) })
	if err != nil && c.view.ctx.Err() != nil && ctx.Err() == nil {
		err = ErrStopped
	}
	return c.stamp, err
}
