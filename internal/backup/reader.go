package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"
)

// Reader reads a backup part by part. It checks every block before it returns any of it.
type Reader struct {
	Head Head

	r     io.Reader
	at    int64     // where the next block begins
	all   hash.Hash // of all bytes before at
	sum   hash.Hash // of the part
	part  Part      // the current part: only Bytes is known until it ends
	ended int       // parts read completely
	rest  []byte    // of the last block of data
	err   error     // of the part; io.EOF: it was read completely
}

// NewReader reads the head of a backup. key is that of an encrypted backup; a backup that is not encrypted must be read without. Errors are
// ErrEncrypted, ErrPlain, ErrKey, ErrNotBackup, ErrVersion, ErrDamaged and those of r.
func NewReader(r io.Reader, key string) (*Reader, error) {
	r, err := opened(r, key)
	if err != nil {
		return nil, err
	}
	b := &Reader{r: r, all: sha256.New(), sum: sha256.New(), err: io.EOF}
	begin := make([]byte, len(magic)+1)
	switch n, err := io.ReadFull(r, begin); {
	case n < len(begin) && !cut(err):
		return nil, err
	case n < len(begin) || string(begin[:len(magic)]) != magic:
		return nil, ErrNotBackup
	}
	if v := begin[len(magic)]; v != Version {
		return nil, fmt.Errorf("%w: it has format %d, this version of pawl knows %d", ErrVersion, v, Version)
	}
	b.passed(begin)
	kind, body, err := b.block()
	if err != nil {
		return nil, err
	}
	if kind != blockHead {
		return nil, b.damaged("it has no header")
	}
	if err := b.parse(body, &b.Head); err != nil {
		return nil, err
	}
	if n := len(b.Head.Shards); n == 0 || n > maxParts || len(slices.Compact(slices.Sorted(slices.Values(b.Head.Shards)))) < n {
		return nil, b.damaged("its header names %d shards", n)
	}
	return b, nil
}

// Next advances to the next part, whose state Read returns, and returns the part's shard. The previous part must have been read to
// its end. After the last part, Next checks that the backup is complete and that nothing follows, and returns io.EOF.
func (b *Reader) Next() (shard uint32, err error) {
	if !errors.Is(b.err, io.EOF) {
		return 0, fmt.Errorf("part %d was not read to its end", b.ended)
	}
	if b.ended == len(b.Head.Shards) {
		return 0, b.finish()
	}
	b.part, b.err = Part{}, nil
	b.sum.Reset()
	return b.Head.Shards[b.ended], nil
}

// Part returns the backup's description of the part that was last read to its end, which has been verified.
func (b *Reader) Part() Part { return b.part }

// Read reads the state of a shard. It returns io.EOF only if all of the state arrived undamaged.
func (b *Reader) Read(p []byte) (int, error) {
	for len(b.rest) == 0 && b.err == nil {
		b.rest, b.err = b.data()
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// data returns the next block of data of a part, or the error that ends the part.
func (b *Reader) data() ([]byte, error) {
	kind, body, err := b.block()
	switch {
	case err != nil:
		return nil, err
	case kind == blockData:
		_, _ = b.sum.Write(body)
		b.part.Bytes += int64(len(body))
		return body, nil
	case kind != blockPartEnd:
		return nil, b.damaged("it has a block of kind %q instead of data", kind)
	}
	var recorded Part
	if err := b.parse(body, &recorded); err != nil {
		return nil, err
	}
	if recorded.Shard != b.Head.Shards[b.ended] || recorded.Bytes != b.part.Bytes || !bytes.Equal(recorded.SHA256, b.sum.Sum(nil)) {
		return nil, b.damaged("the state of shard %d differs from what was written", b.Head.Shards[b.ended])
	}
	b.part = recorded
	b.ended++
	return nil, io.EOF
}

// finish checks the end of the backup.
func (b *Reader) finish() error {
	sum, before := b.all.Sum(nil), b.at
	kind, body, err := b.block()
	if err != nil {
		return err
	}
	var recorded end
	if kind != blockEnd {
		return b.damaged("it has a block of kind %q instead of its end", kind)
	}
	if err := b.parse(body, &recorded); err != nil {
		return err
	}
	if recorded.Parts != b.ended || recorded.Bytes != before || !bytes.Equal(recorded.SHA256, sum) {
		return b.damaged("it differs from what was written")
	}
	n, err := io.ReadFull(b.r, make([]byte, 1))
	if n > 0 {
		return b.damaged("there is data after its end")
	}
	return err // io.EOF, unless the stream fails
}

// block reads a block and checks it.
func (b *Reader) block() (kind byte, body []byte, err error) {
	frame := make([]byte, frameBytes, frameBytes+sumBytes)
	if err := b.fill(frame); err != nil {
		return 0, nil, err
	}
	kind, size := frame[0], binary.BigEndian.Uint32(frame[1:])
	most := uint32(maxText)
	if kind == blockData {
		most = dataBlock
	}
	if size > most {
		return 0, nil, b.damaged("a block of kind %q has %d bytes, at most %d are allowed", kind, size, most)
	}
	all := append(frame, make([]byte, size+sumBytes)...)
	if err := b.fill(all[frameBytes:]); err != nil {
		return 0, nil, err
	}
	end := len(all) - sumBytes
	if crc32.Checksum(all[:end], castagnoli) != binary.BigEndian.Uint32(all[end:]) {
		return 0, nil, b.damaged("the checksum of a block does not match")
	}
	b.passed(all)
	return kind, all[frameBytes:end], nil
}

func (b *Reader) fill(p []byte) error {
	_, err := io.ReadFull(b.r, p)
	if cut(err) {
		return b.damaged("it is truncated")
	}
	return err
}

// cut reports whether a stream ended.
func cut(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func (b *Reader) passed(p []byte) {
	_, _ = b.all.Write(p)
	b.at += int64(len(p))
}

func (b *Reader) parse(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return b.damaged("%v", err)
	}
	return nil
}

// damaged returns an error with the reason and the position.
func (b *Reader) damaged(format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s", ErrDamaged, b.at, fmt.Sprintf(format, args...))
}

// WithProgress returns a reader that reads until its context ends, and reports how much it has read.
func WithProgress(ctx context.Context, r io.Reader, report func(read int64)) io.Reader {
	return &progressReader{ctx: ctx, r: r, report: report}
}

type progressReader struct {
	ctx    context.Context
	r      io.Reader
	read   int64
	report func(read int64)
}

// Read implements io.Reader.
func (s *progressReader) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.r.Read(p)
	s.read += int64(n)
	s.report(s.read)
	return n, err
}
