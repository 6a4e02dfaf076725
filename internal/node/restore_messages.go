package node

import (
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/store"
)

// rememberMessages has the restored shard remember the messages that it had taken, however old the backup is: their senders may repeat them.
func rememberMessages(tx *store.Tx) error {
	broker.Restored(tx)
	return nil
}
