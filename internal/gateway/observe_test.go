package gateway

import (
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

// recordingMeter is a Meter that records calls.
type recordingMeter struct {
	mu   sync.Mutex
	said []string
	open map[string]int
}

func (m *recordingMeter) Called(iface, method, code string, took time.Duration, waits bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, fmt.Sprint(iface, " ", method, " ", code, " ", took, " ", waits))
}

func (m *recordingMeter) Streams(iface, method string, by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		m.open = map[string]int{}
	}
	m.open[iface+" "+method] += by
}

// heard returns the calls that were reported since it was last called, and which streams are open.
func (m *recordingMeter) heard() (said string, open string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	said = fmt.Sprint(m.said)
	m.said = nil
	return said, fmt.Sprint(m.open)
}

// Calls are reported separately by what their duration depends on: the server, what they wait for, or who ends them.
func TestCallsAreMetered(t *testing.T) {
	document()
	synctest.Test(t, func(t *testing.T) {
		meter := &recordingMeter{}
		f := newFake(1)
		f.meter = meter
		g, l := serve(t, f)
		check := func(what, said, open string) {
			t.Helper()
			synctest.Wait()
			if gotSaid, gotOpen := meter.heard(); gotSaid != "["+said+"]" || gotOpen != "map["+open+"]" {
				t.Errorf("%s: reported %s, streams %s, want [%s] and map[%s]", what, gotSaid, gotOpen, said, open)
			}
		}
		conn := dial(t, l)
		producer, worker := pawlv1.NewProducerServiceClient(conn), pawlv1.NewWorkerServiceClient(conn)
		_, _ = producer.Enqueue(t.Context(), &pawlv1.EnqueueRequest{})
		check("a call", "grpc ProducerService/Enqueue invalid_argument 0s false", "")
		queues := []*pawlv1.QueueShare{{Queue: "a"}}
		_, _ = worker.Claim(t.Context(), &pawlv1.ClaimRequest{Queues: queues, Worker: "w"})
		check("a claim", "grpc WorkerService/Claim ok 0s false", "")
		_, _ = worker.Claim(t.Context(), &pawlv1.ClaimRequest{Queues: queues, Worker: "w", Wait: durationpb.New(20 * time.Second)})
		check("a claim that waits", "grpc WorkerService/Claim ok 20s true", "")
		g.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", ours+"/api/v1/tasks/"+task.NewID(1, 1, 1).String()+
			"?wait=5s",
			nil))
		check("a task that is waited for", "rest GET /api/v1/tasks/{id} not_found 0s true", "")

		stream, err := worker.Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: queues, Worker: "w"}})
		check("a worker's stream", "", "grpc WorkerService/Work:1")
		_ = stream.CloseSend()
		for err == nil {
			_, err = stream.Recv()
		}
		check("its end", "grpc WorkerService/Work ok -1ns false", "grpc WorkerService/Work:0")

		f.panics = true
		_, _ = producer.Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Payload: []byte("1")}})
		check("a panic", "grpc ProducerService/Enqueue internal 0s false", "grpc WorkerService/Work:0")
		f.panics = false

		events := subscribe(t, f, "", "")
		check("events", "", "grpc WorkerService/Work:0 rest GET /api/v1/events:1")
		time.Sleep(time.Hour)
		events.end()
		check("their end", "rest GET /api/v1/events ok -1ns false", "grpc WorkerService/Work:0 rest GET /api/v1/events:0")
	})
}
