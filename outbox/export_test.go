package outbox

// Producer is what a relay needs of a client.
type Producer = producer

// NewRelayTo makes a relay that brings rows to somebody else than a client.
func NewRelayTo(box *Outbox, to Producer, cfg RelayConfig) (*Relay, error) {
	return newRelay(box, to, cfg)
}
