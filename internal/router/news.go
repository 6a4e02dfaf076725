package router

import (
	"context"

	"github.com/pawlq/pawl/internal/task"
)

// newsArgs are what the webhooks of a namespace are to be told of.
type newsArgs struct {
	Namespace string
	News      []*task.News
}

var takeNews = onSystem("take-news", true, func(ctx context.Context, c Control, a newsArgs) (nothing, error) {
	return nothing{}, c.TakeNews(ctx, a.Namespace, a.News)
})
