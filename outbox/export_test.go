package outbox

import "context"

// Producer is what a relay needs of a client.
type Producer = producer

// NewRelayTo returns a relay that enqueues rows at a producer other than a client.
func NewRelayTo(box *Outbox, to Producer, cfg RelayConfig) (*Relay, error) {
	return newRelay(box, to, cfg)
}

// Reads returns how many rows each of n reads has.
func Reads(ctx context.Context, box *Outbox, to Producer, n int) (rows []int, err error) {
	r, err := newRelay(box, to, RelayConfig{})
	if err != nil {
		return nil, err
	}
	c := newSession(r, nil)
	for range n {
		found, err := c.read(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, len(found))
	}
	return rows, nil
}
