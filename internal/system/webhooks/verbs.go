package webhooks

import (
	"context"

	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on webhooks. Those that may change what one subscribes to tell the shards, and name those that
// did not confirm it: the leader of the system shard keeps telling them.
var Verbs verb.Table[*Webhooks]

// A webhook that was removed can't be removed again, so Remove is not repeated.
var (
	Add    = verb.New(&Verbs, verb.SystemRule("add-webhook"), toldShards((*Webhooks).Add))
	Set    = verb.New(&Verbs, verb.SystemRule("set-webhook"), toldShards((*Webhooks).Set))
	Rotate = verb.New(&Verbs, verb.SystemRule("rotate-webhook"), (*Webhooks).Rotate)
	Pause  = verb.New(&Verbs, verb.SystemRule("pause-webhook"), (*Webhooks).Pause)
	Resume = verb.New(&Verbs, verb.SystemRule("resume-webhook"), toldShards((*Webhooks).Resume))
	Remove = verb.New(&Verbs, verb.Rule{Name: "remove-webhook", Where: verb.System},
		toldShards(func(w *Webhooks, ctx context.Context, q Call) (View, error) { return View{}, w.Remove(ctx, q) }))

	List = verb.New(&Verbs, verb.SystemRule("webhooks"), (*Webhooks).List)
	Get  = verb.New(&Verbs, verb.SystemRule("webhook"),
		func(w *Webhooks, ctx context.Context, q Name) (View, error) { return w.Get(ctx, q.Namespace, q.Name) })
	// TakeNotifications takes notifications for the webhooks of a namespace. Those taken before are ignored.
	TakeNotifications = verb.NewVoid(&Verbs, verb.SystemRule("take-notifications"),
		func(w *Webhooks, ctx context.Context, q Notifications) error {
			return w.TakeNotifications(ctx, q.Namespace, q.All)
		})
	Deliveries = verb.New(&Verbs, verb.SystemRule("webhook-deliveries"),
		func(w *Webhooks, ctx context.Context, q Name) ([]Delivery, error) {
			return w.Deliveries(ctx, q.Namespace, q.Name)
		})
)

// Notifications are for the webhooks of a namespace.
type Notifications struct {
	Namespace string
	All       []*task.Notification
}

// DispatcherVerbs are the calls on what sends notices.
var DispatcherVerbs verb.Table[*Dispatcher]

// Test sends a notice to a webhook, to see what becomes of it.
var Test = verb.New(&DispatcherVerbs, verb.SystemRule("test-webhook"),
	func(p *Dispatcher, ctx context.Context, q Name) (Delivery, error) {
		return p.Test(ctx, q.By, q.Namespace, q.Name)
	})

// Name is a webhook, and the caller.
type Name struct {
	Namespace, Name string
	By              task.Author
}

func toldShards(do func(*Webhooks, context.Context, Call) (View, error)) func(*Webhooks, context.Context, Call) (Done, error) {
	return func(w *Webhooks, ctx context.Context, q Call) (out Done, err error) {
		if out.Hook, err = do(w, ctx, q); err != nil {
			return out, err
		}
		out.Unconfirmed, err = w.TellShards(ctx, q.Hook.Namespace)
		return out, err
	}
}
