package task

// KeyOrder says in which order the tasks of one key of a queue run. It is stored as it is.
type KeyOrder string

// The orders.
const (
	KeyOrderNone   KeyOrder = ""       // first come, first served, and several at once; a retry lets others go first
	KeyOrderStrict KeyOrder = "strict" // as they were enqueued: each when all before it have ended
)

func (s *Settings) checkKeyOrder() error {
	if s.KeyOrder != KeyOrderNone && s.KeyOrder != KeyOrderStrict {
		return NoneOf("key_order", string(s.KeyOrder), []string{"none", string(KeyOrderStrict)})
	}
	return nil
}
