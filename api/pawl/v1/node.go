package pawlv1

// NodeService returns the service name under which a node of a cluster answers gRPC health checks. No other node answers under it, so a
// client can check who serves an address before it sends its token there.
func NodeService(clusterID, node string) string { return "pawl.node/" + clusterID + "/" + node }
