package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
)

// Welcome is the payload of tasks of type mail.welcome.
type Welcome struct {
	To string `json:"to"`
}

func (Welcome) TaskType() string { return "mail.welcome" }

// broker starts a broker for an example. Yours has an address such as "localhost:7295".
func broker() (addr string, stop func()) {
	f := newFake()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go f.server.Serve(l)
	slog.SetLogLoggerLevel(slog.LevelError)
	return l.Addr().String(), f.stop
}

// A producer enqueues a task, a worker runs it, and the producer gets its result.
func Example() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr) // "localhost:7295"
	if err != nil {
		panic(err)
	}
	defer client.Close()

	mux := pawl.NewMux()
	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Welcome]) error {
		return t.SetResult("sent to " + t.Args.To)
	})
	ctx, drain := context.WithCancel(context.Background())
	worker := pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Weighted{"mail": 7, "default": 3}, Concurrency: 50})
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()

	ref, err := client.Enqueue(ctx, Welcome{To: "a@example.com"}, pawl.Queue("mail"), pawl.IdempotencyKey("welcome-42"))
	if err != nil {
		panic(err)
	}
	var result string
	err = ref.Result(ctx, &result)
	fmt.Println(result, err)

	drain()
	fmt.Println(<-ended)
	// Output:
	// sent to a@example.com <nil>
	// <nil>
}

// The same key in the same queue returns the first task.
func ExampleClient_Enqueue() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()

	first, err := client.Enqueue(ctx, Welcome{To: "a@example.com"}, pawl.IdempotencyKey("welcome-42"), pawl.Priority(pawl.High),
		pawl.Timeout(time.Minute))
	if err != nil {
		panic(err)
	}
	again, err := client.Enqueue(ctx, Welcome{To: "a@example.com"}, pawl.IdempotencyKey("welcome-42"))
	fmt.Println(again.ID == first.ID, again.Duplicate, err)
	// Output: true true <nil>
}

// While a report is running, the newest request for another one waits, and replaces the one before it.
func ExampleUnique() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()

	latest := pawl.UniqueOpts{Key: "report-7", OnConflict: pawl.OnConflictKeepLast}
	for _, to := range []string{"a@example.com", "b@example.com"} {
		ref, err := client.Enqueue(ctx, Welcome{To: to}, pawl.Unique(latest))
		if err != nil {
			panic(err)
		}
		fmt.Println(ref.Duplicate)
	}
	// Output:
	// false
	// false
}

// One invalid task doesn't affect the others.
func ExampleClient_EnqueueBatch() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	items := []pawl.Item{
		{Args: Welcome{To: "a@example.com"}, Options: []pawl.Option{pawl.Queue("mail")}},
		{Args: pawl.RawTask{Payload: []byte(`{}`)}}, // no type
	}
	results, err := client.EnqueueBatch(context.Background(), items)
	if err != nil {
		panic(err) // some got no answer
	}
	for _, r := range results {
		fmt.Println(r.Ref != nil, r.Err)
	}
	// Output:
	// true <nil>
	// false enqueue: item 1: pawl: invalid_argument: type: is empty
}

// RawTask is for types that are known only at run time.
func ExampleRawTask() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	ref, err := client.Enqueue(context.Background(), pawl.RawTask{Type: "image.scale", Payload: []byte{0xff, 0xd8},
		ContentType: "image/jpeg"})
	if err != nil {
		panic(err)
	}
	info, err := client.Task(context.Background(), ref.ID)
	fmt.Println(info.Type, info.State, len(info.Payload), err)
	// Output: image.scale ready 2 <nil>
}

func ExampleRef_Wait() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()

	ref, err := client.Enqueue(ctx, Welcome{To: "a@example.com"})
	if err != nil {
		panic(err)
	}
	if _, err := admin.New(client).WithReason("the account is gone").Tasks().Cancel(ctx, ref.ID); err != nil {
		panic(err)
	}
	info, err := ref.Wait(ctx)
	var ended *pawl.EndedError
	fmt.Println(info.State, errors.As(err, &ended), errors.Is(err, pawl.ErrCancelled))
	// Output: cancelled true true
}

// Test refusals with their sentinels. *pawl.Error has the details.
func ExampleError() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	_, err = client.Task(context.Background(), "none")
	var refused *pawl.Error
	if errors.Is(err, pawl.ErrNotFound) && errors.As(err, &refused) {
		fmt.Println(string(refused.Code), "-", refused.Message)
	}
	// Output: not_found - no task none
}

func Example_listTasks() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()

	for _, to := range []string{"a", "b", "c"} {
		if _, err := client.Enqueue(ctx, Welcome{To: to}, pawl.Tags("signup")); err != nil {
			panic(err)
		}
	}
	for task, err := range admin.New(client).Tasks().List(ctx, admin.Filter{Tag: "signup", States: []pawl.State{pawl.StateReady}}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(task.Type, task.State, task.Tags)
	}
	// Output:
	// mail.welcome ready [signup]
	// mail.welcome ready [signup]
	// mail.welcome ready [signup]
}

func Example_admin() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	server, err := admin.New(client).Cluster().Server(context.Background())
	if err != nil {
		panic(err)
	}
	for _, s := range server.Shards {
		fmt.Printf("shard %d is led by %s\n", s.Shard, s.Leader)
	}
	// Output: shard 1 is led by n1
}

// A schedule enqueues its task repeatedly. Repeating the call whenever a program starts changes nothing.
func Example_schedule() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	done, err := admin.New(client).Schedules().Put(context.Background(), admin.ScheduleSpec{
		Name: "monday-mail", Cron: "0 9 * * MON", TimeZone: "Europe/Berlin",
		Jitter: 10 * time.Minute, Missed: admin.MissedSkip,
		Task: Welcome{To: "everybody@example.com"}, Options: []pawl.Option{pawl.Queue("mail"), pawl.Timeout(time.Hour)},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(done.Change, done.Schedule.Name, done.Schedule.Task.Type, "to", done.Schedule.Task.Queue)
	// Output: created monday-mail mail.welcome to mail
}

// A claim loop of your own instead of a Worker.
func Example_claims() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()
	if _, err := client.Enqueue(ctx, Welcome{To: "a@example.com"}); err != nil {
		panic(err)
	}

	claimed, err := claims.New(client).Claim(ctx, claims.Request{Queues: pawl.Strict{"urgent", "default"}, Max: 10, Wait: 20 * time.Second})
	if err != nil {
		panic(err)
	}
	for _, c := range claimed {
		var args Welcome
		if err := c.Decode(&args); err != nil {
			panic(err)
		}
		fmt.Println(args.To, claims.New(client).Ack(ctx, c))
	}
	// Output: a@example.com <nil>
}
