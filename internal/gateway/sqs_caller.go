package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/sqs"
	"github.com/pawlq/pawl/internal/sqs/sigv4"
	"github.com/pawlq/pawl/internal/task"
)

// sqsCaller is who makes a call at the SQS door: known by the access key of a token, or by a token itself. What admit does at once it does
// step by step, since a signature covers the body, and a form names its action there.
type sqsCaller struct {
	g         *Gateway
	c         *call
	ctx       context.Context
	signature *sigv4.Signature // nil: none is to be verified
	secret    string           // of its access key
	entered   bool
	stay      func() // nil: it does not last
}

// signedHeaders decide what a call does: they must be signed.
var signedHeaders = []string{"X-Amz-Target", headerNamespace}

// enter finds out who says to be calling, and takes a place among the calls of the namespace. The body is not touched: only callers with
// an access key that is good have theirs read.
func (s *sqsCaller) enter(ctx context.Context) (context.Context, error) {
	g, c := s.g, s.c
	shows := shownByREST(c.web)
	v, err := s.visitor(shows)
	if err != nil {
		g.refused(ctx, c, err, s.signed() || len(shows.tokens) > 0)
		return ctx, err
	}
	if c.namespace, err = g.namespace(v, shows); err != nil {
		return ctx, err
	}
	if ok, own := g.calls.TryAcquire(c.namespace); !ok {
		return ctx, tooManyCalls(g.calls, own)
	}
	s.entered = true
	c.visitor, s.ctx = v, task.WithScope(ctx, v.Scope())
	return s.ctx, nil
}

func (s *sqsCaller) signed() bool { return sigv4.IsSigned(s.c.web) }

func (s *sqsCaller) visitor(shows shown) (visitor, error) {
	if !s.signed() || !s.g.keeper.On() { // any signature will do where no token is wanted
		v, err := s.g.visitor(shows)
		if e, ok := task.AsError(err); ok && e.Code == task.CodeUnauthenticated && len(shows.tokens) == 0 {
			own := *e
			own.Reason = sqs.ReasonUnsigned
			err = &own
		}
		return v, err
	}
	signature, err := sigv4.Parse(s.c.web)
	if err != nil {
		return visitor{}, unsigned(err)
	}
	v, secret, err := s.g.keeper.FindSigner(signature.AccessKey)
	if err != nil {
		return visitor{}, err
	}
	if v != auth.Anybody {
		s.signature, s.secret = signature, secret
	}
	return visitor{Visitor: v}, nil
}

// unsigned is an error of a signature as a refusal.
func unsigned(err error) error {
	e, ok := errors.AsType[*sigv4.Error](err)
	if !ok {
		return err
	}
	return &task.Error{Code: task.CodeUnauthenticated, Reason: e.Code, Message: e.Message}
}

// Verify implements sqs.Caller.
func (s *sqsCaller) Verify(body []byte) error {
	if s.signature == nil {
		return nil
	}
	wrong := s.signature.Verify(s.c.web, body, s.secret, time.Now(), signedHeaders...)
	s.g.keeper.Signed(s.c.visitor.Visitor, wrong)
	if wrong == nil {
		return nil
	}
	err := unsigned(wrong)
	s.c.visitor = visitor{Visitor: auth.Anybody} // it is not known who it was
	s.g.refused(s.ctx, s.c, err, true)
	return err
}

// May implements sqs.Caller.
func (s *sqsCaller) May(action string) (context.Context, error) {
	g, c, n := s.g, s.c, sqsNeeds[action]
	c.method = action
	if err := c.visitor.may(n); err != nil {
		g.keeper.Denied()
		g.refused(s.ctx, c, err, false)
		return s.ctx, err
	}
	if n.countsAsRequest(c.visitor) {
		if err := g.rates.take(c.namespace, g.keeper.Quotas(c.namespace), 1, 0); err != nil {
			return s.ctx, err
		}
	}
	if n.lasts { // also while no token is wanted: that may change
		s.ctx, s.stay = g.keeper.Stay(s.ctx, c.visitor.Visitor, c.visitor.certificate)
	}
	return s.ctx, nil
}

func (s *sqsCaller) leave() {
	if s.stay != nil {
		s.stay()
	}
	if s.entered {
		s.g.calls.Release(s.c.namespace)
	}
}
