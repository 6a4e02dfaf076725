package query

import (
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/verb"
)

// MaxArchiveBytes is exported for the tests.
const MaxArchiveBytes = maxArchiveBytes

// EncodeNames encodes a request that names other queues or types.
func EncodeNames(method string, names []string) ([]byte, error) {
	if method == "type-briefs" {
		return verb.Encode(&typesArgs{Names: names, Window: stats.Hour})
	}
	return verb.Encode(&statsArgs{Names: names, Window: stats.Hour})
}
