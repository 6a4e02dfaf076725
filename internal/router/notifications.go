package router

import (
	"context"

	"github.com/pawlq/pawl/internal/task"
)

// notificationArgs are notifications for the webhooks of a namespace.
type notificationArgs struct {
	Namespace string
	News      []*task.Notification
}

var takeNotifications = onSystem("take-news", true, func(ctx context.Context, c Control, a notificationArgs) (nothing, error) {
	return nothing{}, c.TakeNotifications(ctx, a.Namespace, a.News)
})
