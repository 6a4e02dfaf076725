package pawl

import (
	"time"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// maxSettleItems is the broker's limit of one settle frame.
	maxSettleItems = 1000
	// maxSettleBytes keeps a frame well below maxMessage: results may be 1 MiB each.
	maxSettleBytes = 4 << 20
	// notOurs is how long a task of a type that nobody here knows stays away from this worker.
	notOurs = 30 * time.Second
)

// ending is how a claim ends: exactly one field is set.
type ending struct {
	ack     *pawlv1.AckRequest
	fail    *pawlv1.FailRequest
	release *pawlv1.ReleaseRequest
}

// endingOf says what a handler's return means.
func endingOf(c *Claim, err error) ending {
	if err == nil {
		return ending{ack: ackOf(c)}
	}
	if s := steerOf(err); s != nil && s.outcome == OutcomeSnoozed {
		return ending{release: releaseOf(c, s.delay)}
	}
	return ending{fail: failOf(c, err)}
}

func ackOf(c *Claim) *pawlv1.AckRequest {
	return &pawlv1.AckRequest{TaskId: c.ID, ClaimToken: c.Token, Result: c.result, ContentType: cutText(c.resultType, 256)}
}

func releaseOf(c *Claim, delay time.Duration) *pawlv1.ReleaseRequest {
	return &pawlv1.ReleaseRequest{TaskId: c.ID, ClaimToken: c.Token, Delay: durationOrNil(delay)}
}

func failOf(c *Claim, err error) *pawlv1.FailRequest {
	req := &pawlv1.FailRequest{TaskId: c.ID, ClaimToken: c.Token, Error: taskErrorOf(err), Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_RETRY}
	s := steerOf(err)
	if s == nil {
		return req
	}
	switch s.outcome {
	case OutcomeDead:
		req.Outcome = pawlv1.FailOutcome_FAIL_OUTCOME_DEAD
	case OutcomeDiscarded:
		req.Outcome = pawlv1.FailOutcome_FAIL_OUTCOME_DISCARD
	case OutcomePoisoned:
		req.Outcome = pawlv1.FailOutcome_FAIL_OUTCOME_POISON
	default:
		req.RetryIn = durationOrNil(s.delay)
	}
	return req
}

func (e ending) addTo(req *pawlv1.SettleRequest) {
	switch {
	case e.ack != nil:
		req.Acks = append(req.Acks, e.ack)
	case e.fail != nil:
		req.Fails = append(req.Fails, e.fail)
	case e.release != nil:
		req.Releases = append(req.Releases, e.release)
	}
}

// size is about how many bytes it takes in a frame; an ack without a result, the most common ending, isn't measured.
func (e ending) size() int {
	switch {
	case e.ack != nil:
		return 256 + len(e.ack.Result)
	case e.fail != nil:
		return proto.Size(e.fail)
	default:
		return 256
	}
}

// verb is for logs.
func (e ending) verb() string {
	switch {
	case e.ack != nil:
		return "ack"
	case e.fail != nil:
		return "fail"
	default:
		return "release"
	}
}
