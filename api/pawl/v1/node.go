package pawlv1

// NodeService returns the name by which gRPC's health service knows a node of a cluster. It has no other node's, so a client can check who answers at
// an address before it shows its token there.
func NodeService(clusterID, node string) string { return "pawl.node/" + clusterID + "/" + node }
