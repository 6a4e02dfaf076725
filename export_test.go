package pawl

import pawlv1 "github.com/pawlq/pawl/api/pawl/v1"

// WithEager is for the benchmark that chose eagerRequests.
var WithEager = withEager

// ShardOf is for the test that holds it to the form of the broker's ids.
var ShardOf = shardOf

// ConnectTo is what a client does with an address of the cluster's map.
func ConnectTo(addr string, opts ...DialOption) error {
	var c dialConfig
	for _, opt := range opts {
		opt(&c)
	}
	conn, err := c.connectTo(addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// TakeMap has a client believe a map, and says how much of it is kept.
func TakeMap(m *pawlv1.GetMapResponse) (nodes, leaders int) {
	c := newChart()
	c.take(m, true)
	return len(c.addrs), len(c.leaders)
}

// HoldsSealed says whether a message is one in which a keyring looks for what it encrypts.
var HoldsSealed = holds

// OpenSealed decrypts a payload of a queue.
func OpenSealed(k *Keyring, queue string, payload []byte) ([]byte, error) {
	data, _, err := k.open(forPayload("ns", queue, "t"), payload)
	return data, err
}

// SealAndOpen is what a payload costs.
func SealAndOpen(k *Keyring, payload []byte) error {
	at := forPayload("ns", "q", "t")
	sealed, _, err := k.seal(at, "r", "", payload)
	if err == nil {
		_, _, err = k.open(at, sealed)
	}
	return err
}
