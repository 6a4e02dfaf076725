// Package administration serves the calls of administrators: on the cluster and its nodes, tokens, namespaces and their quotas,
// webhooks, markers, the audit log, and backups.
//
// It decodes, checks what the caller may, calls, and encodes. It knows neither how callers were admitted nor where the system shard
// is: verbs find it.
package administration

import (
	"context"
	"io"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// Admin has the operator calls of a cluster that take more than a verb of the system shard. Package cluster documents what each
// method does and refuses.
type Admin interface {
	// Overview returns the state of the cluster, as this node sees it while the system shard has no leader.
	Overview(ctx context.Context) (cluster.Overview, error)
	// Map returns this node's copy, which may be outdated; nil: it has none yet.
	Map(ctx context.Context) *cluster.Map

	// Verify compares the states of a shard's replicas after one entry, and checks the leader's counters.
	Verify(ctx context.Context, shard uint32) (Verification, error)
	// Backup writes a backup of the whole cluster to w. It calls progress after each shard.
	Backup(ctx context.Context, by task.Author, w io.Writer, progress func(done, total int) error) error
}

// Verification is the result of comparing a shard's replicas.
type Verification struct {
	Shard    uint32
	Index    uint64 // the entry after which they were compared
	Rows     int64
	Replicas []ReplicaHash
	Equal    bool     // whether all known hashes are the same
	Problems []string // mismatching counters in the leader's state; the first of them
}

// ReplicaHash is the checksum of a replica's state.
type ReplicaHash struct {
	Node  string
	Hash  uint64
	Known bool // false: there was no answer in time
}
