package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// BackupSummary describes a complete backup.
type BackupSummary struct {
	Bytes  int64
	SHA256 string // of all bytes: 64 hexadecimal digits
}

// BackupProgress reports how far a backup has got.
type BackupProgress struct {
	ShardsDone, Shards int // including the system shard; 0 until known
	Bytes              int64
}

// Backup writes a backup of the whole cluster to w while the cluster keeps serving, as `pawl backup` does; `pawl restore` reads it. The
// backup contains everything that was acknowledged before the call. progress, if not nil, is called on the calling goroutine after each
// piece.
//
// After an error, discard what was written. Backup is never retried automatically. ErrUnavailable means that a shard has no leader, that
// its node stopped, or that the node is already making another backup. ErrWrongState means that the server is too old to make backups.
func (a Cluster) Backup(ctx context.Context, w io.Writer, progress func(BackupProgress)) (*BackupSummary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if w fails
	ctx, err := a.acting(ctx)
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	stream, err := pawlv1.NewClusterServiceClient(a.rpc).Backup(ctx, &pawlv1.BackupRequest{})
	if err != nil {
		return nil, a.backupError(ctx, err)
	}
	var p BackupProgress
	sum := sha256.New()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("backup: %w", &pawltype.Error{Code: pawltype.ErrUnavailable,
				Message: "the stream ended before the backup was complete"})
		}
		if err != nil {
			return nil, a.backupError(ctx, err)
		}
		if _, err := w.Write(m.GetData()); err != nil {
			return nil, fmt.Errorf("backup: %w", err)
		}
		_, _ = sum.Write(m.GetData())
		p.Bytes += int64(len(m.GetData()))
		if at := m.GetProgress(); at != nil {
			p.ShardsDone, p.Shards = int(at.GetShardsDone()), int(at.GetShards())
		}
		if progress != nil {
			progress(p)
		}
		if all := m.GetSummary(); all != nil {
			return backupInfo(all, p.Bytes, hex.EncodeToString(sum.Sum(nil)))
		}
	}
}

// backupInfo compares what was received with the server's summary.
func backupInfo(summary *pawlv1.BackupSummary, bytes int64, sum string) (*BackupSummary, error) {
	if summary.GetBytes() != bytes || summary.GetSha256() != sum {
		return nil, fmt.Errorf("backup: %w", &pawltype.Error{Code: pawltype.ErrInternal,
			Message: fmt.Sprintf("received %d bytes with SHA-256 %s, the server sent %d with %s",
				bytes, sum, summary.GetBytes(), summary.GetSha256())})
	}
	return &BackupSummary{Bytes: bytes, SHA256: sum}, nil
}

func (a calls) backupError(ctx context.Context, err error) error {
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("backup: %w", &pawltype.Error{Code: pawltype.ErrWrongState,
			Message: "the server is too old to make backups: upgrade it first"})
	}
	return fmt.Errorf("backup: %w", a.rpc.Failed(convert.CallError(ctx, err)))
}
