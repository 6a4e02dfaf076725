package rest

import pawlv1 "github.com/pawlq/pawl/api/pawl/v1"

var auditRoutes = []Route{{"GET", "/api/v1/audit", "AuditService/ListAudit", listAudit}}

func listAudit(x *exchange) error {
	q, err := x.query("limit", "cursor", "since", "until", "actor", "action", "target_kind", "target", "queue")
	if err != nil {
		return err
	}
	f := &pawlv1.AuditFilter{Actor: q.Get("actor"), Action: q.Get("action"), TargetKind: q.Get("target_kind"), Target: q.Get("target"), Queue: q.Get("queue")}
	if q.Has("since") {
		if f.Since, err = timeText("since", q.Get("since")); err != nil {
			return err
		}
	}
	if q.Has("until") {
		if f.Until, err = timeText("until", q.Get("until")); err != nil {
			return err
		}
	}
	limit, err := limitText(q)
	if err != nil {
		return err
	}
	got, err := x.API.Audit.ListAudit(x.ctx, &pawlv1.ListAuditRequest{Filter: f, Limit: limit, Cursor: q.Get("cursor")})
	if err != nil {
		return err
	}
	x.open('{')
	x.within("items", '[')
	for _, e := range got.GetItems() {
		x.auditEntry(e)
	}
	x.close(']')
	x.str("next_cursor", got.GetNextCursor())
	x.close('}')
	return nil
}

func (x *exchange) auditEntry(e *pawlv1.AuditEntry) {
	x.open('{')
	x.num("shard", int64(e.GetShard()))
	x.num("seq", int64(e.GetSeq())) // #nosec G115 -- counted one by one
	x.time("at", e.GetAt())
	x.str("actor", e.GetActor())
	x.opt("address", e.GetAddress())
	x.str("face", e.GetFace())
	x.opt("reason", e.GetReason())
	x.str("action", e.GetAction())
	x.str("target_kind", e.GetTargetKind())
	x.opt("target", e.GetTarget())
	x.opt("queue", e.GetQueue())
	if e.GetTasks() != 0 {
		x.num("tasks", e.GetTasks())
	}
	x.data("before", []byte(e.GetBefore()), "")
	x.data("after", []byte(e.GetAfter()), "")
	x.str("hash", e.GetHash())
	x.str("previous_hash", e.GetPreviousHash())
	x.close('}')
}
