// Package encrypt wraps a connection and encrypts tasks on their way out and decrypts them on their way in. It does not know the cipher,
// which is the keyring's, nor where the connection leads.
package encrypt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// conn is a connection that encrypts payloads, results, checkpoints and results of once keys on their way out, and decrypts them on
// their way in. So no call of the client has to know about encryption, and none can forget it. What can't be decrypted is left
// unchanged; others than handlers see it by its content type (EncryptedWith). Claimed tasks are decrypted by OpenClaimed, which
// returns the reason for their handlers: a payload or checkpoint that has been decrypted may itself look encrypted.
type conn struct {
	rpc.Conn
	keys *keyring.Keyring
	ns   atomic.Pointer[string] // the namespace of the client's calls; nil: not known yet
}

// plainType replaces the content type of a payload or result that is refused because it is not encrypted.
const plainType = "application/vnd.pawl.encrypted; key="

// namespace returns the namespace of the client's calls, and asks the broker for it until it is known. Calls don't wait
// for each other: each has its own context.
func (s *conn) namespace(ctx context.Context) (string, error) {
	if ns := s.ns.Load(); ns != nil {
		return *ns, nil
	}
	var me pawlv1.WhoAmIResponse
	if err := s.Conn.Invoke(ctx, pawlv1.AccessService_WhoAmI_FullMethodName, &pawlv1.WhoAmIRequest{}, &me); err != nil {
		return "", err
	}
	ns := me.GetNamespace()
	s.ns.Store(&ns)
	return ns, nil
}

// Invoke implements grpc.ClientConnInterface.
func (s *conn) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	sealed, err := s.sealed(ctx, req)
	if err == nil {
		err = s.Conn.Invoke(ctx, method, sealed, resp, opts...)
	}
	if err != nil {
		return err
	}
	return s.open(ctx, req, resp)
}

// NewStream implements grpc.ClientConnInterface.
func (s *conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method == pawlv1.WorkerService_Work_FullMethodName {
		if _, err := s.namespace(ctx); err != nil { // now, not when the first task arrives
			return nil, err
		}
	}
	stream, err := s.Conn.NewStream(ctx, desc, method, opts...)
	return &sealedStream{stream, s}, err
}

type sealedStream struct {
	grpc.ClientStream
	s *conn
}

// SendMsg implements grpc.ClientStream.
func (t *sealedStream) SendMsg(m any) error {
	sealed, err := t.s.sealed(t.Context(), m)
	if err != nil {
		return err
	}
	return t.ClientStream.SendMsg(sealed)
}

// RecvMsg implements grpc.ClientStream.
func (t *sealedStream) RecvMsg(m any) error {
	if err := t.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	return t.s.open(t.Context(), nil, m)
}

// holds reports whether a message type has fields that are encrypted.
func holds(m proto.Message) bool {
	switch m.(type) {
	case *pawlv1.TaskSpec, *pawlv1.AckRequest, *pawlv1.ExtendRequest, *pawlv1.FinishOnceRequest, *pawlv1.UpdateTaskRequest,
		*pawlv1.Task, *pawlv1.ClaimedTask, *pawlv1.GroupMember, *pawlv1.Parent, *pawlv1.BeginOnceResponse:
		return true
	}
	return false
}

// visit calls fn for m and all messages in it that have encrypted fields, with their paths.
func visit(m protoreflect.Message, path string, fn func(m proto.Message, path string) error) error {
	if own := m.Interface(); holds(own) {
		if err := fn(own, path); err != nil {
			return err
		}
	}
	var failed error
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := path + "." + string(field.Name())
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := 0; i < v.List().Len() && failed == nil; i++ {
				failed = visit(v.List().Get(i).Message(), fmt.Sprintf("%s[%d]", at, i), fn)
			}
		default:
			failed = visit(v.Message(), at, fn)
		}
		return failed == nil
	})
	return failed
}

// sealed returns a copy of a request with its contents encrypted. The request itself is not changed: it may be sent again.
func (s *conn) sealed(ctx context.Context, req any) (any, error) {
	m, ok := req.(proto.Message)
	if !ok {
		return req, nil
	}
	any := false
	_ = visit(m.ProtoReflect(), "", func(proto.Message, string) error { any = true; return nil })
	if !any {
		return req, nil
	}
	ns, err := s.namespace(ctx)
	if err != nil {
		return nil, err
	}
	m = proto.CloneOf(m)
	outer := ""
	switch r := m.(type) {
	case interface{ GetRequestId() string }:
		outer = r.GetRequestId()
	case *pawlv1.PutScheduleRequest: // which is unchanged if it is put again
		outer = "schedule " + r.GetSpec().GetName()
	}
	return m, visit(m.ProtoReflect(), "", func(m proto.Message, path string) error {
		switch m := m.(type) {
		case *pawlv1.TaskSpec: // its follow-up tasks are encrypted with it, and their own visits do nothing
			return s.sealSpec(ns, m, outer+path)
		case *pawlv1.AckRequest:
			return s.sealResult(ns, m)
		case *pawlv1.ExtendRequest:
			typ, _ := ctx.Value(claimTypeKey{}).(string)
			return s.wrap(keyring.ForCheckpoint(ns, typ), &m.Checkpoint)
		case *pawlv1.FinishOnceRequest:
			return s.wrap(keyring.ForOnce(ns, m.GetKey()), &m.Result)
		case *pawlv1.UpdateTaskRequest:
			return s.sealChange(ctx, ns, m)
		}
		return nil
	})
}

// claimTypeKey is the key of a task's type in the context of an extension.
type claimTypeKey struct{}

// sealSpec encrypts the payload of a task, and of its follow-up tasks. outer identifies the request if the task has no id of its own.
func (s *conn) sealSpec(ns string, t *pawlv1.TaskSpec, outer string) (err error) {
	if err := Check(t); err != nil {
		return err
	}
	request := outer
	switch {
	case t.GetUnique() != nil && t.GetUnique().GetKey() == "":
		request = "" // the broker derives the key from the payload
	case t.GetIdempotencyKey() != "":
		request = "idempotency " + t.GetIdempotencyKey()
	case t.GetRequestId() != "":
		request = "request " + t.GetRequestId()
	}
	for i, then := range t.GetThen() {
		if err := s.sealSpec(ns, then, fmt.Sprintf("%s then %d", request, i)); err != nil {
			return err
		}
	}
	if _, already := keyring.EncryptedWith(t.GetContentType()); already {
		return nil
	}
	t.Payload, t.ContentType, err = s.keys.Seal(keyring.ForPayload(ns, convert.QueueName(t), t.GetType()), request,
		t.GetContentType(), t.GetPayload())
	return err
}

// Check rejects a task if the broker would reject its payload, or that of a follow-up task, if it could read it.
func Check(t *pawlv1.TaskSpec) error {
	for i, then := range t.GetThen() {
		if err := Check(then); err != nil {
			return convert.FieldIn(fmt.Sprintf("then[%d]", i), err)
		}
	}
	if len(t.GetContentType()) > keyring.MaxContentType {
		return convert.Invalid("content_type", "has %d bytes, at most %d can be encrypted", len(t.GetContentType()), keyring.MaxContentType)
	}
	return checkJSON("payload", t.GetContentType(), t.GetPayload())
}

// checkJSON makes the check that the broker can't make on encrypted data.
func checkJSON(field, contentType string, data []byte) error {
	if (contentType == "" || contentType == "application/json") && len(data) > 0 && !json.Valid(data) {
		return convert.Invalid(field, "is not a JSON value; other bytes need a content_type")
	}
	return nil
}

// sealResult encrypts any result: rejecting one here would break the stream that carries it.
func (s *conn) sealResult(ns string, a *pawlv1.AckRequest) (err error) {
	if len(a.GetResult()) == 0 {
		return nil
	}
	a.Result, a.ContentType, err = s.keys.Seal(keyring.ForResult(ns, a.GetTaskId()), "", convert.CutText(a.GetContentType(),
		keyring.MaxContentType), a.GetResult())
	return err
}

// sealChange encrypts a payload that replaces an encrypted one.
func (s *conn) sealChange(ctx context.Context, ns string, u *pawlv1.UpdateTaskRequest) (err error) {
	if u.Payload == nil {
		return nil
	}
	var now pawlv1.GetTaskResponse
	if err := s.Conn.Invoke(ctx, pawlv1.ProducerService_GetTask_FullMethodName, &pawlv1.GetTaskRequest{TaskId: u.GetTaskId()},
		&now); err != nil {
		return err
	}
	t := now.GetTask()
	if _, encrypted := keyring.EncryptedWith(t.GetContentType()); !encrypted {
		return nil
	}
	u.Payload, _, err = s.keys.Seal(keyring.ForPayload(ns, t.GetQueue(), t.GetType()), "", "", u.GetPayload())
	return err
}

// wrapped is the form of encrypted bytes where the broker expects JSON.
type wrapped struct {
	Encrypted []byte `json:"pawl_encrypted"`
}

// wrappedHead is how a wrapped value starts.
var wrappedHead = []byte(`{"pawl_encrypted":"`)

func (s *conn) wrap(at keyring.Place, data *[]byte) error {
	if len(*data) == 0 {
		return nil
	}
	sealed, _, err := s.keys.Seal(at, "", "", *data)
	if err == nil {
		*data, err = json.Marshal(wrapped{sealed})
	}
	return err
}

// IsWrapped reports whether JSON contains encrypted bytes, or looks as if it did.
func IsWrapped(data []byte) bool { return bytes.HasPrefix(data, wrappedHead) }

// errPlain refuses data that is not encrypted.
var errPlain = &keyring.Error{Forged: true, Message: "it is not encrypted, but the keyring accepts only encrypted data (OnlyEncrypted)"}

// unwrap is the inverse of wrap. Data that was not wrapped is returned unchanged, unless the keyring refuses it.
func unwrap(k *keyring.Keyring, at keyring.Place, data []byte) ([]byte, error) {
	switch {
	case IsWrapped(data):
	case len(data) > 0 && k.OnlyEncrypted():
		return nil, errPlain
	default:
		return data, nil
	}
	var w wrapped
	if err := json.Unmarshal(data, &w); err != nil {
		return data, &keyring.Error{Forged: true, Message: fmt.Sprintf("it does not have the format of encrypted data: %v", err)}
	}
	plain, _, err := k.Open(at, w.Encrypted)
	if err != nil {
		return data, err
	}
	return plain, nil
}

// open decrypts the contents of a response, as far as the keyring can.
func (s *conn) open(ctx context.Context, req, resp any) error {
	m, ok := resp.(proto.Message)
	if !ok {
		return nil
	}
	return visit(m.ProtoReflect(), "", func(m proto.Message, _ string) error {
		ns, err := s.namespace(ctx)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *pawlv1.TaskSpec:
			s.openPayload(ns, convert.QueueName(m), m.GetType(), &m.Payload, &m.ContentType)
		case *pawlv1.Task:
			s.openPayload(ns, m.GetQueue(), m.GetType(), &m.Payload, &m.ContentType)
			s.openResult(ns, m.GetTaskId(), &m.Result, &m.ResultContentType)
			m.Checkpoint, _ = unwrap(s.keys, keyring.ForCheckpoint(ns, m.GetType()), m.GetCheckpoint())
		case *pawlv1.GroupMember:
			s.openResult(ns, m.GetTaskId(), &m.Result, &m.ResultContentType)
		case *pawlv1.Parent:
			s.openParent(ns, m)
		case *pawlv1.BeginOnceResponse:
			r, _ := req.(*pawlv1.BeginOnceRequest)
			m.Result, err = unwrap(s.keys, keyring.ForOnce(ns, r.GetKey()), m.GetResult())
			if err != nil {
				err = fmt.Errorf("pawl: result of once key %q: %w", r.GetKey(), err)
			}
		}
		return err
	})
}

// openPayload decrypts a payload in place. If it can't, it returns the reason and leaves the payload unchanged.
func (s *conn) openPayload(ns, queue, typ string, payload *[]byte, contentType *string) error {
	if _, encrypted := keyring.EncryptedWith(*contentType); !encrypted {
		return nil
	}
	plain, as, err := s.keys.Open(keyring.ForPayload(ns, queue, typ), *payload)
	for _, from := range s.keys.AcceptFrom() {
		if !keyring.IsForged(err) {
			break
		}
		if moved, movedAs, bad := s.keys.Open(keyring.ForPayload(ns, from, typ), *payload); bad == nil {
			plain, as, err = moved, movedAs, nil
		}
	}
	if err == nil {
		*payload, *contentType = plain, as
	}
	return err
}

// openResult decrypts a result in place, if it can. If the keyring accepts only encrypted data, it removes any other, whatever its content
// type says.
func (s *conn) openResult(ns, task string, result *[]byte, contentType *string) {
	if _, encrypted := keyring.EncryptedWith(*contentType); encrypted {
		if plain, as, err := s.keys.Open(keyring.ForResult(ns, task), *result); err == nil {
			*result, *contentType = plain, as
			return
		}
	}
	if len(*result) > 0 && s.keys.OnlyEncrypted() {
		*result, *contentType = nil, plainType
	}
}

// openParent decrypts the result of a parent task as openResult does. That of a group is made by the broker, which has no keys: if the
// keyring accepts only encrypted data, nothing but its counts is left.
func (s *conn) openParent(ns string, p *pawlv1.Parent) {
	if p.GetGroupId() == "" || !s.keys.OnlyEncrypted() {
		s.openResult(ns, p.GetTaskId(), &p.Result, &p.ContentType)
		return
	}
	var counts struct {
		pawltype.GroupCounts
		State pawltype.GroupState `json:"state,omitempty"`
	}
	if len(p.Result) > 0 && json.Unmarshal(p.Result, &counts) == nil {
		p.Result, _ = json.Marshal(counts) // numbers and strings always have a JSON form
		return
	}
	p.Result = nil
}

// OpenClaimed decrypts a claimed task in place, once. If it can't, it returns the reason.
func OpenClaimed(over rpc.Conn, t *pawlv1.ClaimedTask) error {
	s, ok := over.(*conn)
	if !ok {
		return withoutKeyring(t)
	}
	ns := *s.ns.Load() // known by now, or nothing would have been received
	if _, encrypted := keyring.EncryptedWith(t.GetContentType()); !encrypted && s.keys.OnlyEncrypted() {
		t.Payload, t.ContentType = nil, plainType
		return fmt.Errorf("pawl: payload: %w", errPlain)
	}
	if err := s.openPayload(ns, t.GetQueue(), t.GetType(), &t.Payload, &t.ContentType); err != nil {
		return fmt.Errorf("pawl: payload: %w", err)
	}
	var err error
	if t.Checkpoint, err = unwrap(s.keys, keyring.ForCheckpoint(ns, t.GetType()), t.GetCheckpoint()); err != nil {
		return fmt.Errorf("pawl: checkpoint: %w", err)
	}
	return nil
}

// withoutKeyring returns why a client without a keyring can't read a claimed task, or nil.
func withoutKeyring(t *pawlv1.ClaimedTask) error {
	id, encrypted := keyring.EncryptedWith(t.GetContentType())
	switch {
	case encrypted:
		return fmt.Errorf("pawl: payload: it is encrypted with key %q, and the client has no keyring (DialOptions.Keyring)", id)
	case IsWrapped(t.GetCheckpoint()):
		return errors.New("pawl: checkpoint: it is encrypted, and the client has no keyring (DialOptions.Keyring)")
	}
	return nil
}

// Over returns a connection that encrypts what is sent over base, and decrypts what is received.
func Over(base rpc.Conn, keys *keyring.Keyring, ns string) rpc.Conn {
	s := &conn{Conn: base, keys: keys}
	if ns != "" {
		s.ns.Store(&ns)
	}
	return s
}

// Encrypts reports whether a connection encrypts.
func Encrypts(over rpc.Conn) bool {
	_, ok := over.(*conn)
	return ok
}

// ForClaim returns the context for a call about a claim of a task of this type.
func ForClaim(ctx context.Context, taskType string) context.Context {
	return context.WithValue(ctx, claimTypeKey{}, taskType)
}
