package administration

import (
	"context"
	"crypto/sha256"
	"io"
	"testing"

	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Bytes that can't be sent are not counted as written, and nothing is sent after the call was cancelled.
func TestUndeliveredBackup(t *testing.T) {
	revoked, revoke := context.WithCancel(t.Context())
	revoke()
	for want, ctx := range map[error]context.Context{io.ErrClosedPipe: t.Context(), context.Canceled: revoked} {
		b := &backupStream{to: deafBackup{ctx: ctx}, sum: sha256.New()}
		if n, err := b.Write([]byte("ab")); n != 0 || err != want || b.bytes != 0 {
			t.Errorf("Write reported %d bytes and counted %d, error %v, want none and %v", n, b.bytes, err, want)
		}
	}
}

// deafBackup accepts nothing.
type deafBackup struct {
	grpc.ServerStreamingServer[pawlv1.BackupResponse]
	ctx context.Context
}

func (s deafBackup) Context() context.Context { return s.ctx }

func (deafBackup) Send(*pawlv1.BackupResponse) error { return io.ErrClosedPipe }
