package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// api is one way to call the node. Each method makes one call and does not modify its arguments. A refused call returns
// a *refusal, whatever form the refusal came in. Other errors are the test's own.
type api interface {
	producer
	worker
	operator
	explainAPI
	scheduler
	breakers
	groupsAPI
}

type producer interface {
	Enqueue(ctx context.Context, s spec) (accepted, error)
	EnqueueMany(ctx context.Context, specs []spec) ([]accepted, error)
	Get(ctx context.Context, id string) (view, error)
	// WaitResult is Get that waits up to wait for the task's end.
	WaitResult(ctx context.Context, id string, wait span) (view, error)
	List(ctx context.Context, f filter, p part) (page, error)
	Cancel(ctx context.Context, id string) (view, error)
	Update(ctx context.Context, id string, e edit) (view, error)
}

type worker interface {
	Claim(ctx context.Context, c claimCall) ([]claim, error)
	Ack(ctx context.Context, h hold, r result) error
	Fail(ctx context.Context, h hold, f failing) (settled, error)
	Extend(ctx context.Context, h hold, e extension) (leaseExpiresAt time.Time, err error)
	// Release with a delay is a snooze.
	Release(ctx context.Context, h hold, delay span) (settled, error)
	// Settle is the batch form: each item has its own answer.
	Settle(ctx context.Context, items []settlement) ([]settled, error)
	onceAPI
}

type operator interface {
	Queue(ctx context.Context, name string) (queueInfo, error)
	Queues(ctx context.Context, p part) (names []string, next string, err error)
	PutQueue(ctx context.Context, name string, s settings) (queueInfo, error)
	DeleteQueue(ctx context.Context, name string) error
	Pause(ctx context.Context, name string, of pause) (queueInfo, error)
	Resume(ctx context.Context, name string, of pause) (queueInfo, error)
	Purge(ctx context.Context, name string) (discarded int64, err error)

	// Dead lists the dead letters of the filter's queue, and Poisoned its poisoned tasks.
	Dead(ctx context.Context, f filter, p part) (page, error)
	Poisoned(ctx context.Context, f filter, p part) (page, error)
	DeadGroups(ctx context.Context, queue string) ([]group, error)

	Retry(ctx context.Context, id string) (view, error)
	RunNow(ctx context.Context, id string) (view, error)
	Discard(ctx context.Context, id string) (view, error)
}

// refusal is what a program can see of a refused call. Two refusals are equal if everything but their texts is.
type refusal struct {
	Code       string `json:"code"`
	Reason     string `json:"reason"`
	Field      string `json:"field"`
	Holder     string `json:"holder"`
	State      string `json:"state"`
	RetryAfter span   `json:"retry_after"`
	Text       string `json:"-"` // for people
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Text) }

// stamped adds to err what is wrong with the stamp of an answer: shard, log index and time. An answer may have no stamp
// if no shard was asked.
func stamped(call string, err error, field func(name string) string) error {
	shardless := mayAskNoShard[call] || strings.HasPrefix(call, "DELETE /queues/") || strings.Contains(call, " /workers") ||
		accessCalls.MatchString(call)
	if r, refused := errors.AsType[*refusal](err); refused {
		shardless = shardless || !decidedByShard[r.Code]
	}
	for _, name := range []string{"Pawl-Shard", "Pawl-Index", "Pawl-Time"} {
		if field(name) == "" && !shardless {
			return errors.Join(fmt.Errorf("the answer to %s has no %s", call, name), err)
		}
	}
	shards := strings.Split(field("Pawl-Shard"), ", ")
	times := strings.Split(field("Pawl-Time"), ", ")
	for _, at := range times {
		if _, bad := time.Parse(time.RFC3339Nano, at); bad != nil && field("Pawl-Time") != "" || len(times) != len(shards) {
			return errors.Join(fmt.Errorf("the answer to %s tells the times %q of the shards %q", call, times, shards), err)
		}
	}
	return err
}

// mayAskNoShard are the calls that may not need a shard. Missing here: the deletion of a queue, whose answer has no
// stamp although a shard was asked.
var mayAskNoShard = map[string]bool{
	"GET /queues": true, "*pawlv1.ListQueuesRequest": true, "POST /tasks/batch": true, "*pawlv1.EnqueueBatchRequest": true,
	"*pawlv1.DeleteQueueRequest": true,
	"*pawlv1.ListWorkersRequest": true, "*pawlv1.GetWorkerRequest": true, "*pawlv1.QuietWorkerRequest": true,
	"*pawlv1.ResumeWorkerRequest": true,
}

// decidedByShard are the refusals that only a shard can decide on.
var decidedByShard = map[string]bool{"conflict": true, "stale_claim": true, "wrong_state": true, "queue_full": true}

// span is a duration, "1m30s" in JSON.
type span time.Duration

const (
	millisecond = span(time.Millisecond)
	second      = span(time.Second)
	minute      = span(time.Minute)
	hour        = span(time.Hour)
	day         = 24 * hour
)

func (s span) std() time.Duration           { return time.Duration(s) }
func (s span) String() string               { return s.std().String() }
func (s span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *span) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	*s = span(d)
	return err
}

// spec is a task to enqueue. Zero fields are omitted.
type spec struct {
	Type           string            `json:"type,omitempty"`
	Payload        string            `json:"-"` // the payload's bytes
	ContentType    string            `json:"content_type,omitempty"`
	Queue          string            `json:"queue,omitempty"`
	Priority       string            `json:"priority,omitempty"`
	Delay          span              `json:"delay,omitempty"`
	RunAt          time.Time         `json:"run_at,omitzero"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	IdempotencyTTL span              `json:"idempotency_ttl,omitempty"`
	RequestID      string            `json:"request_id,omitempty"`
	MaxAttempts    int               `json:"max_attempts,omitempty"`
	Retry          retry             `json:"retry,omitzero"`
	Timeout        span              `json:"timeout,omitempty"`
	ExpiresIn      span              `json:"expires_in,omitempty"`
	Retention      *span             `json:"retention,omitempty"`
	Key            string            `json:"key,omitempty"`
	Cost           int               `json:"cost,omitempty"`
	Unique         *unique           `json:"unique,omitempty"`
	Tags           []string          `json:"tags,omitempty"`
	Headers        map[string]string `json:"headers,omitempty"`
	Then           []spec            `json:"then,omitempty"`
}

// retry is a retry policy. In requests zero fields are omitted, and a jitter of noJitter means none.
type retry struct {
	Initial span    `json:"initial"`
	Factor  float64 `json:"factor"`
	Max     span    `json:"max"`
	Jitter  float64 `json:"jitter"`
}

const noJitter = -1

// MarshalJSON returns the form used in requests.
func (r retry) MarshalJSON() ([]byte, error) {
	out := map[string]any{}
	if r.Initial != 0 {
		out["initial"] = r.Initial
	}
	if r.Factor != 0 {
		out["factor"] = r.Factor
	}
	if r.Max != 0 {
		out["max"] = r.Max
	}
	if r.Jitter != 0 {
		out["jitter"] = r.jitter()
	}
	return json.Marshal(out)
}

func (r retry) jitter() float64 {
	if r.Jitter == noJitter {
		return 0
	}
	return r.Jitter
}

// accepted is the answer for one enqueued task.
type accepted struct {
	ID        string    `json:"task_id"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	Duplicate bool      `json:"duplicate"`
	Err       error     `json:"-"` // of one task in a batch: a *refusal
}

// view is everything that the API shows of a task.
type view struct {
	ID             string            `json:"task_id"`
	Type           string            `json:"type"`
	Queue          string            `json:"queue"`
	Status         string            `json:"status"`
	State          string            `json:"state"`
	Reason         string            `json:"reason"`
	Priority       string            `json:"priority"`
	Payload        string            `json:"-"`
	ContentType    string            `json:"content_type"`
	Result         string            `json:"-"`
	ResultType     string            `json:"result_content_type"`
	Attempts       int               `json:"attempts"`
	MaxAttempts    int               `json:"max_attempts"`
	Failures       int               `json:"failures"`
	Crashes        int               `json:"crashes"`
	Releases       int               `json:"releases"`
	Snoozes        int               `json:"snoozes"`
	Fence          int64             `json:"fence"`
	Log            []attempt         `json:"attempt_log"`
	Progress       progress          `json:"progress"`
	Checkpoint     []byte            `json:"checkpoint"`
	Worker         string            `json:"worker"`
	CreatedAt      time.Time         `json:"created_at"`
	RunAt          time.Time         `json:"run_at"`
	ClaimedAt      time.Time         `json:"claimed_at"`
	LeaseExpiresAt time.Time         `json:"lease_expires_at"`
	EndedAt        time.Time         `json:"ended_at"`
	ExpiresAt      time.Time         `json:"expires_at"`
	KeptUntil      time.Time         `json:"kept_until"`
	IdempotencyKey string            `json:"idempotency_key"`
	Key            string            `json:"key"`
	Tags           []string          `json:"tags"`
	Headers        map[string]string `json:"headers"`
	Retry          retry             `json:"retry"`
	Timeout        span              `json:"timeout"`
	Retention      span              `json:"retention"`
	Unique         *unique           `json:"unique"`
	WaitsFor       string            `json:"waits_for"`
	GroupID        string            `json:"group_id"`
	Parent         *parent           `json:"parent"`
	Then           []follower        `json:"then"`
	MovedTo        string            `json:"moved_to"`
	MovedFrom      string            `json:"moved_from"`
	ETag           string            `json:"etag"`
}

// attempt is an entry of a task's attempt log.
type attempt struct {
	Attempt   int       `json:"attempt"`
	Fence     int64     `json:"fence"`
	Worker    string    `json:"worker"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Outcome   string    `json:"outcome"` // "" while it runs
	Error     failure   `json:"error"`
	Waited    span      `json:"waited"`
	NextRunAt time.Time `json:"next_run_at"`
}

// failure is a handler's error.
type failure struct {
	Message string `json:"message,omitempty"`
	Type    string `json:"type,omitempty"`
}

type progress struct {
	Percent float64 `json:"percent"`
	Message string  `json:"message,omitempty"`
}

// part selects a part of a list.
type part struct {
	Limit       int
	Cursor      string
	WithPayload bool // implied for dead letters
}

type page struct {
	Items []view
	Next  string
}

// filter selects tasks. Zero fields are omitted.
type filter struct {
	Queue         string    `json:"queue,omitempty"`
	States        []string  `json:"state,omitempty"`
	Type          string    `json:"type,omitempty"`
	Tag           string    `json:"tag,omitempty"`
	Key           string    `json:"key,omitempty"`
	Worker        string    `json:"worker,omitempty"`
	Error         string    `json:"error,omitempty"`
	Fingerprint   string    `json:"fingerprint,omitempty"`
	Operation     string    `json:"operation,omitempty"`
	CreatedAfter  time.Time `json:"created_after,omitzero"`
	CreatedBefore time.Time `json:"created_before,omitzero"`
	Text          string    `json:"q,omitempty"`
	Payload       []string  `json:"payload,omitempty"` // path:value
}

// fields returns the paths and values of the payload conditions.
func (f filter) fields() (all [][2]string) {
	for _, c := range f.Payload {
		path, value, _ := strings.Cut(c, ":")
		all = append(all, [2]string{path, value})
	}
	return all
}

// edit is a change of a waiting task. Zero fields are unchanged.
type edit struct {
	RunAt       time.Time       `json:"run_at,omitzero"`
	Priority    string          `json:"priority,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	MaxAttempts int             `json:"max_attempts,omitempty"`
	IfETag      string          `json:"if_etag,omitempty"`
}

// claimCall is a claim: Queues in strict order, or Weights.
type claimCall struct {
	Queues   []string
	Weights  map[string]int
	Types    []string
	Max      int
	MaxBytes int
	Lease    span
	Wait     span
	Worker   string
	Key      string
	Runs     bool
}

// hold identifies a claim.
type hold struct{ ID, Token string }

// claim is a task as its worker gets it.
type claim struct {
	ID             string            `json:"task_id"`
	Type           string            `json:"type"`
	Queue          string            `json:"queue"`
	Payload        string            `json:"-"`
	ContentType    string            `json:"content_type"`
	Priority       string            `json:"priority"`
	Attempt        int               `json:"attempt"`
	MaxAttempts    int               `json:"max_attempts"`
	Token          string            `json:"claim_token"`
	Fence          int64             `json:"fence"`
	LeaseExpiresAt time.Time         `json:"lease_expires_at"`
	Lease          span              `json:"lease"`
	Timeout        span              `json:"timeout"`
	Headers        map[string]string `json:"headers"`
	Checkpoint     []byte            `json:"checkpoint"`
	CreatedAt      time.Time         `json:"created_at"`
	ReadyAt        time.Time         `json:"ready_at"`
	Key            string            `json:"key"`
	Tags           []string          `json:"tags"`
	IdempotencyKey string            `json:"idempotency_key"`
	GroupID        string            `json:"group_id"`
	Parent         *parent           `json:"parent"`
}

func (c claim) hold() hold { return hold{c.ID, c.Token} }

type result struct{ Data, ContentType string }

// failing is the failure of a run. Outcome "" means retry.
type failing struct {
	Message string
	Outcome string
	RetryIn span
}

// failureType is the type of all failures here. The SDK derives it from the type of the Go error; the other APIs are given it.
const failureType = "conformance.handlerError"

type handlerError string

func (e handlerError) Error() string { return string(e) }

// extension extends a lease and reports progress. Zero fields are omitted.
type extension struct {
	Lease      span
	Progress   *progress
	Checkpoint []byte
}

// settled is the answer to a call that ended a claim.
type settled struct {
	State     string    `json:"state"`
	NextRunAt time.Time `json:"next_run_at"`
	Err       error     `json:"-"` // of one item in a batch: a *refusal
}

// settlement is an item of a batch: an ack, unless it fails or is released.
type settlement struct {
	hold
	Result  result
	Fail    *failing
	Release bool
}

// settings are a queue's rules. In requests zero fields are omitted.
type settings struct {
	Weights     weights   `json:"weights,omitzero"`
	Retry       retry     `json:"retry,omitzero"`
	MaxAttempts int       `json:"max_attempts,omitempty"`
	Lease       span      `json:"lease,omitempty"`
	Timeout     span      `json:"timeout,omitempty"`
	Retention   retention `json:"retention,omitzero"`
	MaxLength   int64     `json:"max_length,omitempty"`
	MaxWait     span      `json:"max_wait,omitempty"`
	KeyOrder    string    `json:"key_order,omitempty"`
	limits
	PerKey   *limits             `json:"per_key,omitempty"`
	Breaker  *breaker            `json:"breaker,omitempty"`
	Breakers map[string]breaker  `json:"breakers,omitempty"`
	Keys     map[string]keyRules `json:"keys,omitempty"`
}

type limits struct {
	MaxRunning int   `json:"max_running,omitempty"`
	Rate       *rate `json:"rate,omitempty"`
}

type rate struct {
	Limit  int  `json:"limit"`
	Period span `json:"period"`
	Burst  int  `json:"burst"`
}

type keyRules struct {
	limits
	Weight int `json:"weight,omitempty"`
}

// pause is a pause of a queue, or of one of its types or keys.
type pause struct {
	Reason string `json:"reason,omitempty"`
	Type   string `json:"type,omitempty"`
	Key    string `json:"key,omitempty"`
}

// held is a pause of one type or key, as shown.
type held struct {
	pause
	By string    `json:"by"`
	At time.Time `json:"at"`
}

type weights struct {
	High   int `json:"high"`
	Normal int `json:"normal"`
	Low    int `json:"low"`
}

type retention struct {
	Succeeded span `json:"succeeded,omitempty"`
	Discarded span `json:"discarded,omitempty"`
	Cancelled span `json:"cancelled,omitempty"`
	Dead      span `json:"dead,omitempty"`
	Poisoned  span `json:"poisoned,omitempty"`
}

type queueInfo struct {
	Queue        string    `json:"queue"`
	Paused       bool      `json:"paused"`
	PausedReason string    `json:"paused_reason"`
	PausedBy     string    `json:"paused_by"`
	PausedAt     time.Time `json:"paused_at"`
	Holds        []held    `json:"holds"`
	Breakers     []broken  `json:"breakers"`
	BreakersOpen int       `json:"breakers_open"`
	Depth        depth     `json:"depth"`
	Ready        byPrio    `json:"ready_by_priority"`
	OldestReady  float64   `json:"oldest_ready_age_seconds"`
	lately
	Settings  settings  `json:"settings"`
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
}

// lately has the fields of a queue in REST that come from the statistics, which have their own stories.
type lately struct {
	Rates passedOver `json:"rates"`
	Wait  passedOver `json:"wait"`
	Run   passedOver `json:"run"`
	Drain passedOver `json:"drain_seconds"`
	Staff passedOver `json:"workers"`
}

// passedOver is a field that is ignored.
type passedOver struct{}

func (*passedOver) UnmarshalJSON([]byte) error { return nil }

type depth struct {
	Scheduled int64 `json:"scheduled"`
	Ready     int64 `json:"ready"`
	Claimed   int64 `json:"claimed"`
	Retrying  int64 `json:"retrying"`
	Held      int64 `json:"held"`
	Dead      int64 `json:"dead"`
	Poisoned  int64 `json:"poisoned"`
}

type byPrio struct {
	High   int64 `json:"high"`
	Normal int64 `json:"normal"`
	Low    int64 `json:"low"`
}

// group is dead letters with the same error.
type group struct {
	Fingerprint string    `json:"fingerprint"`
	Type        string    `json:"type"`
	Message     string    `json:"message"`
	Count       int64     `json:"count"`
	FirstAt     time.Time `json:"first_at"`
	LastAt      time.Time `json:"last_at"`
	Sample      string    `json:"sample_task_id"`
	Queues      int       `json:"queues"`
	Queue       string    `json:"queue"`
	Trend       []int64   `json:"trend"`
}
