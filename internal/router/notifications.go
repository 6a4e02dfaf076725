package router

import (
	"context"

	"github.com/pawlq/pawl/internal/task"
)

// notificationArgs are what the webhooks of a namespace are to be told of.
type notificationArgs struct {
	Namespace string
	News      []*task.Notification
}

var takeNotifications = onSystem("take-news", true, func(ctx context.Context, c Control, a notificationArgs) (nothing, error) {
	return nothing{}, c.TakeNotifications(ctx, a.Namespace, a.News)
})
