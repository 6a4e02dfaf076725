package query

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// KeysUntil returns when the last of a queue's idempotency keys expires; 0: it has none.
func KeysUntil(from store.Reader, ns, name string) (last store.Time, err error) {
	keys := schema.IdempotencyKey(ns, name, "")
	from.Scan(keys, schema.After(keys), func(_, v []byte) bool {
		var k schema.KeyRow
		k, err = schema.DecodeKey(v)
		last = max(last, k.Until)
		return err == nil
	})
	return last, err
}
