package admin_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// backup returns the frames of a backup that ends with a summary of the given byte count and checksum.
func backup(bytes int, sum string) []any {
	return []any{
		&pawlv1.BackupResponse{Data: []byte(backupText[:backupHalf])},
		&pawlv1.BackupResponse{Progress: &pawlv1.BackupProgress{ShardsDone: 1, Shards: 2}},
		&pawlv1.BackupResponse{Data: []byte(backupText[backupHalf:])},
		&pawlv1.BackupResponse{Progress: &pawlv1.BackupProgress{ShardsDone: 2, Shards: 2}},
		&pawlv1.BackupResponse{Summary: &pawlv1.BackupSummary{Bytes: int64(bytes), Sha256: sum}},
	}
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestBackup(t *testing.T) {
	s, operator := start(t)
	whole := backup(len(backupText), sumOf(backupText))
	s.frames = [][]any{whole, whole}
	var got bytes.Buffer
	var told []admin.BackupProgress
	info, err := operator.WithActor("lena").Cluster().Backup(t.Context(), &got, func(p admin.BackupProgress) { told = append(told, p) })
	if err != nil || got.String() != backupText || *info != (admin.BackupSummary{Bytes: 17, SHA256: sumOf(backupText)}) {
		t.Errorf("Backup wrote %q and returned %+v, %v", got.String(), info, err)
	}
	if want := []admin.BackupProgress{{Bytes: 6}, {ShardsDone: 1, Shards: 2, Bytes: 6}, {ShardsDone: 1, Shards: 2, Bytes: 17},
		{ShardsDone: 2, Shards: 2, Bytes: 17}, {ShardsDone: 2, Shards: 2, Bytes: 17}}; !slices.Equal(told, want) {
		t.Errorf("the progress is %+v, want %+v", told, want)
	}
	if calls := s.taken(); len(calls) != 1 || calls[0].method != "ClusterService/Backup" || fmt.Sprint(calls[0].actor) != "[lena]" {
		t.Errorf("the server got the calls %+v, want one Backup by lena", calls)
	}
	if _, err := operator.Cluster().Backup(t.Context(), io.Discard, nil); err != nil {
		t.Errorf("a backup without a progress function: %v", err)
	}
}

// An incomplete backup is an error, however it fails, and is never retried.
func TestBackupFails(t *testing.T) {
	full := errors.New("no space left")
	whole := backup(len(backupText), sumOf(backupText))
	for name, c := range map[string]struct {
		frames []any
		to     io.Writer
		want   error
		says   string
	}{
		"no end": {append(whole[:4:4], io.EOF), io.Discard, pawltype.ErrUnavailable,
			"backup: pawl: unavailable: the stream ended before the backup was complete"},
		"other bytes": {backup(17, "00"), io.Discard, pawltype.ErrInternal, "backup: pawl: internal: received 17 bytes with SHA-256 " +
			sumOf(backupText) + ", the server sent 17 with 00"},
		"fewer bytes": {backup(18, sumOf(backupText)), io.Discard, pawltype.ErrInternal, ", the server sent 18 with "},
		"cut off": {append(whole[:2:2], status.Error(codes.Unavailable, "gone")), io.Discard, pawltype.ErrUnavailable,
			"backup: pawl: unavailable: gone"},
		"refused": {[]any{status.Error(codes.PermissionDenied, "no")}, io.Discard, pawltype.ErrPermissionDenied,
			"backup: pawl: permission_denied: no"},
		"old server": {[]any{time.Duration(0), status.Error(codes.Unimplemented, "")}, io.Discard, pawltype.ErrWrongState, "too old"},
		"disk full":  {whole, writerFunc(func([]byte) (int, error) { return 0, full }), full, "backup: no space left"},
	} {
		s, operator := start(t)
		s.frames = [][]any{c.frames}
		info, err := operator.Cluster().Backup(t.Context(), c.to, nil)
		if info != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %+v, %v, want %q", name, info, err, c.says)
		}
	}
	s, operator := start(t)
	if _, err := operator.WithActor("Łena").Cluster().Backup(t.Context(), io.Discard, nil); !errors.Is(err, pawltype.ErrInvalidArgument) ||
		len(s.taken()) > 0 {
		t.Errorf("a backup by an invalid actor: %v, want ErrInvalidArgument", err)
	}
}

// A caller that gives up gets the error of its context, and the abandoned stream ends.
func TestBackupCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, operator := start(t)
		s.frames = [][]any{{time.Hour}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := operator.Cluster().Backup(ctx, io.Discard, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a cancelled backup returned %v, want DeadlineExceeded", err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
