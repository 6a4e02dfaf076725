package query

// Broker is what this package needs of this node's broker.
type Broker interface {
	TaskBroker
	AuditBroker
	EventBroker
	StatusBroker
}

// Control is what this package needs of the system shard where that is led; elsewhere it returns the shard's error.
type Control interface {
	AuditControl
	EventControl
}
