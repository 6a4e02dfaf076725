package embedded_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/embedded"
)

type greet struct {
	Name string `json:"name"`
}

func (greet) TaskType() string { return "greet" }

// open starts a broker on dir. It is closed by the test, or when the test ends.
func open(t *testing.T, dir string, opts embedded.Options) *embedded.Broker {
	t.Helper()
	b, err := embedded.Open(dir, opts)
	if err != nil {
		t.Fatalf("opening a broker on %s: %v", dir, err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

// run runs tasks of the default queue until the task of ref has ended.
func run(t *testing.T, client *pawl.Client, ref *pawl.Ref) string {
	t.Helper()
	mux := pawl.NewMux()
	pawl.Handle(mux, func(_ context.Context, task *pawl.Task[greet]) error {
		return task.SetResult("hello " + task.Args.Name)
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- pawl.NewWorker(client, mux, pawl.WorkerConfig{}).Run(ctx) }()
	var got string
	err := ref.Result(t.Context(), &got)
	stop()
	if err := <-done; err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	if err != nil {
		t.Fatalf("waiting for the result: %v", err)
	}
	return got
}

func TestTaskSurvivesRestart(t *testing.T) {
	dir := t.TempDir() + "/data"
	first := open(t, dir, embedded.Options{})
	if got := first.Addr(); got != "" {
		t.Errorf("Addr() = %q without Listen, want none", got)
	}
	ref, err := first.Client().Enqueue(t.Context(), greet{"Ada"}, pawl.IdempotencyKey("ada"))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatalf("closing the first broker: %v", err)
	}

	second := open(t, dir, embedded.Options{})
	again, err := second.Client().Enqueue(t.Context(), greet{"Ada"}, pawl.IdempotencyKey("ada"))
	if err != nil {
		t.Fatal(err)
	}
	if again.ID != ref.ID || !again.Duplicate {
		t.Errorf("enqueuing again after reopening = %s, duplicate %t, want %s, a duplicate", again.ID, again.Duplicate, ref.ID)
	}
	if got := run(t, second.Client(), again); got != "hello Ada" {
		t.Errorf("the result is %q, want %q", got, "hello Ada")
	}
}

func TestSecondBrokerInDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, embedded.Options{})
	b, err := embedded.Open(dir, embedded.Options{})
	if err == nil {
		_ = b.Close(t.Context())
		t.Fatal("a second broker opened the directory")
	}
	if !strings.Contains(err.Error(), "in use") {
		t.Errorf("the error is %q, want it to say that the directory is in use", err)
	}
}

func TestListenServesOtherClients(t *testing.T) {
	b := open(t, t.TempDir(), embedded.Options{Listen: "127.0.0.1:0"})
	client, err := pawl.Dial(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ref, err := client.Enqueue(t.Context(), greet{"Grace"})
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, b.Client(), ref); got != "hello Grace" {
		t.Errorf("the result is %q, want %q", got, "hello Grace")
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", b.Addr()); err == nil {
		_ = c.Close()
		t.Errorf("%s still accepts connections after Close", b.Addr())
	}
}

func TestOpenRefusals(t *testing.T) {
	for _, c := range []struct {
		name, dir, want string
		opts            embedded.Options
	}{
		{"no directory", "", "dir is empty", embedded.Options{}},
		{"address of other machines", t.TempDir(), "no access control", embedded.Options{Listen: "0.0.0.0:0"}},
		{"no address", t.TempDir(), "listen", embedded.Options{Listen: "nowhere"}},
		{"too many shards", t.TempDir(), "shards: 100", embedded.Options{DataShards: 100}},
	} {
		b, err := embedded.Open(c.dir, c.opts)
		if err == nil {
			_ = b.Close(t.Context())
			t.Errorf("%s: Open succeeded", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %q, want it to contain %q", c.name, err, c.want)
		}
	}
}

func ExampleOpen() {
	dir, _ := os.MkdirTemp("", "pawl")
	defer os.RemoveAll(dir)
	broker, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer broker.Close(ctx)

	ref, err := broker.Client().Enqueue(ctx, greet{"Ada"})
	if err != nil {
		panic(err)
	}
	fmt.Println(ref.State)
	// Output: ready
}
