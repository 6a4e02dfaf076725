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

// sqsCaller is the caller of an SQS action, identified by a token's access key or by a token itself. It does step by step what
// admit does in one, since a signature covers the body, and a form names its action there.
type sqsCaller struct {
	g         *Gateway
	c         *call
	ctx       context.Context
	signature *sigv4.Signature // nil: there is none to verify
	secret    string           // of the access key
	entered   bool
	stay      func() // nil: not a long call
}

// signedHeaders change what a call does: they must be signed.
var signedHeaders = []string{"X-Amz-Target", headerNamespace}

// enter identifies the alleged caller, and takes a slot among the calls of the namespace. It does not touch the body: only the
// bodies of callers with a valid access key are read.
func (s *sqsCaller) enter(ctx context.Context) (context.Context, error) {
	g, c := s.g, s.c
	shows := restCredentials(c.web)
	v, err := s.authenticate(shows)
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
	c.principal, s.ctx = v, task.WithScope(ctx, v.Scope())
	return s.ctx, nil
}

func (s *sqsCaller) signed() bool { return sigv4.IsSigned(s.c.web) }

func (s *sqsCaller) authenticate(shows callCredentials) (principal, error) {
	if !s.signed() || !s.g.auth.TokensRequired() { // any signature will do where no token is required
		v, err := s.g.authenticate(shows)
		if e, ok := task.AsError(err); ok && e.Code == task.CodeUnauthenticated && len(shows.tokens) == 0 {
			own := *e
			own.Reason = sqs.ReasonUnsigned
			err = &own
		}
		return v, err
	}
	signature, err := sigv4.Parse(s.c.web)
	if err != nil {
		return principal{}, unsigned(err)
	}
	v, secret, err := s.g.auth.FindSigner(signature.AccessKey)
	if err != nil {
		return principal{}, err
	}
	if v != auth.Anonymous {
		s.signature, s.secret = signature, secret
	}
	return principal{Principal: v}, nil
}

// unsigned converts an error of a signature to a refusal.
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
	s.g.auth.SignatureChecked(s.c.principal.Principal, wrong)
	if wrong == nil {
		return nil
	}
	err := unsigned(wrong)
	s.c.principal = principal{Principal: auth.Anonymous} // it is not known who it was
	s.g.refused(s.ctx, s.c, err, true)
	return err
}

// Authorize implements sqs.Caller.
func (s *sqsCaller) Authorize(action string) (context.Context, error) {
	g, c, n := s.g, s.c, sqsNeeds[action]
	c.method = action
	if err := c.principal.may(n); err != nil {
		g.auth.Denied()
		g.refused(s.ctx, c, err, false)
		return s.ctx, err
	}
	if n.countsAsRequest(c.principal) {
		if err := g.rates.take(c.namespace, g.auth.Quotas(c.namespace), 1, 0); err != nil {
			return s.ctx, err
		}
	}
	if n.lasts { // also while no token is required: that may change
		s.ctx, s.stay = g.auth.Track(s.ctx, c.principal.Principal, c.principal.certificate)
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
