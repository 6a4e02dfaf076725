// Package bench implements the program pawl-bench: it measures a server's throughput and latency, and their cost in CPU time and memory.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/version"
)

// flags are common to all cases.
type flags struct {
	payload                       cli.SizeValue
	keep, duration                time.Duration
	producers, batch, tasks       int
	slots, rate, deep, claimBatch int
	keys, quota, times            int
	dir                           string
	pid                           int
}

// result is the output of a case: one line of JSON.
type result struct {
	Case     string       `json:"case"`
	Rate     float64      `json:"rate"`
	Unit     string       `json:"unit"`
	Count    int64        `json:"count"`
	Seconds  float64      `json:"seconds"`
	Latency  *percentiles `json:"latency_ms,omitempty"`
	Of       string       `json:"latency_of,omitempty"`
	CPU      *cpuResult   `json:"cpu_us_per_task,omitempty"`
	Payload  int64        `json:"payload_bytes"`
	Setting  string       `json:"setting,omitempty"`
	Calm     *percentiles `json:"latency_ms_before,omitempty"`
	Depth    *depthResult `json:"depth,omitempty"`
	Group    *groupResult `json:"group,omitempty"`
	Noise    *noisyResult `json:"noise,omitempty"`
	Bare     *bareResult  `json:"bare,omitempty"`
	Server   string       `json:"server"`
	Version  string       `json:"version"`
	CPUs     int          `json:"cpus"`
	MemoryMB float64      `json:"server_resident_mb,omitempty"`
}

// benchmark is one case of the benchmark.
type benchmark struct {
	use, short string
	duration   time.Duration // default
	flags      func(*cobra.Command, *flags)
	run        func(ctx context.Context, r *run) (*result, error)
}

var benchmarks = []benchmark{
	{"bare", "The bare machine: an empty gRPC call, one synced write", time.Second, nil, benchBare},
	{"enqueue", "One producer that waits for every answer", 10 * time.Second, nil, benchEnqueue},
	{"enqueue-parallel", "Many producers in one process, each waiting for its answers", 10 * time.Second,
		func(cmd *cobra.Command, f *flags) {
			cmd.Flags().IntVar(&f.producers, "producers", 64, "concurrent producers")
		}, benchEnqueueParallel},
	{"enqueue-batch", "Producers that enqueue in batches", time.Minute, func(cmd *cobra.Command, f *flags) {
		cmd.Flags().IntVar(&f.batch, "batch", 1000, "tasks in a batch")
		cmd.Flags().IntVar(&f.producers, "producers", 2, "concurrent producers")
	}, benchEnqueueBatch},
	{"work", "One worker on a full queue: claim, do nothing, ack", 0, func(cmd *cobra.Command, f *flags) {
		cmd.Flags().IntVar(&f.tasks, "tasks", 300_000, "tasks in the queue")
		cmd.Flags().IntVar(&f.keys, "keys", 0, "number of task keys, each with limits that are not reached")
		cmd.Flags().IntVar(&f.slots, "slots", 100, "concurrent handlers")
	}, benchWork},
	{"latency", "Time from the enqueue call to the start of the handler, at a steady rate", 10 * time.Second,
		func(cmd *cobra.Command, f *flags) {
			cmd.Flags().IntVar(&f.rate, "rate", 500, "tasks per second")
			cmd.Flags().IntVar(&f.slots, "slots", 100, "concurrent handlers")
		}, benchLatency},
	{"schedules", "Schedules that are all due in the same second, and their effect on other tasks", 10 * time.Second,
		func(cmd *cobra.Command, f *flags) {
			cmd.Flags().IntVar(&f.tasks, "schedules", 100_000, "schedules")
			cmd.Flags().IntVar(&f.rate, "rate", 500, "other tasks per second")
			cmd.Flags().IntVar(&f.slots, "slots", 100, "concurrent handlers")
		}, benchSchedules},
	{"noisy", "Tasks at a steady rate, alone and while another namespace exceeds its quota many times", 10 * time.Second,
		func(cmd *cobra.Command, f *flags) {
			cmd.Flags().IntVar(&f.rate, "rate", 500, "tasks per second")
			cmd.Flags().IntVar(&f.quota, "quota", 50, "tasks per second that the other namespace may enqueue")
			cmd.Flags().IntVar(&f.times, "times", 100, "multiple of the quota that it offers")
			cmd.Flags().IntVar(&f.slots, "slots", 100, "concurrent handlers")
		}, benchNoisy},
	{"groups", "The members of a group, and as many tasks without one: claim, do nothing, ack", 0, func(cmd *cobra.Command, f *flags) {
		cmd.Flags().IntVar(&f.tasks, "members", 100_000, "members of the group, at most 100,000")
		cmd.Flags().IntVar(&f.slots, "slots", 100, "concurrent handlers")
	}, benchGroups},
	{"depth", "The server's memory and the speed of claims with a million tasks in a queue", 0, func(cmd *cobra.Command, f *flags) {
		cmd.Flags().IntVar(&f.deep, "tasks", 1_000_000, "tasks in the queue")
		cmd.Flags().IntVar(&f.claimBatch, "claim", 100, "tasks in a claim")
	}, benchDepth},
}

// New returns the root command of pawl-bench.
func New(a *cli.App) *cobra.Command {
	cmd := cli.Group("pawl-bench", "Measure a server",
		`Measure a server. Each case prints one line of JSON with its rate, latency percentiles, and the CPU
time per task of the server and of this process, in microseconds. For comparison it also has what the
bare machine does: an empty gRPC call, and one synced write of 1.4 KiB.

Without --server (or PAWL_SERVER) a case starts a server of its own: the pawl beside this program, or
else on the PATH, on a temporary directory below --dir and a free local port. All numbers include syncing to
disk before every answer; a --dir in memory (tmpfs) makes them meaningless.

With --server the tasks go to a queue named bench-…, which is purged afterwards.`)
	cmd.Example = "  pawl-bench all\n  pawl-bench enqueue-parallel --producers 128 --duration 30s\n  pawl-bench work --server " +
		"10.0.0.5:7295 --plaintext"
	for _, c := range benchmarks {
		cmd.AddCommand(newBenchmark(a, c.use, c.short, c.flags, c))
	}
	for _, c := range sqsBenchmarks {
		cmd.AddCommand(newBenchmark(a, c.use, c.short, c.flags, c))
	}
	cmd.AddCommand(newBenchmark(a, "sqs", "All Amazon SQS cases", nil, sqsBenchmarks...))
	cmd.AddCommand(newBenchmark(a, "all", "All cases except SQS, one after the other, with their defaults", nil, benchmarks...))
	return a.Program(cmd)
}

func newBenchmark(a *cli.App, use, short string, own func(*cobra.Command, *flags), cases ...benchmark) *cobra.Command {
	var f flags
	cmd := &cobra.Command{Use: use, Short: short, Long: short + ".", Args: cli.NoArgs, Example: "  pawl-bench " + use}
	f.payload = 1 << 10
	cmd.Flags().Var(&f.payload, "payload", "bytes in a payload")
	cmd.Flags().StringVar(&f.dir, "dir", os.TempDir(), "directory for the benchmark's own server, on the disk to measure")
	cmd.Flags().IntVar(&f.pid, "server-pid", 0, "process id of the server of --server, to read its memory and CPU time, if it runs on "+
		"this machine")
	cli.PeriodVar(cmd.Flags(), &f.keep, "retention", time.Hour, "how long the tasks are kept once they have ended")
	switch {
	case len(cases) > 1:
		cli.PeriodVar(cmd.Flags(), &f.duration, "duration", 0, "how long to measure each timed case (default: its own)")
	case cases[0].duration > 0:
		cli.PeriodVar(cmd.Flags(), &f.duration, "duration", cases[0].duration, "how long to measure")
	}
	if own != nil {
		own(cmd, &f)
	}
	cmd.RunE = a.Run(func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		for _, c := range cases {
			g := f
			if !cmd.Flags().Changed("duration") {
				g.duration = c.duration
			}
			if len(cases) > 1 && c.flags != nil {
				c.flags(&cobra.Command{}, &g) // sets the defaults; the flags themselves are discarded
			}
			if err := runCase(a, cmd, c, g); err != nil {
				return fmt.Errorf("bench %s: %w", c.use, err)
			}
		}
		return nil
	})
	return cmd
}

func (f *flags) check() error {
	for name, n := range map[string]int{"producers": f.producers, "batch": f.batch, "tasks": f.tasks + f.deep, "slots": f.slots,
		"rate": f.rate, "claim": f.claimBatch, "server-pid": f.pid, "keys": f.keys, "quota": f.quota, "times": f.times} {
		if n < 0 {
			return cli.Usage("--%s %d is negative", name, n)
		}
	}
	if f.duration < 0 || f.keep < 0 {
		return cli.Usage("--duration and --retention can't be negative")
	}
	if f.payload < minBenchPayload {
		return cli.Usage("--payload %s is less than %d bytes", f.payload.String(), minBenchPayload)
	}
	return nil
}

// minBenchPayload is enough for the timestamp that the latency case puts into a payload.
const minBenchPayload = 8

// run is the environment of a case.
type run struct {
	flags
	app    *cli.App
	own    bool // the benchmark started the server itself
	client *pawl.Client
	queue  string
	group  string // of which the tasks are members; "": none
	random []byte // for payloads
}

// options returns the options of every task of the case.
func (r *run) options() []pawl.Option {
	all := []pawl.Option{pawl.Queue(r.queue), pawl.Retention(r.keep)}
	if r.group != "" {
		all = append(all, pawl.InGroup(r.group))
	}
	return all
}

const taskType = "bench"

// manyPayloads is how many payloads a case has. Each starts at its own offset in the same random bytes, so that neither
// one payload nor several in a row can be compressed.
const manyPayloads = 4 << 20

// task returns the next task of the case.
func (r *run) task() pawl.RawTask {
	at := rand.Int64N(manyPayloads)
	return pawl.RawTask{Type: taskType, Payload: r.random[at : at+int64(r.payload)], ContentType: "application/octet-stream"}
}

// runCase sets up a server, measures the bare machine and one case, and prints the line.
func runCase(a *cli.App, cmd *cobra.Command, c benchmark, f flags) (err error) {
	ctx, line := cmd.Context(), &result{Server: a.Server}
	if !cmd.Flags().Changed("server") && os.Getenv("PAWL_SERVER") == "" {
		if cmd.Flags().Changed("tls-ca") {
			return cli.Usage("--tls-ca %q needs --server: the benchmark's own server uses plaintext", a.TLSCA)
		}
		own, err := startServer(ctx, f.dir)
		if err != nil {
			return err
		}
		defer own.stop()
		a = a.Local(own.addr)
		f.pid, line.Server = own.cmd.Process.Pid, "own process on "+own.dir
	}
	client, err := a.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	r := &run{flags: f, app: a, own: line.Server != a.Server, client: client, queue: fmt.Sprintf("bench-%08x", rand.Uint32())}
	defer r.tidy(ctx)
	r.random = make([]byte, int64(f.payload)+manyPayloads)
	_, _ = rand.NewChaCha8([32]byte{}).Read(r.random) // never fails
	bare, err := measureBare(ctx, r, time.Second/2)
	if err != nil {
		return err
	}
	got, err := c.run(ctx, r)
	if err != nil {
		return err
	}
	got.Case, got.Server, got.Version, got.CPUs, got.Payload = c.use, line.Server, version.Version, runtime.NumCPU(), int64(f.payload)
	if got.Bare == nil {
		got.Bare = bare
	}
	if got.MemoryMB == 0 {
		got.MemoryMB = residentMB(f.pid)
	}
	return json.NewEncoder(a.Out).Encode(got)
}

// tidyTime bounds tidying up after an interrupt.
const tidyTime = 30 * time.Second

// tidy removes from the server what a case left there, even after an interrupt. It is best effort: retention removes the remaining tasks.
func (r *run) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	if _, err := r.app.Admin(r.client).WithReason("pawl-bench").Queues().Purge(ctx, r.queue); err == nil {
		_ = r.app.Admin(r.client).Queues().Delete(ctx, r.queue)
	}
}

// finish fills in a result.
func finish(unit, latencyOf, setting string, n int64, s spent, h *histogram) *result {
	line := &result{Unit: unit, Of: latencyOf, Setting: setting, Count: n, Seconds: round3(s.took.Seconds()),
		Rate: round3(float64(n) / s.took.Seconds()), CPU: s.perTask(n)}
	if h != nil {
		line.Latency = h.percentiles()
	}
	return line
}

func round3(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }
