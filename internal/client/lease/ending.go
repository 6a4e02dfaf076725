package lease

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/internal/client/telemetry"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// MaxSettleItems is the broker's limit for one settle frame.
	MaxSettleItems = 1000
	// MaxSettleBytes keeps a frame well below rpc.MaxMessage: a result can be 1 MiB.
	MaxSettleBytes = 4 << 20
	// maxResult keeps an ack below rpc.MaxMessage: a larger one would break each stream that it is sent over. The broker's limit is lower.
	maxResult = rpc.MaxMessage - convert.MaxTaskOverhead
	// NotOurs is how long a task whose type has no handler here stays away from this worker.
	NotOurs = 30 * time.Second
)

// Ending is how a claim ends: exactly one field is set.
type Ending struct {
	ack     *pawlv1.AckRequest
	fail    *pawlv1.FailRequest
	release *pawlv1.ReleaseRequest
}

// Claim identifies the claim that a call is about.
type Claim struct{ TaskID, Type, Token string }

// EndingOf returns the ending for a handler's error. The result counts if err is nil.
func EndingOf(c Claim, result []byte, contentType string, err error) Ending {
	if err == nil {
		e := Ending{ack: AckRequest(c, result, contentType)}
		if n := len(result); n > maxResult {
			return e.Fallback(c, &pawltype.Error{Code: pawltype.ErrPayloadTooLarge, Field: "result",
				Message: fmt.Sprintf("result: %d bytes exceed the message limit of %d", n, rpc.MaxMessage)})
		}
		return e
	}
	if s := outcome.DirectiveOf(err); s != nil && s.Outcome == pawltype.OutcomeSnoozed {
		return Release(c, s.Delay)
	}
	return Fail(c, err)
}

// Fail returns the ending of a claim whose run failed.
func Fail(c Claim, err error) Ending { return Ending{fail: FailRequest(c, err)} }

// Release returns the ending of a claim that is given back.
func Release(c Claim, delay time.Duration) Ending { return Ending{release: ReleaseRequest(c, delay)} }

func AckRequest(c Claim, result []byte, contentType string) *pawlv1.AckRequest {
	return &pawlv1.AckRequest{TaskId: c.TaskID, ClaimToken: c.Token, Result: result, ContentType: convert.CutText(contentType, 256)}
}

func ReleaseRequest(c Claim, delay time.Duration) *pawlv1.ReleaseRequest {
	return &pawlv1.ReleaseRequest{TaskId: c.TaskID, ClaimToken: c.Token, Delay: convert.Duration(delay)}
}

func FailRequest(c Claim, err error) *pawlv1.FailRequest {
	req := &pawlv1.FailRequest{TaskId: c.TaskID, ClaimToken: c.Token, Error: convert.TaskError(err),
		Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_RETRY}
	s := outcome.DirectiveOf(err)
	if s == nil {
		return req
	}
	switch s.Outcome {
	case pawltype.OutcomeDead:
		req.Outcome = pawlv1.FailOutcome_FAIL_OUTCOME_DEAD
	case pawltype.OutcomeDiscarded:
		req.Outcome = pawlv1.FailOutcome_FAIL_OUTCOME_DISCARD
	case pawltype.OutcomePoisoned:
		req.Outcome = pawlv1.FailOutcome_FAIL_OUTCOME_POISON
	default:
		req.RetryIn = convert.Duration(s.Delay)
	}
	return req
}

func (e Ending) AddTo(req *pawlv1.SettleRequest) {
	switch {
	case e.ack != nil:
		req.Acks = append(req.Acks, e.ack)
	case e.fail != nil:
		req.Fails = append(req.Fails, e.fail)
	default:
		req.Releases = append(req.Releases, e.release)
	}
}

// Size returns the approximate bytes in a frame; an ack without a result, the most common ending, isn't measured.
func (e Ending) Size() int {
	switch {
	case e.ack != nil:
		return 256 + len(e.ack.Result)
	case e.fail != nil:
		return proto.Size(e.fail)
	default:
		return 256
	}
}

// Verb returns the name for logs.
func (e Ending) Verb() string {
	switch {
	case e.ack != nil:
		return "ack"
	case e.fail != nil:
		return "fail"
	default:
		return "release"
	}
}

// Fallback replaces an ending that the broker can't accept: a result that is too large makes a dead letter, since another run would only
// return it again; a delay out of bounds makes a plain failure.
func (e Ending) Fallback(c Claim, err *pawltype.Error) Ending {
	if e.ack != nil {
		return Fail(c, &outcome.Directive{Outcome: pawltype.OutcomeDead, Err: err})
	}
	return Fail(c, err)
}

// Operation returns the operation for its span.
func (e Ending) Operation() telemetry.Verb {
	switch {
	case e.ack != nil:
		return telemetry.VerbAck
	case e.fail != nil:
		return telemetry.VerbFail
	default:
		return telemetry.VerbRelease
	}
}
