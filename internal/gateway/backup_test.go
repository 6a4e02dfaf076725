package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// received is what a client received of a backup.
type received struct {
	text     string
	progress []int32
	summary  *pawlv1.BackupSummary
	err      error
}

func receiveBackup(t *testing.T, client pawlv1.ClusterServiceClient) (got received) {
	t.Helper()
	s, err := client.Backup(t.Context(), &pawlv1.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := s.Recv()
		if err != nil {
			got.err = err
			return got
		}
		got.text += string(m.GetData())
		if p := m.GetProgress(); p != nil {
			got.progress = append(got.progress, p.GetShardsDone(), p.GetShards())
		}
		if m.GetSummary() != nil {
			got.summary = m.GetSummary()
		}
	}
}

// A backup ends with its checksum, and a failed one has none.
func TestBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		_, l := serve(t, f)
		client := pawlv1.NewClusterServiceClient(dial(t, l))
		const text = "the first, the second"
		sum := sha256.Sum256([]byte(text))
		got := receiveBackup(t, client)
		if !errors.Is(got.err, io.EOF) || got.text != text || !slices.Equal(got.progress, []int32{1, 2, 2, 2}) ||
			got.summary.GetBytes() != int64(len(text)) || got.summary.GetSha256() != hex.EncodeToString(sum[:]) {
			t.Errorf("backup = %+v", got)
		}
		f.admin.refuses = task.Unavailable(0, "shard 2: it has no leader")
		got = receiveBackup(t, client)
		if status.Code(got.err) != codes.Unavailable || got.summary != nil || got.text != "the first, " {
			t.Errorf("failed backup = %+v", got)
		}
	})
}

// deafBackup is a stream whose client accepts nothing.
type deafBackup struct {
	grpc.ServerStreamingServer[pawlv1.BackupResponse]
	ctx context.Context
}

func (s deafBackup) Context() context.Context        { return s.ctx }
func (deafBackup) Send(*pawlv1.BackupResponse) error { return io.ErrClosedPipe }

// A backup is recorded with exactly one author.
func TestBackupByTwo(t *testing.T) {
	byTwo, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
	byTwo = metadata.NewIncomingContext(byTwo, metadata.Pairs("pawl-actor", "a", "pawl-actor", "b"))
	if err := (newGateway(newFake()).services.cluster).Backup(nil, deafBackup{ctx: byTwo}); !errors.Is(err, task.ErrInvalidArgument) {
		t.Errorf("Backup with two actors: %v, want an invalid argument", err)
	}
}
