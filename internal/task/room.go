package task

import "context"

type roomKey struct{}

// WithRoom has what the calls of a context read end early once there is no memory for more. room is told how many bytes
// more have been read, and returns false if that was too much. It may be called from any goroutine.
func WithRoom(ctx context.Context, room func(bytes int) bool) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// RoomOf returns the room of a call; nil: it is not limited.
func RoomOf(ctx context.Context) func(bytes int) bool {
	room, _ := ctx.Value(roomKey{}).(func(bytes int) bool)
	return room
}
