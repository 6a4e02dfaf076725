package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
)

// serveBatches answers each batch with what answer returns, until the test ends.
func serveBatches(t *testing.T, answer func(*pawlv1.EnqueueBatchRequest) (*pawlv1.EnqueueBatchResponse, error)) (addr string) {
	return serveFake(t, func(method string, stream grpc.ServerStream) error {
		if !strings.HasSuffix(method, "/EnqueueBatch") {
			return grpcstatus.Error(codes.Unimplemented, method)
		}
		sent := &pawlv1.EnqueueBatchRequest{}
		if err := stream.RecvMsg(sent); err != nil {
			return err
		}
		got, err := answer(sent)
		if err != nil {
			return err
		}
		return stream.SendMsg(got)
	})
}

// For programs, --count prints one result for each task, however many answers the batches had.
func TestResultsOfMany(t *testing.T) {
	task := func(id string) *pawlv1.EnqueueResult {
		return &pawlv1.EnqueueResult{Task: &pawlv1.Enqueued{TaskId: id}}
	}
	refused := func(code string) *pawlv1.EnqueueResult {
		return &pawlv1.EnqueueResult{Error: &pawlv1.Error{Code: code}}
	}
	for name, c := range map[string]struct {
		answers [][]*pawlv1.EnqueueResult // nil: the call is refused
		want    string
		exit    int
	}{
		"no answer":  {[][]*pawlv1.EnqueueResult{nil}, "permission_denied permission_denied", cli.ExitRefused},
		"sent again": {[][]*pawlv1.EnqueueResult{{refused("unavailable"), task("b")}, {task("a")}}, "a b", cli.ExitDone},
		"refused":    {[][]*pawlv1.EnqueueResult{{task("a"), refused("queue_full")}}, "a queue_full", cli.ExitRefused},
	} {
		addr := serveBatches(t, func(*pawlv1.EnqueueBatchRequest) (*pawlv1.EnqueueBatchResponse, error) {
			results := c.answers[0]
			c.answers = c.answers[1:]
			if results == nil {
				return nil, grpcstatus.Error(codes.PermissionDenied, "no")
			}
			return &pawlv1.EnqueueBatchResponse{Results: results}, nil
		})
		var out, said bytes.Buffer
		exit := run([]string{"enqueue", "job", "--count", "2", "-o", "json", "--server", addr}, strings.NewReader(""), &out, &said)
		var got struct {
			Results []struct {
				ID    string `json:"task_id"`
				Error struct{ Code string }
			}
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v: %q, %q", name, err, &out, &said)
		}
		var results []string
		for _, r := range got.Results {
			results = append(results, r.ID+r.Error.Code)
		}
		if all := strings.Join(results, " "); all != c.want || exit != c.exit {
			t.Errorf("%s: %s, status %d, want %s, status %d\n%s", name, all, exit, c.want, c.exit, &said)
		}
	}
}
