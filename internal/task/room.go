package task

import "context"

type roomKey struct{}

// WithRoom returns a context whose calls end their pages early once room returns false, because there is no memory for
// more. room is told how many more bytes a page needs. It may be called from any goroutine.
func WithRoom(ctx context.Context, room func(bytes int) bool) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// RoomOf returns the room of a call; nil: it is not limited.
func RoomOf(ctx context.Context) func(bytes int) bool {
	room, _ := ctx.Value(roomKey{}).(func(bytes int) bool)
	return room
}
