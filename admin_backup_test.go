package pawl_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	backupText = "all that there is"
	backupHalf = 6
)

// sendBackup sends a backup whose summary says what it is told to.
func sendBackup(s backupServer, summary *pawlv1.BackupSummary) error {
	for _, m := range []*pawlv1.BackupResponse{
		{Data: []byte(backupText[:backupHalf])}, {Progress: &pawlv1.BackupProgress{ShardsDone: 1, Shards: 2}},
		{Data: []byte(backupText[backupHalf:])}, {Progress: &pawlv1.BackupProgress{ShardsDone: 2, Shards: 2}},
	} {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	if summary == nil {
		return nil
	}
	return s.Send(&pawlv1.BackupResponse{Summary: summary})
}

func wholeSummary() *pawlv1.BackupSummary {
	sum := sha256.Sum256([]byte(backupText))
	return &pawlv1.BackupSummary{Bytes: int64(len(backupText)), Sha256: hex.EncodeToString(sum[:])}
}

func TestAdminBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		f.backup = func(s backupServer) error { return sendBackup(s, wholeSummary()) }
		var got bytes.Buffer
		var last admin.BackupProgress
		info, err := admin.New(client).Cluster().Backup(t.Context(), &got, func(p admin.BackupProgress) { last = p })
		if err != nil || got.String() != backupText || info.Bytes != int64(len(backupText)) || info.SHA256 != wholeSummary().GetSha256() {
			t.Errorf("got %q, %+v, %v", got.String(), info, err)
		}
		if want := (admin.BackupProgress{ShardsDone: 2, Shards: 2, Bytes: int64(len(backupText))}); last != want {
			t.Errorf("at the end the progress is %+v, want %+v", last, want)
		}
	})
}

// A backup that is not whole is an error, whatever way it fails, and none is repeated.
func TestAdminBackupFails(t *testing.T) {
	full := errors.New("no space left")
	for name, c := range map[string]struct {
		send func(backupServer) error
		to   io.Writer
		want error
		says string
	}{
		"no end":      {func(s backupServer) error { return sendBackup(s, nil) }, io.Discard, pawltype.ErrUnavailable, "before its end"},
		"other bytes": {func(s backupServer) error { return sendBackup(s, &pawlv1.BackupSummary{Bytes: 17, Sha256: "00"}) }, io.Discard, pawltype.ErrInternal, "were sent"},
		"fewer bytes": {func(s backupServer) error {
			all := wholeSummary()
			all.Bytes++
			return sendBackup(s, all)
		}, io.Discard, pawltype.ErrInternal, "were sent"},
		"cut off":    {func(backupServer) error { return status.Error(codes.Unavailable, "gone") }, io.Discard, pawltype.ErrUnavailable, "gone"},
		"old server": {nil, io.Discard, pawltype.ErrWrongState, "too old"},
		"disk full":  {func(s backupServer) error { return sendBackup(s, wholeSummary()) }, writerFunc(func([]byte) (int, error) { return 0, full }), full, "no space"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, client := start(t)
				calls := 0
				if c.send != nil {
					f.backup = func(s backupServer) error { calls++; return c.send(s) }
				}
				info, err := admin.New(client).Cluster().Backup(t.Context(), c.to, nil)
				if info != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || calls > 1 {
					t.Errorf("got %+v, %v after %d calls", info, err, calls)
				}
			})
		})
	}
}

// A caller who gives up gets the word of its context.
func TestAdminBackupCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		ctx, cancel := context.WithCancel(t.Context())
		f.backup = func(s backupServer) error {
			cancel()
			<-s.Context().Done()
			return s.Context().Err()
		}
		if _, err := admin.New(client).Cluster().Backup(ctx, io.Discard, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
