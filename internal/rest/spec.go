package rest

import (
	"math"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// specReader reads a task of an enqueue, field by field.
type specReader struct {
	spec    *pawlv1.TaskSpec
	payload []byte // as it stands in the body: what it means depends on content_type, which may follow
}

func (s *specReader) field(r *jsonReader, name string) (err error) {
	t := s.spec
	switch name {
	case "type":
		t.Type, err = r.str(name)
	case "payload":
		s.payload, err = r.any()
	case "content_type":
		t.ContentType, err = r.str(name)
	case "queue":
		if t.Queue, err = r.str(name); err == nil && t.Queue == "" {
			err = task.Invalid(name, "is empty; leave it out for %q", task.DefaultQueue)
		}
	case "priority":
		t.Priority, err = r.priority(name)
	case "delay":
		t.Delay, err = r.span(name)
	case "run_at":
		t.RunAt, err = r.time(name)
	case "idempotency_key":
		t.IdempotencyKey, err = r.str(name)
	case "idempotency_ttl":
		t.IdempotencyTtl, err = r.span(name)
	case "request_id":
		t.RequestId, err = r.str(name)
	default:
		err = s.option(r, name)
	}
	return err
}

func (s *specReader) option(r *jsonReader, name string) (err error) {
	t := s.spec
	switch name {
	case "max_attempts":
		t.MaxAttempts, err = r.int32(name, 1, contract.MaxAttempts)
	case "retry":
		t.Retry, err = r.retry(name)
	case "timeout":
		t.Timeout, err = r.span(name)
	case "expires_in":
		t.ExpiresIn, err = r.span(name)
	case "retention":
		t.Retention, err = r.span(name)
	case "key":
		t.Key, err = r.str(name)
	case "cost":
		t.Cost, err = r.int32(name, 1, task.MaxCost)
	case "unique":
		t.Unique, err = r.unique(name)
	case "group_id":
		t.GroupId, err = r.str(name)
	case "then":
		t.Then, err = r.then(name)
	case "tags":
		t.Tags, err = r.strs(name, maxListed)
	case "headers":
		t.Headers, err = r.texts(name)
	default:
		err = unknown("", name)
	}
	return err
}

// maxListed bounds what is read of a list of texts. The limits of the field itself are lower.
const maxListed = 1000

func (s *specReader) done() (_ *pawlv1.TaskSpec, err error) {
	s.spec.Payload, err = dataOf("payload", s.payload, s.spec.ContentType)
	return s.spec, err
}

func (r *jsonReader) int32(path string, least, most int64) (int32, error) {
	n, err := r.integer(path, least, min(most, math.MaxInt32))
	return int32(n), err
}

func (r *jsonReader) priority(path string) (pawlv1.Priority, error) {
	s, err := r.str(path)
	if err != nil {
		return 0, err
	}
	p, ok := task.ParsePriority(s)
	if !ok {
		return 0, task.Invalid(path, "%q is not high, normal or low", task.Cut(s, 64))
	}
	return pawlv1.Priority(p), nil
}

func (r *jsonReader) retry(path string) (*pawlv1.RetryPolicy, error) {
	p := &pawlv1.RetryPolicy{}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "initial":
			p.Initial, err = r.span(at)
		case "factor":
			if p.Factor, err = r.float(at); err == nil && p.Factor == 0 {
				err = task.Invalid(at, "0 is not between 1 and 100")
			}
		case "max":
			p.Max, err = r.span(at)
		case "jitter":
			var j float64
			j, err = r.float(at)
			p.Jitter = &j
		default:
			err = unknown(path, name)
		}
		return err
	})
	return p, err
}

func (r *jsonReader) texts(path string) (map[string]string, error) {
	m := map[string]string{}
	err := r.fields(path, func(name string) error {
		v, err := r.str(join(path, name))
		m[name] = v
		return err
	})
	return m, err
}
