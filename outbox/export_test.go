package outbox

import "context"

// Producer is the part of a client that a relay needs.
type Producer = producer

// NewRelayTo returns a relay that sends rows to a producer other than a client.
func NewRelayTo(box *Outbox, to Producer, cfg RelayConfig) (*Relay, error) {
	return newRelay(box, to, cfg)
}

// Reads returns the number of rows in each of n reads.
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
