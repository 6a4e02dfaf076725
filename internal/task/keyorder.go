package task

// KeyOrder is the order in which the tasks of one key of a queue run. It is stored as is.
type KeyOrder string

// The orders.
const (
	KeyOrderNone   KeyOrder = ""       // first come, first served, several at a time; a retry lets others go first
	KeyOrderStrict KeyOrder = "strict" // in the order of enqueuing: each starts when all before it have ended
)

func (s *Settings) checkKeyOrder() error {
	if s.KeyOrder != KeyOrderNone && s.KeyOrder != KeyOrderStrict {
		return NoneOf("key_order", string(s.KeyOrder), []string{"none", string(KeyOrderStrict)})
	}
	return nil
}
