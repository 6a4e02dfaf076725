package convert

import (
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

func OnceState(s pawlv1.OnceState) pawltype.OnceState {
	switch s {
	case pawlv1.OnceState_ONCE_STATE_RUN:
		return pawltype.OnceRun
	case pawlv1.OnceState_ONCE_STATE_DONE:
		return pawltype.OnceDone
	case pawlv1.OnceState_ONCE_STATE_FREE:
		return pawltype.OnceFree
	}
	return pawltype.OnceHeld // and so wait: a state of a later broker is not known here
}

func OnceAnswer(p *pawlv1.BeginOnceResponse) pawltype.OnceAnswer {
	h := p.GetHolder()
	return pawltype.OnceAnswer{State: OnceState(p.GetState()), Result: p.GetResult(), KeptUntil: Time(p.GetKeptUntil()),
		Holder:     pawltype.OnceHolder{TaskID: h.GetTaskId(), Worker: h.GetWorker(), Fence: h.GetFence()},
		RetryAfter: p.GetRetryAfter().AsDuration()}
}
