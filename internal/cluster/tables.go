package cluster

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/store"
)

// The system shard's tables. The first byte of a key is its table, the first byte of a value the version of its format.
//
//	n number(4)   → Node
//	s shard(4)    → Shard
//	m s           → Settings
//	m c           → index of the latest change of any of these tables (8)
//	m v           → highest version of a deleted queue (8)
//	m t           → number of schedules (8)
//	m w           → number of rows w (8)
//	q ns 0 name   → shard and configuration of a queue
//	m a           → 1 if calls need a token (8)
//	c ns 0 name   → ScheduleHome
//	w ns 0 id     → QuietWorker
//	a ns 0 name   → a token; ns is * if it is for all namespaces
//	u ns 0 name   → when it was last used (8)
//	x name        → Namespace
//	m T name      → number of a namespace's schedules (8)
//	y name        → divisionRow of a namespace
//	m k           → number of markers (8)
//	m K name      → markerPace of a namespace
//	k ns 0 at(8) id(16) until(8) → Marker
//
// Of webhooks:
//
//	h ns 0 name                   → Webhook
//	r ns 0 name                   → WebhookStatus
//	d ns 0 name                   → outcomes of its last notices
//	p ns 0 name 0 due(8) id(16)   → a notice to be sent
//	i ns 0 name 0 kind 0 queue    → due(8) id(16) of a notice that was not tried yet
//	o ns 0 name 0 queue           → a queue that is over a threshold
//	g ns 0 kind 0 queue 0 shard(4) → last notification of a shard
//	v ns                          → version of what they subscribe to (8)
//	m p                           → number of notices to be sent (8)
const (
	nodeTable  = 'n'
	shardTable = 's'
	metaTable  = 'm'
	queueTable = 'q'
	cronTable  = 'c'
	quietTable = 'w'

	tokenTable     = 'a'
	usedTable      = 'u'
	namespaceTable = 'x'
	divisionTable  = 'y'

	markerTable = 'k'

	hookTable          = 'h'
	webhookStatusTable = 'r'
	recentTable        = 'd'
	pendingTable       = 'p'
	untriedTable       = 'i'
	overTable          = 'o'
	seenTable          = 'g'
	watchTable         = 'v'
)

const rowVersion = 1

// NodeState is what an operator wants of a node.
type NodeState string

const (
	Active   NodeState = "active"   // takes replicas
	Draining NodeState = "draining" // its replicas and leadership move off
	Removed  NodeState = "removed"  // for good: its number is never reused
)

// Node is a current or former member of the cluster.
type Node struct {
	Number      uint32    `json:"number"`
	Name        string    `json:"name"`
	PeerAddress string    `json:"peer_address"`
	APIAddress  string    `json:"api_address"`
	State       NodeState `json:"state"`
	Version     string    `json:"version"` // of its release
	// MinLevel and MaxLevel are the feature levels that it supports.
	MinLevel   int        `json:"min_level"`
	MaxLevel   int        `json:"max_level"`
	Nonce      [16]byte   `json:"nonce"` // of its join
	JoinedAt   store.Time `json:"joined_at"`
	ReplacedBy uint32     `json:"replaced_by,omitempty"` // the node that took over its name
}

// Replica is one copy of a shard.
type Replica struct {
	ID   uint64 `json:"id"`
	Node uint32 `json:"node"`
	// Founder is set if the replica starts the shard as its only voter. The others wait until they are asked to join.
	Founder bool `json:"founder,omitempty"`
}

// ReplicaID returns the Raft id of a replica. Incarnations are counted per shard and never reused, so no replica comes back under its id
// without its state.
func ReplicaID(incarnation, node uint32) uint64 { return uint64(incarnation)<<32 | uint64(node) }

// NodeOf returns the node of a replica.
func NodeOf(replica uint64) uint32 { return uint32(replica) }

// Shard is the placement of a shard.
type Shard struct {
	ID       uint32    `json:"id"`
	Replicas []Replica `json:"replicas"`
	// Leaving are the ids of replicas to be removed. An id is never taken off this list while its shard may lack it.
	Leaving         []uint64 `json:"leaving,omitempty"`
	NextIncarnation uint32   `json:"next_incarnation"`
	Preferred       uint32   `json:"preferred,omitempty"` // node that should lead; 0: any
}

// On returns the replica on a node.
func (s Shard) On(node uint32) (Replica, bool) {
	for _, r := range s.Replicas {
		if r.Node == node {
			return r, true
		}
	}
	return Replica{}, false
}

// Gone reports whether the shard once had a replica and no longer does. That is final. A replica that this row does not know yet is not
// gone: a newer row may have it.
func (s Shard) Gone(id uint64) bool {
	incarnation := uint32(id >> 32)
	return incarnation < s.NextIncarnation && !slices.ContainsFunc(s.Replicas, func(r Replica) bool { return r.ID == id })
}

// leaves reports whether a replica is to be removed.
func (s Shard) leaves(id uint64) bool { return slices.Contains(s.Leaving, id) }

// clone returns a deep copy.
func (s Shard) clone() Shard {
	s.Replicas, s.Leaving = slices.Clone(s.Replicas), slices.Clone(s.Leaving)
	return s
}

// Settings are the settings of the whole cluster.
type Settings struct {
	Replication int    `json:"replication"` // replicas of each shard, if there are as many nodes
	Level       int    `json:"level"`       // the feature level that all nodes work at
	NextNode    uint32 `json:"next_node"`
	DataShards  int    `json:"data_shards"` // shards 1 to this
	ClusterName string `json:"cluster_name"`
	// AuditRetention is how long audit entries are kept; 0: for audit.DefaultKeep. See AuditKeep.
	AuditRetention time.Duration `json:"audit_retention,omitempty"`
}

func nodeKey(number uint32) []byte { return binary.BigEndian.AppendUint32([]byte{nodeTable}, number) }
func shardKey(id uint32) []byte    { return binary.BigEndian.AppendUint32([]byte{shardTable}, id) }

var (
	settingsKey = []byte{metaTable, 's'}
	newestKey   = []byte{metaTable, 'c'}
	floorKey    = []byte{metaTable, 'v'}

	schedulesKey = []byte{metaTable, 't'}
	quietsKey    = []byte{metaTable, 'w'}
	requiredKey  = []byte{metaTable, 'a'}

	pendingsKey = []byte{metaTable, 'p'}

	markersKey = []byte{metaTable, 'k'}
)

func scheduleKey(ns, name string) []byte {
	return append(append(append([]byte{cronTable}, ns...), 0), name...)
}

// encodeRow returns a row's stored form.
func encodeRow[T any](row T) []byte {
	b, err := json.Marshal(row)
	if err != nil {
		panic(err) // numbers, strings and bytes can always be encoded
	}
	return append([]byte{rowVersion}, b...)
}

// decodeRow is the inverse of encodeRow. Unknown fields are ignored.
func decodeRow[T any](key, value []byte) (row T, err error) {
	if len(value) == 0 || value[0] != rowVersion {
		return row, fmt.Errorf("row %q of the system shard: unknown form", key)
	}
	if err := json.Unmarshal(value[1:], &row); err != nil {
		return row, fmt.Errorf("row %q of the system shard: %w", key, err)
	}
	return row, nil
}

// getRow reads a row that may be absent.
func getRow[T any](r store.Reader, key []byte) (row T, ok bool, err error) {
	value, ok := r.Get(key)
	if !ok {
		return row, false, nil
	}
	row, err = decodeRow[T](key, value)
	return row, err == nil, err
}

// scanRows reads a table.
func scanRows[T any](r store.Reader, table byte) (rows []T, err error) {
	r.Scan([]byte{table}, []byte{table + 1}, func(k, v []byte) bool {
		var row T
		if row, err = decodeRow[T](k, v); err != nil {
			return false
		}
		rows = append(rows, row)
		return true
	})
	return rows, err
}

// getNumber reads a counter; absent is 0.
func getNumber(r store.Reader, key []byte) uint64 {
	value, _ := r.Get(key)
	if len(value) != 9 || value[0] != rowVersion {
		return 0
	}
	return binary.BigEndian.Uint64(value[1:])
}

func encodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{rowVersion}, n) }

// StoredMap returns the map in a state of the system shard, which may be out of date.
func StoredMap(r store.Reader) (*Map, error) { return readMap(r) }

// readMap reads nodes, shards and settings.
func readMap(r store.Reader) (m *Map, err error) {
	m = &Map{Version: getNumber(r, newestKey)}
	if m.Settings, _, err = getRow[Settings](r, settingsKey); err != nil {
		return nil, err
	}
	if m.Nodes, err = scanRows[Node](r, nodeTable); err != nil {
		return nil, err
	}
	m.Shards, err = scanRows[Shard](r, shardTable)
	return m, err
}
