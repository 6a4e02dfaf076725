package query

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// maxKeysChecked bounds the keys of each kind that CheckKeys looks at, with the state of a task for each: about half a second of work.
const maxKeysChecked = 100_000

// CheckKeys returns wrong_state if a task of a queue has keys in different slots. It looks at the tasks that hold a
// unique key or wait for one, and at those whose idempotency key is remembered, up to maxKeysChecked of either kind.
func CheckKeys(from store.Reader, ns, queue string) error {
	var err error
	left := maxKeysChecked
	check := func(id task.ID, idempotencyKey string) bool {
		x, missing := schema.ReadExec(from, ns, id)
		if missing != nil { // its retention is over
			return true
		}
		s := task.Spec{Key: x.Key, Unique: x.Unique, IdempotencyKey: idempotencyKey}
		if refused, ok := task.AsError(s.CheckSlots()); ok {
			err = &task.Error{Code: task.CodeWrongState,
				Message: fmt.Sprintf("queue %q: in several shards, Pawl would refuse tasks like %s: %s", queue, id, refused.Message)}
		}
		return err == nil
	}
	keys := schema.UniqueKey(ns, queue, "")
	from.Scan(keys, schema.After(keys), func(_, row []byte) bool {
		u := schema.Must(schema.DecodeUnique(row))
		left--
		return check(u.Holder, "") && (u.Next == task.ID{} || check(u.Next, "")) && left > 0
	})
	if err != nil {
		return err
	}
	left = maxKeysChecked
	keys = schema.IdempotencyKey(ns, queue, "")
	from.Scan(keys, schema.After(keys), func(key, row []byte) bool {
		left--
		return check(schema.Must(schema.DecodeKey(row)).ID, string(key[len(keys):])) && left > 0
	})
	return err
}
