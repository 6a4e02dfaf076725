package system

// The system shard's tables. The first byte of a key is its table, the first byte of a value the version of its format.
//
//	n number(4)   → cluster.Node
//	s shard(4)    → cluster.Shard
//	m s           → Settings
//	m c           → index of the latest change of any of these tables (8)
//	m v           → highest version of a deleted queue (8)
//	m t           → number of schedules (8)
//	m w           → number of rows w (8)
//	q ns 0 name   → shard and configuration of a queue
//	m a           → 1 if calls need a token (8)
//	c ns 0 name   → schedules.Home
//	w ns 0 id     → workers.Quiet
//	a ns 0 name   → a token; ns is * if it is for all namespaces
//	u ns 0 name   → when it was last used (8)
//	l key's id    → auth.EndedSessions of a token
//	x name        → namespaces.Namespace
//	m T name      → number of a namespace's schedules (8)
//	y name        → divisionRow of a namespace
//	m k           → number of markers (8)
//	m K name      → markerPace of a namespace
//	k ns 0 at(8) id(16) until(8) → markers.Marker
//
// Of webhooks:
//
//	h ns 0 name                   → webhooks.Webhook
//	r ns 0 name                   → webhooks.Status
//	d ns 0 name                   → outcomes of its last notices
//	p ns 0 name 0 due(8) id(16)   → a notice to be sent
//	i ns 0 name 0 kind 0 queue    → due(8) id(16) of a notice that was not tried yet
//	o ns 0 name 0 queue           → a queue that is over a threshold
//	g ns 0 kind 0 queue 0 shard(4) → last notification of a shard
//	v ns                          → version of what they subscribe to (8)
//	m p                           → number of notices to be sent (8)
const (
	NodeTable  = 'n'
	ShardTable = 's'
	MetaTable  = 'm'
	QueueTable = 'q'
	CronTable  = 'c'
	QuietTable = 'w'

	TokenTable     = 'a'
	UsedTable      = 'u'
	EndedTable     = 'l'
	NamespaceTable = 'x'
	DivisionTable  = 'y'

	MarkerTable = 'k'

	HookTable          = 'h'
	WebhookStatusTable = 'r'
	RecentTable        = 'd'
	PendingTable       = 'p'
	UntriedTable       = 'i'
	OverTable          = 'o'
	SeenTable          = 'g'
	WatchTable         = 'v'
)

var (
	SettingsKey = []byte{MetaTable, 's'}
	NewestKey   = []byte{MetaTable, 'c'}
	FloorKey    = []byte{MetaTable, 'v'}

	SchedulesKey = []byte{MetaTable, 't'}
	QuietsKey    = []byte{MetaTable, 'w'}
	RequiredKey  = []byte{MetaTable, 'a'}

	PendingsKey = []byte{MetaTable, 'p'}

	MarkersKey = []byte{MetaTable, 'k'}
)

// SchedulesOfKey is the key of the number of a namespace's schedules.
func SchedulesOfKey(ns string) []byte { return append([]byte{MetaTable, 'T'}, ns...) }
