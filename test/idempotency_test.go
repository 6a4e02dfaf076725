package test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/testdb"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/pawltype"
)

// The experiment of docs/idempotency.md: tasks that each pay once, workers that are killed with -9 in a loop while
// producers continue, and a payment provider that keeps its own books. The workers and the provider are separate
// processes: this test binary in the role named by playEnv.
const (
	playEnv     = "PAWL_TEST_PLAY"
	serverEnv   = "PAWL_TEST_SERVER"
	providerEnv = "PAWL_TEST_PROVIDER"
	layerEnv    = "PAWL_TEST_LAYER"
	dieEnv      = "PAWL_TEST_DIE"

	payWorkers     = 4
	paySlots       = 25 // of a worker
	payLease       = 2 * time.Second
	payBatches     = 20 // of the producer at most, each followed by a kill
	payKillsBeyond = 5
	payDrain       = startLimit
	// payLife is when a process exits by itself, in case the test has died.
	payLife = 10 * time.Minute
)

// Layers between a task and the payment.
const (
	noLayer   = "none"
	onceLayer = "once"
	keyLayer  = "key"          // Idempotency-Key to the provider
	allLayers = "once and key" // what docs/idempotency.md recommends for a provider
	// effectLayer records the effect in the same transaction: the payment is a row in a database.
	effectLayer = "effect"
)

// plays are the roles of a process of this binary.
var plays = map[string]func() error{"provider": playProvider, "worker": playWorker}

// playIf runs the process's role, if it has one, and exits.
func playIf(name string) {
	play, ok := plays[name]
	if !ok {
		return
	}
	time.AfterFunc(payLife, func() { os.Exit(3) })
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// payment is a payment that is wanted once, whatever task asks for it.
type payment struct {
	ID string `json:"id"`
	// Dies: in the first of two lives the task becomes a dead letter after it has paid.
	Dies bool `json:"dies,omitempty"`
}

func (payment) TaskType() string { return "pay" }

// playProvider accepts payments, counts how often each was made, and reports the counts. A request with a known
// Idempotency-Key makes no payment.
func playProvider() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	made, seen := map[string]int{}, map[string]bool{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pay/{id}", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(rand.N(2 * time.Millisecond))
		mu.Lock()
		key := r.Header.Get("Idempotency-Key")
		if key == "" || !seen[key] {
			made[r.PathValue("id")]++
		}
		seen[key] = true
		mu.Unlock()
		time.Sleep(rand.N(2 * time.Millisecond))
		fmt.Fprintf(w, "%q", "receipt-"+r.PathValue("id"))
	})
	mux.HandleFunc("GET /books", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(w).Encode(made)
	})
	fmt.Println(l.Addr())
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(l)
}

// playWorker works until it is killed.
func playWorker() error {
	layer, die := os.Getenv(layerEnv), os.Getenv(dieEnv) != ""
	client, err := pawl.Dial(os.Getenv(serverEnv), pawl.DialOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	pay := func(ctx context.Context, t *pawl.Task[payment], p *provider) error { return payOnce(ctx, t, p, layer) }
	if layer == effectLayer {
		if pay, err = payInDatabase(); err != nil {
			return err
		}
	}
	p := &provider{url: "http://" + os.Getenv(providerEnv), http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: paySlots}}}
	mux := pawl.NewMux()
	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[payment]) error {
		if err := pay(ctx, t, p); err != nil {
			return err
		}
		time.Sleep(10*time.Millisecond + rand.N(20*time.Millisecond)) // the rest of a handler's work
		if t.Args.Dies && die {
			return pawl.DeadLetter(errors.New("the receipt could not be printed"))
		}
		return nil
	})
	return pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Strict{queueOf(layer)}, Concurrency: paySlots,
		Lease: payLease}).Run(context.Background())
}

func payOnce(ctx context.Context, t *pawl.Task[payment], p *provider, layer string) error {
	key := ""
	if layer == keyLayer || layer == allLayers {
		key = "payment/" + t.Args.ID
	}
	if layer == noLayer || layer == keyLayer {
		_, err := p.pay(ctx, t.Args.ID, key)
		return err
	}
	_, err := pawl.Once(ctx, t, "payment/"+t.Args.ID, func(ctx context.Context) (string, error) { return p.pay(ctx, t.Args.ID, key) })
	return err
}

// payInDatabase pays by a row, and records the effect in the same transaction.
func payInDatabase() (func(ctx context.Context, t *pawl.Task[payment], _ *provider) error, error) {
	db, err := sql.Open("pgx", os.Getenv(shopDSNEnv))
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(paySlots) // a new connection is a new process of the database
	box, err := outbox.Open(context.Background(), db, outbox.Postgres)
	return func(ctx context.Context, t *pawl.Task[payment], _ *provider) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		err = box.Effect(ctx, tx, t.Claim, "pay", func(ctx context.Context) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES ($1)", t.Args.ID)
			return err
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}, err
}

func queueOf(layer string) string { return "pay-" + strings.ReplaceAll(layer, " ", "-") }

// provider is the payment provider as its users see it.
type provider struct {
	url  string
	http *http.Client
}

func (p *provider) pay(ctx context.Context, id, key string) (receipt string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/pay/"+id, nil)
	if err != nil {
		return "", err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := p.http.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&receipt)
	return receipt, err
}

// books returns how often each payment was made.
func (p *provider) books(t *testing.T) (made map[string]int) {
	t.Helper()
	resp, err := p.http.Get(p.url + "/books")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil {
		t.Fatal(err)
	}
	return made
}

// ledger is a database with payments, and the environment that a worker needs to find it.
func ledger(t *testing.T) (books func() map[string]int, env string) {
	t.Helper()
	dsn := testdb.Postgres(t)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	schema, err := outbox.Schema(outbox.Postgres)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), schema+"; CREATE TABLE payments (id text)"); err != nil {
		t.Fatal(err)
	}
	return func() map[string]int {
		made := map[string]int{}
		rows, err := db.QueryContext(t.Context(), "SELECT id, count(*) FROM payments GROUP BY id")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			var n int
			if err := rows.Scan(&id, &n); err != nil {
				t.Fatal(err)
			}
			made[id] = n
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return made
	}, shopDSNEnv + "=" + dsn
}

// process returns this binary in a role, with additional environment.
func process(t *testing.T, play string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), playEnv+"="+play), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// startProvider starts a provider that is stopped at the end of the test.
func startProvider(t *testing.T) (*provider, string) {
	t.Helper()
	cmd := process(t, "provider")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the provider did not print an address: %v", err)
	}
	addr := strings.TrimSpace(line)
	return &provider{url: "http://" + addr, http: &http.Client{}}, addr
}

// workerPool is a set of worker processes, one of which is killed now and then and replaced.
type workerPool struct {
	t     *testing.T
	env   []string
	at    [payWorkers]*exec.Cmd
	kills int
}

func newWorkerPool(t *testing.T, env ...string) *workerPool {
	s := &workerPool{t: t, env: env}
	for i := range s.at {
		s.startWorker(i)
	}
	return s
}

func (s *workerPool) startWorker(i int) {
	s.t.Helper()
	cmd := process(s.t, "worker", s.env...)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.at[i] = cmd
	s.t.Cleanup(func() { _ = cmd.Process.Kill() })
}

// kill kills one with -9 at a random time, and replaces it.
func (s *workerPool) kill() {
	s.t.Helper()
	time.Sleep(20*time.Millisecond + rand.N(80*time.Millisecond))
	i := rand.IntN(payWorkers)
	s.end(i)
	s.kills++
	s.startWorker(i)
}

func (s *workerPool) end(i int) {
	_ = s.at[i].Process.Kill()
	_ = s.at[i].Wait()
}

func (s *workerPool) endAll() {
	for i := range s.at {
		s.end(i)
	}
}

// TestIdempotency counts payments that are made twice, and missing ones, with and without layers between task and
// effect. PAWL_PAYMENTS sets how many there are for each.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	n := count(t, "PAWL_PAYMENTS", 1_000)
	client, err := pawl.Dial(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	doubled := map[string]int{}
	layers := []string{noLayer, onceLayer, keyLayer, allLayers}
	if testdb.HasPostgres() {
		layers = append(layers, effectLayer)
	} else {
		t.Logf("layer %q is skipped: no PostgreSQL on this machine", effectLayer)
	}
	for _, layer := range layers {
		provider, addr := startProvider(t)
		books := func() map[string]int { return provider.books(t) }
		env := []string{serverEnv + "=" + s.addr, providerEnv + "=" + addr, layerEnv + "=" + layer}
		if layer == effectLayer {
			ledgerBooks, where := ledger(t)
			books, env = ledgerBooks, append(env, where)
		}
		x := &experiment{t: t, client: client, layer: layer, n: n, env: env}
		began := time.Now()
		x.run()
		missing, more := 0, 0
		made := books()
		for i := range n {
			switch times := made[paymentID(i)]; {
			case times == 0:
				missing++
			case times > 1:
				doubled[layer]++
				more += times - 1
			}
		}
		t.Logf("layer %q: %d payments by %d tasks, %d workers killed, %d replays: %d payments were made more than once (%d too many), %d "+
			"are missing; %s",
			layer, n, x.tasks, x.kills, x.replayed, doubled[layer], more, missing, time.Since(began).Round(100*time.Millisecond))
		if missing > 0 {
			t.Errorf("layer %q: %d payments are missing", layer, missing)
		}
	}
	if doubled[noLayer] == 0 {
		t.Error("without a layer no payment was made twice, so the kills had no effect and the test proves nothing")
	}
	for _, layer := range []string{keyLayer, allLayers, effectLayer} {
		if doubled[layer] > 0 {
			t.Errorf("layer %q: %d payments were made more than once", layer, doubled[layer])
		}
	}
}

func paymentID(i int) string { return fmt.Sprintf("p%05d", i) }

// experiment is the experiment with one layer.
type experiment struct {
	t      *testing.T
	client *pawl.Client
	layer  string
	n      int
	env    []string

	tasks, kills int
	replayed     int64
}

// run produces all tasks and runs them under kills. With a layer, every twentieth task becomes a dead letter after it has paid, and is
// replayed. If the layer also covers effects of different tasks, every tenth payment is requested by two tasks.
func (x *experiment) run() {
	hard := x.layer != noLayer
	workers := newWorkerPool(x.t, append(x.env, dieEnv+"=1")...)
	var items []pawl.Item
	for i := range x.n {
		item := pawl.Item{Args: payment{ID: paymentID(i), Dies: hard && i%20 == 0}, Options: []pawl.Option{pawl.Queue(queueOf(x.layer)),
			pawl.MaxAttempts(1000), pawl.Retry(pawltype.RetryPolicy{Initial: 50 * time.Millisecond, Factor: 1,
				Max: 50 * time.Millisecond})}}
		items = append(items, item)
		if hard && x.layer != effectLayer && i%10 == 5 {
			items = append(items, item)
		}
	}
	x.tasks = len(items)
	rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	size := max(payWorkers*paySlots, (len(items)+payBatches-1)/payBatches)
	for len(items) > 0 {
		batch := items[:min(size, len(items))]
		items = items[len(batch):]
		x.enqueue(batch)
		workers.kill()
	}
	for range payKillsBeyond {
		workers.kill()
	}
	x.drain()
	workers.endAll()
	x.kills = workers.kills
	if !hard {
		return
	}
	workers = newWorkerPool(x.t, x.env...)
	replay, err := admin.New(x.client).WithReason("the printer works again").Operations().Start(x.t.Context(),
		admin.OperationSpec{Action: admin.ActionReplay,
			Filter: &admin.Filter{Queue: queueOf(x.layer)}})
	if err == nil {
		replay, err = admin.New(x.client).Operations().Wait(x.t.Context(), replay.ID, nil)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.replayed = replay.Counts.Done
	workers.kill()
	x.drain()
	workers.endAll()
	x.kills += workers.kills
}

func (x *experiment) enqueue(items []pawl.Item) {
	x.t.Helper()
	for len(items) > 0 {
		batch := items[:min(1000, len(items))]
		items = items[len(batch):]
		got, err := x.client.EnqueueBatch(x.t.Context(), batch)
		if err != nil {
			x.t.Fatal(err)
		}
		for _, e := range got {
			if e.Err != nil {
				x.t.Fatal(e.Err)
			}
		}
	}
}

// drain waits until no task waits or runs.
func (x *experiment) drain() {
	x.t.Helper()
	eventually(x.t, "all tasks have ended", payDrain, func() bool {
		q, err := admin.New(x.client).Queues().Get(x.t.Context(), queueOf(x.layer))
		if err != nil {
			x.t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		d := q.Depth
		return d.Scheduled+d.Ready+d.Claimed+d.Retrying == 0
	})
}
