package administration

import (
	"context"
	"encoding/binary"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// auditLog is the audit log of all shards.
type auditLog interface {
	// Audit returns the entries, newest first, after a place; nil: from the newest.
	Audit(ctx context.Context, q broker.AuditQuery, after *broker.AuditPlace, limit int) (verb.Partial[broker.AuditList],
		[]broker.Stamp, error)
}

// AuditService implements AuditService.
type AuditService struct {
	pawlv1.UnimplementedAuditServiceServer
	Broker auditLog
	Limits task.Limits
}

// ListAudit returns a page of the audit log, newest first.
func (g *AuditService) ListAudit(ctx context.Context, r *pawlv1.ListAuditRequest) (*pawlv1.ListAuditResponse, error) {
	n, err := apiproto.LimitOf(r.GetLimit())
	if err != nil {
		return nil, err
	}
	q, err := auditQueryOf(r.GetFilter(), g.Limits)
	if err != nil {
		return nil, err
	}
	after, err := auditPlaceOf(r.GetCursor())
	if err != nil {
		return nil, err
	}
	q.Namespace, q.Own = callinfo.Namespace(ctx), !callinfo.Of(ctx).Principal.InAll()
	if q.Own { // the entries of an earlier namespace of its name remain evidence, for those who may see all
		q.Since = max(q.Since, broker.TimeOf(callinfo.Of(ctx).Began))
	}
	found, stamps, err := g.Broker.Audit(ctx, q, after, n)
	for _, at := range stamps {
		callinfo.Note(ctx, at)
	}
	if err != nil {
		return nil, err
	}
	list := found.Value
	out := &pawlv1.ListAuditResponse{Missing: apiproto.MissingProto(found.Missing), Items: make([]*pawlv1.AuditEntry, len(list.Records))}
	for i := range list.Records {
		out.Items[i] = auditProto(&list.Records[i])
	}
	if p := list.More; p != nil {
		at := binary.BigEndian.AppendUint64(nil, uint64(p.At))
		at = binary.BigEndian.AppendUint32(at, p.Shard)
		out.NextCursor = apiproto.EncodeCursor(apiproto.AuditCursor, binary.BigEndian.AppendUint64(at, p.Seq))
	}
	return out, nil
}

// auditPlaceOf decodes a cursor; nil for "".
func auditPlaceOf(cursor string) (*broker.AuditPlace, error) {
	at, err := apiproto.DecodeCursor(apiproto.AuditCursor, cursor)
	if at == nil || err != nil {
		return nil, err
	}
	if len(at) != 20 {
		return nil, apiproto.BadCursor(cursor)
	}
	return &broker.AuditPlace{At: broker.Time(binary.BigEndian.Uint64(at)), Shard: binary.BigEndian.Uint32(at[8:]),
		Seq: binary.BigEndian.Uint64(at[12:])}, nil
}

func auditQueryOf(p *pawlv1.AuditFilter, l task.Limits) (q broker.AuditQuery, err error) {
	q = broker.AuditQuery{Actor: p.GetActor(), Action: p.GetAction(), Queue: p.GetQueue(),
		Target: task.Target{Kind: task.TargetKind(p.GetTargetKind()), Name: p.GetTarget()}}
	if q.Since, err = apiproto.MomentOf("since", p.GetSince()); err != nil {
		return q, err
	}
	if q.Until, err = apiproto.MomentOf("until", p.GetUntil()); err != nil {
		return q, err
	}
	if err := task.CheckActor(q.Actor); err != nil {
		return q, err
	}
	if err := task.CheckActions(q.Action); err != nil {
		return q, err
	}
	if err := task.CheckTargetKind(p.GetTargetKind()); err != nil {
		return q, err
	}
	if err := task.CheckName("target", q.Target.Name, l); err != nil {
		return q, err
	}
	return q, task.CheckName("queue", q.Queue, l)
}

func auditProto(r *broker.AuditRecord) *pawlv1.AuditEntry {
	return &pawlv1.AuditEntry{Shard: r.Shard, Seq: r.Seq, At: apiproto.TimeProto(r.At), Actor: r.By.Name, Address: r.By.Address,
		Interface: string(r.By.Interface), Reason: r.By.Reason, Action: string(r.Action), TargetKind: string(r.Target.Kind),
		Target: r.Target.Name, Queue: r.Queue, Tasks: r.Tasks, Before: string(r.Before), After: string(r.After), Hash: r.Hash.String(),
		PreviousHash: r.Prev.String()}
}
