package docs

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
)

// workers maps a worker's file to the program that runs it.
var workers = map[string]string{"worker.sh": "sh", "worker.py": "python3", "worker.mjs": "node", "worker.rb": "ruby"}

// TestWorkers: the workers in the pages run tasks, and fail those that they can't run. On SIGTERM they finish the tasks that they hold.
func TestWorkers(t *testing.T) {
	var found []block
	for _, page := range pages(t) {
		for _, b := range blocksOf(t, page) {
			if workers[b.name()] != "" {
				found = append(found, b)
			}
		}
	}
	if len(found) != len(workers) {
		t.Errorf("the pages have the workers %v, want one for each of %v", found, workers)
	}
	for _, b := range found {
		t.Run(b.name(), func(t *testing.T) {
			t.Parallel()
			for _, program := range []string{workers[b.name()], "jq"} {
				if _, err := exec.LookPath(program); err != nil {
					t.Skip(err)
				}
			}
			x := open(t)
			x.write(b)
			client, err := pawl.Dial(x.server)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			stop := x.background(workers[b.name()] + " " + b.name())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range 10 {
				payload, want := fmt.Sprintf(`{"to":"%d@example.com"}`, i), pawltype.StateSucceeded
				if i == 7 {
					payload, want = `{"nobody":true}`, pawltype.StateDead
				}
				ref, err := client.Enqueue(ctx, pawl.RawTask{Type: "mail.welcome", Payload: []byte(payload)}, pawl.Queue("mail"),
					pawl.MaxAttempts(1))
				if err != nil {
					t.Fatal(err)
				}
				task, _ := ref.Wait(ctx) // also an error if it did not succeed
				if task == nil || task.State != want {
					t.Fatalf("%s: %+v, want %s", payload, task, want)
				}
				if want == pawltype.StateDead && task.AttemptLog[0].Error.Message != "the payload has no recipient" {
					t.Errorf("the attempt log is %+v", task.AttemptLog)
				}
				if want == pawltype.StateSucceeded && len(task.Result) == 0 {
					t.Errorf("%s: the task has no result", payload)
				}
			}
			if err := stop(); err != nil && b.name() != "worker.sh" { // which can't be told to stop
				t.Error(err)
			}
		})
	}
}
