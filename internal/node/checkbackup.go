package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pawlq/pawl/internal/backup"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/store"
)

// Backup describes the contents of a backup.
type Backup struct {
	backup.Head
	Bytes int64
	Parts []BackupPart // the system shard is last
}

// BackupPart describes the state of a shard in a backup.
type BackupPart struct {
	Shard       uint32
	Index, Term uint64
	Bytes       int64
	Rows        uint64
}

// CheckBackup reads a whole backup and returns what it holds. It fails if anything in it has changed since it was written, or this
// version can't restore it. key is that of an encrypted backup. Progress is called with the number of bytes read, and the total.
func CheckBackup(ctx context.Context, file, key string, progress func(read, of int64)) (Backup, error) {
	return readBackup(ctx, file, key, progress, checkPart)
}

// readBackup reads a backup, calling take for each part, which need not read to its end, and returns what it holds.
func readBackup(ctx context.Context, file, key string, progress func(read, of int64),
	take func(h backup.Head, id uint32, image io.Reader) (BackupPart, error)) (out Backup, err error) {
	f, err := os.Open(file)
	if err != nil {
		return out, err
	}
	defer f.Close()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return out, err
	}
	if !info.Mode().IsRegular() {
		return out, errors.New("it is not a file, and a backup is read more than once")
	}
	out.Bytes = info.Size()
	b, err := backup.NewReader(backup.WithProgress(ctx, f, func(read int64) { progress(read, out.Bytes) }), key)
	if err != nil {
		return out, err
	}
	if out.Head = b.Head; len(b.Head.Cluster) != 2*datadir.NonceLen || b.Head.Shards[len(b.Head.Shards)-1] != systemShard {
		return out, fmt.Errorf("%w: it is of cluster %q, shards %d", backup.ErrDamaged, b.Head.Cluster, b.Head.Shards)
	}
	if b.Head.Level < minLevel || b.Head.Level > maxLevel {
		return out, levelError(b.Head.Level)
	}
	for {
		id, err := b.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		p, err := take(b.Head, id, b)
		if err == nil {
			_, err = io.Copy(io.Discard, b)
		}
		if err != nil {
			return out, fmt.Errorf("shard %d: %w", id, err)
		}
		part := b.Part()
		if part.Index != p.Index || part.Term != p.Term {
			return out, fmt.Errorf("%w: shard %d is after entry %d of term %d, should be after entry %d of term %d", backup.ErrDamaged, id,
				p.Index, p.Term, part.Index, part.Term)
		}
		p.Shard, p.Bytes = id, part.Bytes
		out.Parts = append(out.Parts, p)
	}
}

func levelError(level int) error {
	return fmt.Errorf("its cluster works at feature level %d, this version of pawl knows %d to %d: use another version", level,
		minLevel, maxLevel)
}

// checkPart checks the state of a shard without storing it.
func checkPart(h backup.Head, id uint32, image io.Reader) (p BackupPart, err error) {
	head, rows, err := store.CheckImage(image)
	if err != nil {
		return p, err
	}
	if of := hex.EncodeToString(head.Cluster[:]); of != h.Cluster || head.Shard != id {
		return p, fmt.Errorf("%w: found the state of shard %d of cluster %s", backup.ErrDamaged, head.Shard, of)
	}
	return BackupPart{Index: head.Position.Index, Term: head.Position.Term, Rows: rows}, nil
}
