package administration

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"time"

	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
)

// Backup streams a backup of the whole cluster. REST has none: its answers could not say after the bytes that they are complete.
func (g *ClusterService) Backup(_ *pawlv1.BackupRequest, s grpc.ServerStreamingServer[pawlv1.BackupResponse]) error {
	operator, err := g.admin()
	if err != nil {
		return err
	}
	by, err := callinfo.Author(s.Context(), "")
	if err != nil {
		return err
	}
	g.Log.Info("backup begun", "by", by)
	began, out := time.Now(), &backupStream{to: s, sum: sha256.New()}
	if err := operator.Backup(s.Context(), by, out, out.progress); err != nil {
		g.Log.Warn("backup broken off", "bytes", out.bytes, "error", err)
		return err
	}
	g.Log.Info("backup", "bytes", out.bytes, "took", time.Since(began))
	return s.Send(&pawlv1.BackupResponse{Summary: &pawlv1.BackupSummary{Bytes: out.bytes, Sha256: hex.EncodeToString(out.sum.Sum(nil))}})
}

// backupStream forwards a backup. Each Write becomes one message.
type backupStream struct {
	to    grpc.ServerStreamingServer[pawlv1.BackupResponse]
	bytes int64
	sum   hash.Hash
}

// Write implements io.Writer.
func (b *backupStream) Write(p []byte) (int, error) {
	if err := b.to.Context().Err(); err != nil { // the token was revoked
		return 0, err
	}
	if err := b.to.Send(&pawlv1.BackupResponse{Data: p}); err != nil {
		return 0, err
	}
	_, _ = b.sum.Write(p)
	b.bytes += int64(len(p))
	return len(p), nil
}

func (b *backupStream) progress(done, total int) error {
	return b.to.Send(&pawlv1.BackupResponse{Progress: &pawlv1.BackupProgress{ShardsDone: apiproto.Int32Of(done),
		Shards: apiproto.Int32Of(total)}})
}
