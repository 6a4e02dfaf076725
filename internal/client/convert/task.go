package convert

import (
	"strconv"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func QueueName(t *pawlv1.TaskSpec) string {
	if t.GetQueue() == "" {
		return "default"
	}
	return t.GetQueue()
}

// MaxShard is the largest number of a shard.
const MaxShard = 1<<12 - 1

// ShardOf parses the shard from a task's id: a UUIDv7 whose three hexadecimal digits after the version are its number.
func ShardOf(id string) (shard uint32, ok bool) {
	if len(id) != 36 || id[13] != '-' || id[14] != '7' || id[18] != '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(id[15:18], 16, 32)
	return uint32(n), err == nil
}

func PriorityProto(p pawltype.Priority) (pawlv1.Priority, error) {
	return Number[pawlv1.Priority]("priority", p, priorityWords, "high, normal or low")
}

// The words of the enums, as in REST. Read only.
var (
	priorityWords = Words[pawltype.Priority](pawlv1.Priority_name, "PRIORITY_")
	stateWords    = Words[pawltype.State](pawlv1.State_name, "STATE_")
	statusWords   = Words[pawltype.Status](pawlv1.Status_name, "STATUS_")
	outcomeWords  = Words[pawltype.Outcome](pawlv1.Outcome_name, "OUTCOME_")
)

func Priority(p pawlv1.Priority) pawltype.Priority { return priorityWords[int32(p)] }

func State(s pawlv1.State) pawltype.State { return stateWords[int32(s)] }

func Status(s pawlv1.Status) pawltype.Status { return statusWords[int32(s)] }

func Outcome(o pawlv1.Outcome) pawltype.Outcome { return outcomeWords[int32(o)] }

// StatesProto converts the states in a field.
func StatesProto(field string, states []pawltype.State) (out []pawlv1.State, err error) {
	for _, s := range states {
		p, err := Number[pawlv1.State](field, s, stateWords, "a state")
		if err == nil && p == pawlv1.State_STATE_UNSPECIFIED {
			err = Invalid(field, "%q is not a state", s)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func Task(p *pawlv1.Task) *pawltype.Task {
	if p == nil {
		return nil
	}
	t := &pawltype.Task{
		ID: p.GetTaskId(), Type: p.GetType(), Queue: p.GetQueue(),
		Status: Status(p.GetStatus()), State: State(p.GetState()), Reason: p.GetReason(), Priority: Priority(p.GetPriority()),
		Payload: p.GetPayload(), ContentType: p.GetContentType(),
		Result: p.GetResult(), ResultContentType: p.GetResultContentType(),
		Attempts: int(p.GetAttempts()), MaxAttempts: int(p.GetMaxAttempts()),
		Failures: int(p.GetFailures()), Crashes: int(p.GetCrashes()), Releases: int(p.GetReleases()), Snoozes: int(p.GetSnoozes()),
		Fence:     p.GetFence(),
		Progress:  pawltype.Progress{Percent: p.GetProgress().GetPercent(), Message: p.GetProgress().GetMessage()},
		Worker:    p.GetWorker(),
		CreatedAt: Time(p.GetCreatedAt()), RunAt: Time(p.GetRunAt()), ClaimedAt: Time(p.GetClaimedAt()),
		LeaseExpiresAt: Time(p.GetLeaseExpiresAt()), EndedAt: Time(p.GetEndedAt()),
		ExpiresAt: Time(p.GetExpiresAt()), KeptUntil: Time(p.GetKeptUntil()),
		IdempotencyKey: p.GetIdempotencyKey(), Key: p.GetKey(), Tags: p.GetTags(), Headers: p.GetHeaders(),
		Retry: RetryPolicy(p.GetRetry()), Timeout: p.GetTimeout().AsDuration(), Retention: p.GetRetention().AsDuration(),
		Checkpoint: p.GetCheckpoint(), Cost: int(p.GetCost()),
		Unique: Unique(p.GetUnique()), WaitsFor: p.GetWaitsFor(), GroupID: p.GetGroupId(), Parent: Parent(p.GetParent()),
		Then: Followers(p.GetThen()), ETag: p.GetEtag(), MovedTo: p.GetMovedTo(), MovedFrom: p.GetMovedFrom(),
	}
	for _, a := range p.GetAttemptLog() {
		t.AttemptLog = append(t.AttemptLog, attempt(a))
	}
	return t
}

func attempt(p *pawlv1.Attempt) pawltype.Attempt {
	a := pawltype.Attempt{
		Attempt: int(p.GetAttempt()), Fence: p.GetFence(), Worker: p.GetWorker(),
		StartedAt: Time(p.GetStartedAt()), EndedAt: Time(p.GetEndedAt()),
		Outcome: Outcome(p.GetOutcome()),
		Waited:  p.GetWaited().AsDuration(), NextRunAt: Time(p.GetNextRunAt()),
	}
	if e := p.GetError(); e != nil {
		a.Error = &pawltype.Failure{Message: e.GetMessage(), Type: e.GetType(), Stack: e.GetStack()}
	}
	return a
}

func Tasks(items []*pawlv1.Task) []*pawltype.Task {
	out := make([]*pawltype.Task, len(items))
	for i, p := range items {
		out[i] = Task(p)
	}
	return out
}

func RetryPolicyProto(p pawltype.RetryPolicy) *pawlv1.RetryPolicy {
	out := &pawlv1.RetryPolicy{Initial: waitProto(p.Initial), Factor: p.Factor, Max: waitProto(p.Max)}
	switch {
	case p.Jitter == pawltype.NoJitter:
		out.Jitter = proto.Float64(0)
	case p.Jitter != 0:
		out.Jitter = proto.Float64(p.Jitter)
	}
	return out
}

func waitProto(d time.Duration) *durationpb.Duration {
	if d == pawltype.NoWait {
		return durationpb.New(0)
	}
	return Duration(d)
}

func waitOf(p *durationpb.Duration) time.Duration {
	if d := p.AsDuration(); p == nil || d != 0 {
		return d
	}
	return pawltype.NoWait
}

func RetryPolicy(p *pawlv1.RetryPolicy) pawltype.RetryPolicy {
	out := pawltype.RetryPolicy{Initial: waitOf(p.GetInitial()), Factor: p.GetFactor(), Max: waitOf(p.GetMax()), Jitter: p.GetJitter()}
	if p != nil && p.Jitter != nil && p.GetJitter() == 0 {
		out.Jitter = pawltype.NoJitter
	}
	return out
}

func UniqueProto(u pawltype.UniqueOpts) (*pawlv1.Unique, error) {
	states, err := StatesProto("unique.states", u.States)
	if err != nil {
		return nil, err
	}
	how, err := Number[pawlv1.OnConflict]("unique.on_conflict", u.OnConflict, onConflictWords, "keep, replace, keep_last or reject")
	if err != nil {
		return nil, err
	}
	return &pawlv1.Unique{Key: Text(u.Key), States: states, OnConflict: how}, nil
}

// Read only.
var onConflictWords = Words[pawltype.OnConflict](pawlv1.OnConflict_name, "ON_CONFLICT_")

func Unique(p *pawlv1.Unique) *pawltype.UniqueOpts {
	if p == nil {
		return nil
	}
	u := &pawltype.UniqueOpts{Key: p.GetKey(), OnConflict: onConflictWords[int32(p.GetOnConflict())]}
	for _, s := range p.GetStates() {
		u.States = append(u.States, State(s))
	}
	return u
}
