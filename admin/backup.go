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

// BackupSummary is what Backup has written.
type BackupSummary struct {
	Bytes  int64
	SHA256 string // of all of them: 64 hexadecimal digits
}

// BackupProgress is how far a backup is.
type BackupProgress struct {
	ShardsDone, Shards int // with the system shard; 0 before it is known
	Bytes              int64
}

// Backup writes a backup of the whole cluster to w, while the cluster serves: what `pawl backup` does, and what `pawl
// restore` takes. All that was answered before the call is in it. Progress, if not nil, is told how far it is after each
// piece; it runs on the calling goroutine.
//
// After an error what was written is of no use. Backup is never repeated by itself. ErrUnavailable: a shard has no leader, its
// node stopped, or another backup is being made by the node that was asked. ErrWrongState: the server is too old to make
// one.
func (a Cluster) Backup(ctx context.Context, w io.Writer, progress func(BackupProgress)) (*BackupSummary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream, if w failed
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
			return nil, fmt.Errorf("backup: %w", &pawltype.Error{Code: pawltype.ErrUnavailable, Message: "it ended before its end"})
		}
		if err != nil {
			return nil, a.backupError(ctx, err)
		}
		if _, err := w.Write(m.GetData()); err != nil {
			return nil, fmt.Errorf("backup: %w", err)
		}
		_, _ = sum.Write(m.GetData())
		p.Bytes += int64(len(m.GetData()))
		if said := m.GetProgress(); said != nil {
			p.ShardsDone, p.Shards = int(said.GetShardsDone()), int(said.GetShards())
		}
		if progress != nil {
			progress(p)
		}
		if all := m.GetSummary(); all != nil {
			return backupInfo(all, p.Bytes, hex.EncodeToString(sum.Sum(nil)))
		}
	}
}

// backupInfo compares what came with what the server says that it sent.
func backupInfo(said *pawlv1.BackupSummary, bytes int64, sum string) (*BackupSummary, error) {
	if said.GetBytes() != bytes || said.GetSha256() != sum {
		return nil, fmt.Errorf("backup: %w", &pawltype.Error{Code: pawltype.ErrInternal, Message: fmt.Sprintf("%d bytes with SHA-256 %s came, %d with %s were sent",
			bytes, sum, said.GetBytes(), said.GetSha256())})
	}
	return &BackupSummary{Bytes: bytes, SHA256: sum}, nil
}

func (a calls) backupError(ctx context.Context, err error) error {
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("backup: %w", &pawltype.Error{Code: pawltype.ErrWrongState, Message: "the server is too old to make backups: upgrade it first"})
	}
	return fmt.Errorf("backup: %w", a.rpc.Failed(convert.CallError(ctx, err)))
}
