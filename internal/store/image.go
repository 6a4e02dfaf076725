package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cespare/xxhash/v2"
)

// An image is a state as a stream of bytes. It is sent to a replica that is new or lags, and it is part of a backup. It holds
// rows, not files, so that a reader of another release, or with another file format, can use it.
//
//	"pawl" 'i' version | blocks
//	block: kind 1 | length 4 | body | CRC-32C of all of it 4
//
// The first block is the head, with the identity and position of the state. Rows follow in the order of their keys. The last
// block is the end, with the number of rows and a checksum of them, so that a truncated stream is noticed.
const (
	imageMagic   = "pawli"
	imageVersion = 1

	blockHead = 'h'
	blockRows = 'r'
	blockEnd  = 'e'

	// imageBlock is the approximate size of a block of rows. A single row may be larger.
	imageBlock = 256 << 10
	// maxBlock bounds the size of a block that is read: a block plus the largest row, a task's envelope.
	maxBlock = 64 << 20
	// blockFrame is the size of a block without its body.
	blockFrame = 1 + 4 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrImage: a stream is not a valid image.
var ErrImage = errors.New("image is damaged")

// ImageHead identifies the state in an image.
type ImageHead struct {
	Cluster  [16]byte
	Shard    uint32
	Epoch    uint64
	Position Position
}

// Position returns the position of the last entry in the snapshot.
func (s *Snapshot) Position() (Position, error) {
	b, ok := s.Get(positionKey)
	if !ok {
		return Position{}, nil
	}
	return decodePosition(b)
}

// WriteImage writes the snapshot as an image.
func (s *Snapshot) WriteImage(w io.Writer) error {
	pos, err := s.Position()
	if err != nil {
		return err
	}
	epoch, err := epochIn(s)
	if err != nil {
		return err
	}
	iw := &imageWriter{w: w}
	if _, err := w.Write(append([]byte(imageMagic), imageVersion)); err != nil {
		return err
	}
	id := s.store.cfg.Identity
	iw.block(blockHead, encodeHead(ImageHead{Cluster: id.Cluster, Shard: id.Shard, Epoch: epoch, Position: pos}))
	s.eachRow(func(key, value []byte) bool {
		iw.row(key, value)
		return iw.err == nil
	})
	return iw.end()
}

// eachRow calls fn for all rows except the store's own, in order.
func (s *Snapshot) eachRow(fn func(key, value []byte) bool) { s.Scan(firstRow, nil, fn) }

// firstRow is below the keys of all rows except the store's own.
var firstRow = []byte{1}

// RowHash is a checksum of rows.
type RowHash struct {
	Sum  uint64
	Rows int64
	Next []byte // key from which the rows go on; nil: there are no more
}

// Hash returns a checksum of the rows from a key on, except the store's own: of all of them if size is 0, otherwise until they take that
// many bytes. It is the same for two replicas that have applied the same entries. whole is false if ctx ended first.
func (s *Snapshot) Hash(ctx context.Context, from []byte, size int64) (sum RowHash, whole bool) {
	h := xxhash.New()
	var b []byte
	taken := int64(0)
	if bytes.Compare(from, firstRow) < 0 {
		from = firstRow
	}
	s.Scan(from, nil, func(key, value []byte) bool {
		b = appendRow(b[:0], key, value)
		_, _ = h.Write(b)
		sum.Rows++
		if taken += int64(len(b)); size > 0 && taken >= size {
			sum.Next = append(bytes.Clone(key), 0)
			return false
		}
		return sum.Rows%1024 != 0 || ctx.Err() == nil
	})
	sum.Sum = h.Sum64()
	return sum, ctx.Err() == nil
}

func appendRow(b, key, value []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

type imageWriter struct {
	w    io.Writer
	buf  []byte
	rows uint64
	sum  xxhash.Digest
	err  error
}

func (w *imageWriter) row(key, value []byte) {
	if w.rows == 0 {
		w.sum.Reset()
	}
	w.buf = appendRow(w.buf, key, value)
	w.rows++
	if len(w.buf) >= imageBlock {
		w.flush()
	}
}

func (w *imageWriter) flush() {
	_, _ = w.sum.Write(w.buf)
	w.block(blockRows, w.buf)
	w.buf = w.buf[:0]
}

func (w *imageWriter) end() error {
	if w.rows == 0 {
		w.sum.Reset()
	}
	if len(w.buf) > 0 {
		w.flush()
	}
	w.block(blockEnd, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, w.rows), w.sum.Sum64()))
	return w.err
}

func (w *imageWriter) block(kind byte, body []byte) {
	if w.err != nil {
		return
	}
	b := make([]byte, 0, len(body)+blockFrame)
	b = binary.BigEndian.AppendUint32(append(b, kind), uint32(len(body)))
	b = append(b, body...)
	_, w.err = w.w.Write(binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
}

// imageReader reads blocks and checks them.
type imageReader struct {
	r    io.Reader
	rows uint64
	sum  xxhash.Digest
	last []byte // key of the last row
}

func (r *imageReader) head() (h ImageHead, err error) {
	magic := make([]byte, len(imageMagic)+1)
	if _, err := io.ReadFull(r.r, magic); err != nil {
		return h, fmt.Errorf("%w: %w", ErrImage, err)
	}
	if string(magic[:len(imageMagic)]) != imageMagic {
		return h, fmt.Errorf("%w: it does not start with an image's magic bytes", ErrImage)
	}
	if v := magic[len(imageMagic)]; v != imageVersion {
		return h, fmt.Errorf("image has version %d, this release knows %d", v, imageVersion)
	}
	kind, body, err := r.block()
	if err != nil {
		return h, err
	}
	if kind != blockHead {
		return h, fmt.Errorf("%w: no header", ErrImage)
	}
	r.sum.Reset()
	return decodeHead(body)
}

func (r *imageReader) block() (kind byte, body []byte, err error) {
	var frame [5]byte
	if _, err := io.ReadFull(r.r, frame[:]); err != nil {
		return 0, nil, fmt.Errorf("%w: it is truncated: %w", ErrImage, err)
	}
	n := binary.BigEndian.Uint32(frame[1:])
	if n > maxBlock {
		return 0, nil, fmt.Errorf("%w: block of %d bytes, at most %d are allowed", ErrImage, n, maxBlock)
	}
	// The buffer grows as data arrives, so that a wrong length takes no memory.
	var b bytes.Buffer
	b.Write(frame[:])
	if _, err := io.CopyN(&b, r.r, int64(n)+4); err != nil {
		return 0, nil, fmt.Errorf("%w: it is truncated: %w", ErrImage, err)
	}
	all := b.Bytes()
	end := len(all) - 4
	if crc32.Checksum(all[:end], castagnoli) != binary.BigEndian.Uint32(all[end:]) {
		return 0, nil, fmt.Errorf("%w: checksum of a block does not match", ErrImage)
	}
	return frame[0], all[len(frame):end], nil
}

// each calls fn with the rows of each block, and checks that the image is complete and in order.
func (r *imageReader) each(fn func(rows [][2][]byte) error) error {
	for {
		kind, body, err := r.block()
		switch {
		case err != nil:
			return err
		case kind == blockEnd:
			return r.checkEnd(body)
		case kind != blockRows:
			return fmt.Errorf("%w: block of unknown kind %d", ErrImage, kind)
		}
		_, _ = r.sum.Write(body)
		rows, err := r.parseRows(body)
		if err != nil {
			return err
		}
		if err := fn(rows); err != nil {
			return err
		}
	}
}

func (r *imageReader) parseRows(b []byte) (rows [][2][]byte, err error) {
	for len(b) > 0 {
		key, rest, ok := cutField(b)
		value, rest2, ok2 := []byte(nil), rest, false
		if ok {
			value, rest2, ok2 = cutField(rest)
		}
		if !ok2 || len(key) == 0 || key[0] == 0 || bytes.Compare(key, r.last) <= 0 {
			return nil, fmt.Errorf("%w: row %d", ErrImage, r.rows)
		}
		rows = append(rows, [2][]byte{key, value})
		r.last, r.rows, b = key, r.rows+1, rest2
	}
	return rows, nil
}

func (r *imageReader) checkEnd(body []byte) error {
	if len(body) != 16 || binary.BigEndian.Uint64(body) != r.rows || binary.BigEndian.Uint64(body[8:]) != r.sum.Sum64() {
		return fmt.Errorf("%w: it is incomplete", ErrImage)
	}
	return nil
}

// CheckImage reads an image to its end. It returns an error if the image is damaged, its head, and its number of rows.
func CheckImage(r io.Reader) (head ImageHead, rows uint64, err error) {
	ir := &imageReader{r: r}
	if head, err = ir.head(); err != nil {
		return head, 0, err
	}
	err = ir.each(func([][2][]byte) error { return nil })
	return head, ir.rows, err
}

func encodeHead(h ImageHead) []byte {
	b := append([]byte(nil), h.Cluster[:]...)
	b = binary.BigEndian.AppendUint32(b, h.Shard)
	b = binary.BigEndian.AppendUint64(b, h.Epoch)
	return append(b, encodePosition(h.Position)...)
}

func decodeHead(b []byte) (h ImageHead, err error) {
	if len(b) < 16+4+8 {
		return h, fmt.Errorf("%w: header of %d bytes", ErrImage, len(b))
	}
	copy(h.Cluster[:], b)
	h.Shard, h.Epoch = binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint64(b[20:])
	h.Position, err = decodePosition(b[28:])
	return h, err
}
