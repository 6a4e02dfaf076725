package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var head = Head{Cluster: strings.Repeat("ab", 16), Node: "n1", Program: "0.1.0", Level: 1,
	Time: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), Shards: []uint32{1, 2, 0}}

// states are the states of three shards: a small one, an empty one, and one of several blocks.
var states = [][]byte{[]byte("one"), nil, bytes.Repeat([]byte("zero"), dataBlock/2)}

// written returns a backup of states.
func written(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, head)
	if err != nil {
		t.Fatal(err)
	}
	for i, state := range states {
		for len(state) > 0 { // in pieces that don't fit blocks, or of one byte
			n := min(len(state), []int{1, 0, 1000}[i])
			if _, err := w.Write(state[:n]); err != nil {
				t.Fatal(err)
			}
			state = state[n:]
		}
		if err := w.EndPart(uint64(10+i), 3); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read reads a whole backup.
func read(r io.Reader) (h Head, parts []Part, got [][]byte, err error) { return readWith(r, "") }

// readWith reads a whole backup with a key.
func readWith(r io.Reader, key string) (h Head, parts []Part, got [][]byte, err error) {
	b, err := NewReader(r, key)
	if err != nil {
		return h, nil, nil, err
	}
	for {
		shard, err := b.Next()
		if errors.Is(err, io.EOF) {
			return b.Head, parts, got, nil
		}
		if err != nil {
			return b.Head, parts, got, err
		}
		state, err := io.ReadAll(b)
		if err != nil {
			return b.Head, parts, got, err
		}
		if b.Part().Shard != shard {
			return b.Head, parts, got, fmt.Errorf("shard %d was read as %d", b.Part().Shard, shard)
		}
		parts, got = append(parts, b.Part()), append(got, state)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, r := range []io.Reader{bytes.NewReader(written(t)), iotest.HalfReader(bytes.NewReader(written(t)))} {
		h, parts, got, err := read(r)
		if err != nil || !reflect.DeepEqual(h, head) || len(got) != len(states) {
			t.Fatalf("read %+v with %d parts, %v", h, len(got), err)
		}
		for i, p := range parts {
			if !bytes.Equal(got[i], states[i]) || p.Shard != head.Shards[i] || p.Index != uint64(10+i) || p.Term != 3 ||
				p.Bytes != int64(len(states[i])) {
				t.Errorf("part %d is %+v, with %d bytes, want %d", i, p, len(got[i]), len(states[i]))
			}
		}
	}
}

// A bit flipped anywhere is detected, and so is truncation anywhere.
func TestDamage(t *testing.T) {
	whole := written(t)
	refused := func(what string, b []byte) {
		t.Helper()
		_, _, _, err := read(bytes.NewReader(b))
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotBackup) && !errors.Is(err, ErrVersion) {
			t.Fatalf("%s: read returned %v, want an error for a damaged file", what, err)
		}
	}
	step := 1
	for at := 0; at < len(whole); at += step {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 1 << (at % 8)
		refused(fmt.Sprintf("bit flipped in byte %d of %d", at, len(whole)), flipped)
		refused(fmt.Sprintf("cut after %d of %d bytes", at, len(whole)), whole[:at])
		if at > 2000 { // the small parts were read byte by byte
			step = 4099
		}
	}
	for at := len(whole) - 500; at < len(whole); at++ {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 1
		refused(fmt.Sprintf("bit flipped in byte %d of %d", at, len(whole)), flipped)
	}
	flipped := bytes.Clone(whole)
	flipped[len(magic)+1+frameBytes] ^= 1
	if _, err := NewReader(bytes.NewReader(flipped), ""); err == nil || !strings.HasSuffix(err.Error(),
		"the checksum of a block does not match") {
		t.Errorf("NewReader of a head with another bit: %v", err)
	}
	refused("something behind the end", append(bytes.Clone(whole), 0))
	refused("two backups", append(bytes.Clone(whole), whole...))
}

// blocks returns the blocks of a backup.
func blocks(b []byte) (all [][]byte) {
	for b = b[len(magic)+1:]; len(b) > 0; {
		n := frameBytes + int(b[1])<<24 + int(b[2])<<16 + int(b[3])<<8 + int(b[4]) + sumBytes
		all, b = append(all, b[:n]), b[n:]
	}
	return all
}

// Blocks that are valid in themselves are detected out of place.
func TestMisplacedBlocks(t *testing.T) {
	whole := written(t)
	all := blocks(whole)
	join := func(order ...[]byte) []byte {
		return append(bytes.Clone(whole[:len(magic)+1]), bytes.Join(order, nil)...)
	}
	if len(all) != 1+(1+1)+(0+1)+(2+1)+1 { // of data and ends, between head and end
		t.Errorf("the backup has %d blocks, want full ones", len(all))
	}
	if !bytes.Equal(join(all...), whole) {
		t.Fatal("blocks does not split the backup correctly")
	}
	for i := range all {
		left := append(append([][]byte(nil), all[:i]...), all[i+1:]...)
		if _, _, _, err := read(bytes.NewReader(join(left...))); !errors.Is(err, ErrDamaged) {
			t.Errorf("without block %d of %d: %v, want ErrDamaged", i, len(all), err)
		}
		twice := append(append([][]byte(nil), all[:i+1]...), all[i:]...)
		if _, _, _, err := read(bytes.NewReader(join(twice...))); !errors.Is(err, ErrDamaged) {
			t.Errorf("with block %d of %d twice: %v, want ErrDamaged", i, len(all), err)
		}
	}
	swapped := append([][]byte(nil), all...)
	swapped[1], swapped[4] = swapped[4], swapped[1] // data of two shards
	if _, _, _, err := read(bytes.NewReader(join(swapped...))); !errors.Is(err, ErrDamaged) {
		t.Errorf("with the data of two shards swapped: %v, want ErrDamaged", err)
	}
}

func TestNoBackup(t *testing.T) {
	for _, c := range []struct {
		text string
		want error
	}{
		{"", ErrNotBackup}, {"pawl", ErrNotBackup}, {magic, ErrNotBackup}, {"#!/bin/sh\n", ErrNotBackup},
		{"pawli\x01" + strings.Repeat("x", 100), ErrNotBackup}, {magic + "\x02" + strings.Repeat("x", 100), ErrVersion},
		{magic + "\x01", ErrDamaged}, {magic + "\x01h\xff\xff\xff\xff", ErrDamaged}, // a length that would take all memory
	} {
		if _, err := NewReader(strings.NewReader(c.text), ""); !errors.Is(err, c.want) {
			t.Errorf("NewReader(%q): %v, want %v", c.text, err, c.want)
		}
	}
	broken := errors.New("the disk is on fire")
	if _, err := NewReader(iotest.ErrReader(broken), ""); !errors.Is(err, broken) {
		t.Errorf("NewReader of a stream that can't be read: %v", err)
	}
	for _, at := range []int{3, len(magic) + 1, len(magic) + 1 + frameBytes, 3000} {
		if _, _, _, err := read(io.MultiReader(bytes.NewReader(written(t)[:at]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
			t.Errorf("read of a stream that fails after %d bytes: %v", at, err)
		}
	}
}

// A backup has each shard once, and ends with the context of who reads it.
func TestHeadsAndReadersThatEnd(t *testing.T) {
	for _, shards := range [][]uint32{nil, {1, 1, 0}, {1, 0, 1}} {
		var b bytes.Buffer
		if _, err := NewWriter(&b, Head{Shards: shards}); err != nil {
			t.Fatal(err)
		}
		if _, err := NewReader(&b, ""); !errors.Is(err, ErrDamaged) {
			t.Errorf("NewReader of a backup of shards %v: %v, want ErrDamaged", shards, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var told []int64
	r := WithProgress(ctx, strings.NewReader("abcdef"), func(read int64) { told = append(told, read) })
	for range 2 {
		if n, err := r.Read(make([]byte, 2)); n != 2 || err != nil {
			t.Fatal(n, err)
		}
	}
	cancel()
	if n, err := r.Read(make([]byte, 2)); n != 0 || !errors.Is(err, context.Canceled) || !slices.Equal(told, []int64{2, 4}) {
		t.Errorf("after the context has ended, Read returns %d, %v, and the progress is %v", n, err, told)
	}
}

// After a failed write, every further call returns the error, and nothing more is written, even if the stream has recovered.
func TestWriterError(t *testing.T) {
	full := errors.New("no space left")
	out := &limited{left: 1000, err: full}
	w, err := NewWriter(out, head)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(make([]byte, 2*dataBlock))
	out.left = 100 * dataBlock
	n, again := w.Write(make([]byte, 2*dataBlock))
	for _, err := range []error{err, again, w.EndPart(1, 1), w.EndPart(1, 1), w.EndPart(1, 1), w.Close()} {
		if !errors.Is(err, full) {
			t.Errorf("got %v, want the error of the failed write", err)
		}
	}
	if n != 0 || out.left != 100*dataBlock {
		t.Errorf("after the failed write %d bytes were taken and %d written, want none", n, 100*dataBlock-out.left)
	}
}

// limited is a writer with little room.
type limited struct {
	left int
	err  error
}

func (w *limited) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, w.err
	}
	return len(p), nil
}

// A backup has as many shards as fit, and exactly as many parts.
func TestNumberOfParts(t *testing.T) {
	for shards, ok := range map[int]bool{maxParts: true, maxParts + 1: false} {
		var b bytes.Buffer
		h := Head{Shards: make([]uint32, shards)}
		for i := range h.Shards {
			h.Shards[i] = uint32(i)
		}
		if _, err := NewWriter(&b, h); (err == nil) != ok {
			t.Errorf("NewWriter of %d shards: %v", shards, err)
		}
		b.Reset()
		forged(&b, block{blockHead, encode(h)})
		if _, err := NewReader(&b, ""); (err == nil) != ok {
			t.Errorf("NewReader of %d shards: %v", shards, err)
		}
	}
	w, err := NewWriter(io.Discard, Head{Shards: []uint32{1}})
	if err = errors.Join(err, w.EndPart(1, 1)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if p := recover(); p != "backup: part 2 of 1" {
			t.Errorf("a second part of one: %v", p)
		}
	}()
	_ = w.EndPart(1, 1)
}

// block is a block to be written.
type block struct {
	kind byte
	body []byte
}

// forged writes blocks whose checksums are right, whatever is in them.
func forged(to io.Writer, all ...block) {
	w := &Writer{w: to, sum: sha256.New(), all: sha256.New()}
	w.write(append([]byte(magic), Version))
	for _, b := range all {
		if b.kind == blockEnd && b.body == nil { // the right one
			b.body = encode(end{1, w.bytes, w.all.Sum(nil)})
		}
		w.block(b.kind, b.body)
	}
}

// What is wrong in blocks with the right checksums is found, and named.
func TestForgedBlocks(t *testing.T) {
	sum := sha256.Sum256([]byte("rows"))
	head, data := block{blockHead, encode(Head{Shards: []uint32{7}})}, block{blockData, []byte("rows")}
	part := Part{Shard: 7, Index: 3, Term: 2, Bytes: 4, SHA256: sum[:]}
	otherShard, otherBytes, otherSum := part, part, part
	otherShard.Shard, otherBytes.Bytes, otherSum.SHA256 = 8, 5, make([]byte, 32)
	ends := func(p Part) block { return block{blockPartEnd, encode(p)} }
	var before bytes.Buffer
	forged(&before, head, data, ends(part))
	whole, size := sha256.Sum256(before.Bytes()), int64(before.Len())
	last := func(parts int, bytes int64, sum []byte) block { return block{blockEnd, encode(end{parts, bytes, sum})} }
	broken := errors.New("the disk is on fire")
	for _, c := range []struct {
		blocks []block
		after  io.Reader
		want   string
	}{
		{blocks: []block{head, data, ends(part), {blockEnd, nil}}},
		{blocks: []block{head, data, ends(part), last(1, size, whole[:])}},
		{blocks: []block{{'x', head.body}}, want: "it has no header"},
		{blocks: []block{{blockHead, []byte("what?")}}, want: "invalid character"},
		{blocks: []block{{blockHead, make([]byte, maxText+1)}}, want: "a block of kind 'h' has 65537 bytes, at most 65536 are allowed"},
		{blocks: []block{head, {blockData, make([]byte, dataBlock+1)}},
			want: "a block of kind 'd' has 262145 bytes, at most 262144 are allowed"},
		{blocks: []block{head}, want: "it is truncated"},
		{blocks: []block{head, data}, want: "it is truncated"},
		{blocks: []block{head, {'x', []byte("rows")}, ends(part), {blockEnd, nil}}, want: `it has a block of kind 'x' instead of data`},
		{blocks: []block{head, data, {blockPartEnd, []byte("what?")}}, want: "invalid character"},
		{blocks: []block{head, data, ends(otherShard), {blockEnd, nil}}, want: "the state of shard 7 differs from what was written"},
		{blocks: []block{head, data, ends(otherBytes), {blockEnd, nil}}, want: "the state of shard 7 differs from what was written"},
		{blocks: []block{head, data, ends(otherSum), {blockEnd, nil}}, want: "the state of shard 7 differs from what was written"},
		{blocks: []block{head, data, ends(part)}, want: "it is truncated"},
		{blocks: []block{head, data, ends(part), {'x', last(1, size, whole[:]).body}},
			want: `it has a block of kind 'x' instead of its end`},
		{blocks: []block{head, data, ends(part), {blockEnd, []byte("what?")}}, want: "invalid character"},
		{blocks: []block{head, data, ends(part), last(2, size, whole[:])}, want: "it differs from what was written"},
		{blocks: []block{head, data, ends(part), last(1, size+1, whole[:])}, want: "it differs from what was written"},
		{blocks: []block{head, data, ends(part), last(1, size, sum[:])}, want: "it differs from what was written"},
		{blocks: []block{head, data, ends(part), {blockEnd, nil}}, after: strings.NewReader("x"), want: "there is data after its end"},
		{blocks: []block{head, data, ends(part), {blockEnd, nil}}, after: iotest.ErrReader(broken), want: broken.Error()},
		{blocks: []block{head, data, ends(part)}, after: iotest.ErrReader(broken), want: broken.Error()},
	} {
		var b bytes.Buffer
		forged(&b, c.blocks...)
		r := io.Reader(&b)
		if c.after != nil {
			r = io.MultiReader(r, c.after)
		}
		_, parts, _, err := read(r)
		if c.want == "" && (err != nil || !reflect.DeepEqual(parts, []Part{part})) {
			t.Errorf("read returned %+v, %v, want %+v", parts, err, part)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrDamaged) == errors.Is(err, broken)) {
			t.Errorf("read of %q returned %v, want %q", c.blocks, err, c.want)
		}
	}
}

// A part that was not read to its end can't be skipped.
func TestNextNeedsTheEnd(t *testing.T) {
	b, err := NewReader(bytes.NewReader(written(t)), "")
	if err != nil {
		t.Fatal(err)
	}
	if shard, err := b.Next(); shard != 1 || err != nil {
		t.Fatalf("shard %d, %v", shard, err)
	}
	if _, err := b.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Next succeeded before the end of the part: %v", err)
	}
}

// The format is the same in all releases.
func TestFormat(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, Head{Cluster: "c", Node: "n", Program: "p", Level: 1, Time: head.Time, Shards: []uint32{0}})
	if err == nil {
		_, err = w.Write([]byte("rows"))
	}
	if err := errors.Join(err, w.EndPart(2, 1), w.Close()); err != nil {
		t.Fatal(err)
	}
	const want = "pawlb\x01" +
		"h\x00\x00\x00]{\"cluster\":\"c\",\"node\":\"n\",\"program\":\"p\",\"level\":1,\"time\":\"2026-02-03T04:05:06Z\"," +
		"\"shards\":[0]}3O\x17\xa2d\x00\x00\x00\x04rowsYFH\x99" +
		"p\x00\x00\x00`{\"shard\":0,\"index\":2,\"term\":1,\"bytes\":4," +
		"\"sha256\":\"vFHp5l154ckLpUSrLq4QRMzfjBr3pVm6N1y6Qnb32Z4=\"}V|\xf0\xe8e\x00\x00\x00O{\"parts\":1,\"bytes\":226," +
		"\"sha256\":\"/OemdlTVhExlC9SoQ4XGCw1+QICUnzk0a+NiTFi/A2s=\"}@\x10\xcc\x12"
	if got := b.String(); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// Whatever is read, a backup taken for complete has all its parts.
func FuzzReader(f *testing.F) {
	f.Add(written(f)[:2000])
	f.Add([]byte(magic + "\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, parts, _, err := read(bytes.NewReader(b)); err == nil && len(parts) != len(h.Shards) {
			t.Errorf("read accepted %d parts of %d", len(parts), len(h.Shards))
		}
	})
}
