package task

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Spec is a producer's specification of a task. Zero values mean: not set.
type Spec struct {
	Type           string
	Payload        []byte
	ContentType    string // "" or "application/json": a JSON value
	Queue          string
	Priority       Priority
	Delay          time.Duration
	RunAt          time.Time
	IdempotencyKey string
	IdempotencyTTL time.Duration
	AnyContent     bool `json:",omitempty"` // a repeat of the idempotency key may have different content, and still finds the first task
	RequestID      ID   // a UUID of any version
	MaxAttempts    int
	Retry          *Retry
	Timeout        time.Duration
	ExpiresIn      time.Duration
	ExpiresAlways  bool `json:",omitempty"` // it expires also while it waits for another run, not only for its first
	Retention      *time.Duration
	Key            string
	Cost           int // tokens of rate limits that a claim takes; 0: 1
	Tags           []string
	Headers        map[string]string
	Unique         *Unique // nil: any number of tasks
	Then           []Spec  `json:",omitempty"` // enqueued when the task has succeeded
	Member         *Member `json:",omitempty"` // nil: it is in no group

	// Parent is what the task follows. It is not set by producers.
	Parent *Parent `json:",omitempty"`
	// Routed is the version of the queue's configuration by which the task's shard was chosen; 0: unknown. It is not set by producers.
	Routed uint64
	// Left says that by that version the task's slot has left the shard, which answers when its copy of the queue says so
	// too. It is not set by producers.
	Left bool `json:",omitempty"`
	// OlderKey is an idempotency key that the task may have been enqueued with before: then it is a repeat, if the
	// earlier task has the same Key. It is not set by producers.
	OlderKey string `json:",omitempty"`
	// OnlyFind asks a shard what the task's idempotency key or request stands for there. It creates nothing. It is not set by producers.
	OnlyFind bool `json:",omitempty"`
	// RequestTTL is the least time for which the request finds its task, if it may be repeated late. It is not set by producers.
	RequestTTL time.Duration
	// Moved describes the task that lives on as this one; nil: it is new. It is not set by producers.
	Moved *Moved `json:",omitempty"`
}

// Moved is what a task keeps when it is moved to another queue.
type Moved struct {
	From       ID
	Operation  ID // which moved it
	Checkpoint []byte
}

// Limits bound what callers can send. Those that operators may change are fields, the others constants.
type Limits struct {
	Payload     int // bytes of a payload or a result
	Name        int // bytes of a queue name, type, key, tag, idempotency key or worker
	Batch       int // tasks in one batch
	Headers     int // of a task
	HeaderBytes int // of all of them, with their names
}

// DefaultLimits returns the limits that apply unless an operator changes them.
func DefaultLimits() Limits {
	return Limits{Payload: 1 << 20, Name: 256, Batch: 1000, Headers: maxHeaders, HeaderBytes: MaxHeaderBytes}
}

// Fixed limits: the stored form or the engine's work per call depends on them.
const (
	MaxRun          = 24 * time.Hour // one run, including extensions
	MaxCheckpoint   = 64 << 10       // bytes
	MaxErrorText    = 8 << 10        // bytes of a message or a stack; longer ones are truncated
	MaxProgressText = 1 << 10        // bytes
	MaxClaim        = 1000           // tasks in one claim
	MaxClaimQueues  = 100            // queues in one claim
	MaxClaimTypes   = 1000           // types in one claim
	MaxWeight       = 1000           // of a queue or priority
	MinLease        = time.Second
	MaxLease        = 12 * time.Hour
	DefaultKeyTTL   = day
	MaxHold         = 365 * day // retention, idempotency keys and once keys
	MaxOnceResult   = 64 << 10  // bytes
	DefaultOnceTTL  = day

	MaxDelay       = 365 * day
	maxAttempts    = 1000
	MaxTags        = 32
	maxHeaders     = 64
	MaxHeaderBytes = 16 << 10
)

// DefaultQueue is the queue of a task that names none.
const DefaultQueue = "default"

// Fill sets defaults for fields that were not set, where they do not depend on the queue.
func (s *Spec) Fill() {
	if s.Queue == "" {
		s.Queue = DefaultQueue
	}
	if s.Priority == 0 {
		s.Priority = Normal
	}
	if s.IdempotencyKey != "" && s.IdempotencyTTL == 0 {
		s.IdempotencyTTL = DefaultKeyTTL
	}
	if s.Unique != nil {
		s.Unique = s.Unique.filled(s)
	}
	s.fillThen()
}

// Check refuses a filled spec that breaks a rule. The error names field, value and rule.
func (s *Spec) Check(l Limits) error {
	if err := s.checkOwn(l); err != nil {
		return err
	}
	return (&chainCheck{limits: l}).check("then", s.Then, 1)
}

// checkOwn is Check without the tasks that follow.
func (s *Spec) checkOwn(l Limits) error {
	if err := s.checkNames(l); err != nil {
		return err
	}
	if len(s.Payload) > l.Payload {
		return &Error{Code: CodePayloadTooLarge, Field: "payload",
			Message: Invalid("payload", "%d bytes, at most %d are allowed", len(s.Payload), l.Payload).Message}
	}
	if s.Priority < High || s.Priority > Low {
		return Invalid("priority", "%d is not high, normal or low", s.Priority)
	}
	if s.MaxAttempts < 0 || s.MaxAttempts > maxAttempts {
		return Invalid("max_attempts", "%d is not between 1 and %d", s.MaxAttempts, maxAttempts)
	}
	if s.Cost < 0 || s.Cost > MaxCost {
		return Invalid("cost", "%d is not between 1 and %d", s.Cost, MaxCost)
	}
	if s.Retry != nil {
		if err := s.Retry.Check("retry"); err != nil {
			return err
		}
	}
	if s.Unique != nil {
		if err := s.Unique.check(l); err != nil {
			return err
		}
	}
	return s.checkTimes()
}

func (s *Spec) checkNames(l Limits) error {
	if s.Type == "" {
		return Invalid("type", "is required")
	}
	for _, f := range []struct{ field, value string }{
		{"type", s.Type}, {"idempotency_key", s.IdempotencyKey}, {"key", s.Key}, {"content_type", s.ContentType},
	} {
		if err := CheckName(f.field, f.value, l); err != nil {
			return err
		}
	}
	if err := CheckQueue("queue", s.Queue, l); err != nil {
		return err
	}
	if len(s.Tags) > MaxTags {
		return Invalid("tags", "%d tags, at most %d are allowed", len(s.Tags), MaxTags)
	}
	for _, tag := range s.Tags {
		if tag == "" {
			return Invalid("tags", "a tag is empty")
		}
		if err := CheckName("tags", tag, l); err != nil {
			return err
		}
	}
	return checkHeaders(s.Headers, l)
}

func (s *Spec) checkTimes() error {
	switch {
	case s.Delay != 0 && !s.RunAt.IsZero():
		return Invalid("delay", "%v is given together with run_at: only one of them is allowed", s.Delay)
	case s.Delay < 0 || s.Delay > MaxDelay:
		return Invalid("delay", "%v is not between 0 and %v", s.Delay, MaxDelay)
	case !s.RunAt.IsZero() && (s.RunAt.Year() < 1970 || s.RunAt.Year() > 9999):
		return Invalid("run_at", "the year %d is not between 1970 and 9999", s.RunAt.Year())
	case s.Timeout < 0 || s.Timeout > MaxRun:
		return Invalid("timeout", "%v is not between 0 and %v", s.Timeout, MaxRun)
	case s.ExpiresIn < 0 || s.ExpiresIn > MaxDelay:
		return Invalid("expires_in", "%v is not between 0 and %v", s.ExpiresIn, MaxDelay)
	case s.IdempotencyTTL != 0 && s.IdempotencyKey == "":
		return Invalid("idempotency_ttl", "%v is given without idempotency_key", s.IdempotencyTTL)
	case s.IdempotencyTTL < 0 || s.IdempotencyTTL > MaxHold:
		return Invalid("idempotency_ttl", "%v is not between 0 and %v", s.IdempotencyTTL, MaxHold)
	}
	if s.Retention != nil {
		return checkRetention("retention", *s.Retention)
	}
	return nil
}

// CheckRunAt refuses a due time too far in the future.
func CheckRunAt(field string, at, now time.Time) error {
	if at.Sub(now) > MaxDelay {
		return Invalid(field, "%s is more than %v away", at.Format(time.RFC3339), MaxDelay)
	}
	return nil
}

// CheckName refuses a text that can't be part of a key: too long, not UTF-8, or with control characters.
func CheckName(field, value string, l Limits) error {
	if len(value) > l.Name {
		return Invalid(field, "%q has %d bytes, at most %d are allowed", clip(value), len(value), l.Name)
	}
	if !utf8.ValidString(value) {
		return Invalid(field, "%q is not UTF-8", clip(value))
	}
	if strings.ContainsFunc(value, unicode.IsControl) {
		return Invalid(field, "%q has a control character", clip(value))
	}
	return nil
}

// CheckQueue refuses a queue name that is unsuitable for a URL, a file or a metric's label.
func CheckQueue(field, name string, l Limits) error {
	if name == "" {
		return Invalid(field, "is required")
	}
	if len(name) > l.Name {
		return Invalid(field, "%q has %d bytes, at most %d are allowed", clip(name), len(name), l.Name)
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-:", c) >= 0) {
			return Invalid(field, "%q has a character other than letters, digits and . _ - :", clip(name))
		}
	}
	if name == "." || name == ".." {
		return Invalid(field, "%q is not a name", name)
	}
	return nil
}

// CheckLease refuses a lease that is out of bounds.
func CheckLease(field string, d time.Duration) error {
	if d < MinLease || d > MaxLease {
		return Invalid(field, "%v is not between %v and %v", d, MinLease, MaxLease)
	}
	return nil
}

func checkRetention(field string, d time.Duration) error {
	if d < 0 || d > MaxHold {
		return Invalid(field, "%v is not between 0 and %v", d, MaxHold)
	}
	return nil
}

func checkHeaders(headers map[string]string, l Limits) error {
	if len(headers) > l.Headers {
		return Invalid("headers", "%d headers, at most %d are allowed", len(headers), l.Headers)
	}
	size := 0
	for name, value := range headers {
		size += len(name) + len(value)
		if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
			return Invalid("headers", "%q is not a name", clip(name))
		}
		if !utf8.ValidString(value) {
			return Invalid("headers", "the value of %q is not UTF-8", clip(name))
		}
	}
	if size > l.HeaderBytes {
		return Invalid("headers", "%d bytes, at most %d are allowed", size, l.HeaderBytes)
	}
	return nil
}

// Cut truncates a text to at most n bytes of valid UTF-8. Texts from handlers are truncated, not refused: a failure must not be
// lost because its stack is long.
func Cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

const specVersion = 1

// EncodeSpec returns the stored form of a spec.
func EncodeSpec(s *Spec) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // only finite numbers and years below 10,000 pass Check
	}
	return append([]byte{specVersion}, b...)
}

// DecodeSpec is the inverse of EncodeSpec.
func DecodeSpec(b []byte) (s Spec, err error) {
	if len(b) == 0 || b[0] != specVersion {
		return s, fmt.Errorf("spec of %d bytes: unknown format", len(b))
	}
	if err := json.Unmarshal(b[1:], &s); err != nil {
		return s, fmt.Errorf("spec: %w", err)
	}
	return s, nil
}
