package access

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/sqs"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// SQSCaller is the caller of an SQS action, identified by a token's access key or by a token itself. It does step by step what
// admit does in one, since a signature covers the body, and a form names its action there.
type SQSCaller struct {
	g         *Guard
	c         *callinfo.Call
	ctx       context.Context
	signature *wire.Signature // nil: there is none to verify
	secret    string          // of the access key
	entered   bool
	stay      func() // nil: not a long call
}

// NewSQSCaller returns the caller of an action, who has not entered yet. The caller of this function must call leave at its end.
func NewSQSCaller(g *Guard, c *callinfo.Call) *SQSCaller { return &SQSCaller{g: g, c: c} }

// signedHeaders change what a call does: they must be signed.
var signedHeaders = []string{"X-Amz-Target", headerNamespace}

// Enter identifies the alleged caller, and takes a slot among the calls of the namespace. It does not touch the body: only the
// bodies of callers with a valid access key are read.
func (s *SQSCaller) Enter(ctx context.Context) (context.Context, error) {
	g, c := s.g, s.c
	shows := restCredentials(c.Web)
	v, err := s.authenticate(shows)
	if err == nil {
		if !s.signed() { // otherwise it is not known yet who it is
			c.Principal = v
		}
		c.Namespace, err = g.namespace(v, shows)
	}
	if err != nil {
		g.refused(ctx, c, err, s.signed() || len(shows.tokens) > 0)
		return ctx, err
	}
	if ok, own := g.Calls.TryAcquire(c.Namespace); !ok {
		return ctx, tooManyCalls(g.Calls, own)
	}
	s.entered = true
	c.Principal, s.ctx = v, task.WithScope(ctx, v.Scope())
	return s.ctx, nil
}

func (s *SQSCaller) signed() bool { return wire.IsSigned(s.c.Web) }

func (s *SQSCaller) authenticate(shows Credentials) (callinfo.Principal, error) {
	if !s.signed() || !s.g.auth.TokensRequired() { // any signature will do where no token is required
		v, err := s.g.Authenticate(shows)
		if e, ok := task.AsError(err); ok && e.Code == task.CodeUnauthenticated && len(shows.tokens) == 0 {
			own := *e
			own.Reason = sqs.ReasonUnsigned
			err = &own
		}
		return v, err
	}
	signature, err := wire.ParseSignature(s.c.Web)
	if err != nil {
		return callinfo.Principal{}, unsigned(err)
	}
	v, secret, err := s.g.auth.FindSigner(signature.AccessKey)
	if err != nil {
		return callinfo.Principal{}, err
	}
	if v != auth.Anonymous {
		s.signature, s.secret = signature, secret
	}
	return callinfo.Principal{Principal: v}, nil
}

// unsigned converts an error of a signature to a refusal.
func unsigned(err error) error {
	e, ok := errors.AsType[*wire.SignatureError](err)
	if !ok {
		return err
	}
	return &task.Error{Code: task.CodeUnauthenticated, Reason: e.Code, Message: e.Message}
}

// Verify implements sqs.Caller.
func (s *SQSCaller) Verify(body []byte) error {
	if s.signature == nil {
		return nil
	}
	wrong := s.signature.Verify(s.c.Web, body, s.secret, time.Now(), signedHeaders...)
	s.g.auth.SignatureChecked(s.c.Principal.Principal, wrong)
	if wrong == nil {
		return nil
	}
	err := unsigned(wrong)
	s.c.Principal = callinfo.Principal{Principal: auth.Anonymous} // it is not known who it was
	s.g.refused(s.ctx, s.c, err, true)
	return err
}

// Authorize implements sqs.Caller.
func (s *SQSCaller) Authorize(action string) (context.Context, error) {
	g, c, n := s.g, s.c, sqsNeeds[action]
	c.Method = action
	err := n.Allows(c.Principal)
	if err == nil && s.forgeable() && n.Roles&observe == 0 {
		err = callinfo.Denied("%s by %s needs a verified signature or an Authorization header: send it by POST", action, c.Web.Method)
	}
	if err != nil {
		g.refused(s.ctx, c, err, false)
		return s.ctx, err
	}
	if n.countsAsRequest(c.Principal) {
		if err := g.Rates.Take(c.Namespace, g.auth.Quotas(c.Namespace), 1, 0); err != nil {
			return s.ctx, err
		}
	}
	if n.Lasts { // also while no token is required: that may change
		s.ctx, s.stay = g.auth.Track(s.ctx, c.Principal.Principal, c.Principal.Presented)
	}
	return s.ctx, nil
}

// forgeable reports whether a page of another site may have had a browser send the request: as the address of an image,
// say, with the client certificate of its visitor. A page can't add an Authorization header, and what it posts has an
// Origin.
func (s *SQSCaller) forgeable() bool {
	return s.c.Web.Method != http.MethodPost && s.signature == nil && s.c.Web.Header.Get("Authorization") == ""
}

// Leave ends the call.
func (s *SQSCaller) Leave() {
	if s.stay != nil {
		s.stay()
	}
	if s.entered {
		s.g.Calls.Release(s.c.Namespace)
	}
}
