package apiproto

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// OnceTTL decodes how long the result of an effect is kept.
func OnceTTL(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return task.DefaultOnceTTL, nil
	}
	ttl, err := SpanOf("ttl", d)
	if err != nil {
		return 0, err
	}
	if ttl < minOnceTTL || ttl > task.MaxHold {
		return 0, task.Invalid("ttl", "%v is not between %v and %v", ttl, minOnceTTL, task.MaxHold)
	}
	return ttl, nil
}

const minOnceTTL = time.Second

// CheckOnceResult rejects a result of an effect that is no JSON, or is too large.
func CheckOnceResult(result []byte, l task.Limits) error {
	l.Payload = task.MaxOnceResult
	return CheckData("result", result, "", l)
}

// OnceStateProto converts the state of an effect.
func OnceStateProto(s broker.OnceState) pawlv1.OnceState {
	switch s {
	case broker.OnceRun:
		return pawlv1.OnceState_ONCE_STATE_RUN
	case broker.OnceDone:
		return pawlv1.OnceState_ONCE_STATE_DONE
	case broker.OnceHeld:
		return pawlv1.OnceState_ONCE_STATE_HELD
	case broker.OnceFree:
		return pawlv1.OnceState_ONCE_STATE_FREE
	}
	return pawlv1.OnceState_ONCE_STATE_UNSPECIFIED
}
