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
