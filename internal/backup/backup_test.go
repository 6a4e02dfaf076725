package backup

import (
	"bytes"
	"context"
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
		for len(state) > 0 { // in pieces that don't fit blocks
			n := min(len(state), 1000)
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
func read(r io.Reader) (h Head, parts []Part, got [][]byte, err error) {
	b, err := NewReader(r)
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
			if !bytes.Equal(got[i], states[i]) || p.Shard != head.Shards[i] || p.Index != uint64(10+i) || p.Term != 3 || p.Bytes != int64(len(states[i])) {
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
		{"", ErrNotBackup}, {"pawl", ErrNotBackup}, {"#!/bin/sh\n", ErrNotBackup}, {"pawli\x01" + strings.Repeat("x", 100), ErrNotBackup},
		{magic + "\x02" + strings.Repeat("x", 100), ErrVersion}, {magic + "\x01", ErrDamaged},
		{magic + "\x01h\xff\xff\xff\xff", ErrDamaged}, // a length that would take all memory
	} {
		if _, err := NewReader(strings.NewReader(c.text)); !errors.Is(err, c.want) {
			t.Errorf("NewReader(%q): %v, want %v", c.text, err, c.want)
		}
	}
	broken := errors.New("the disk is on fire")
	if _, err := NewReader(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("NewReader of a stream that can't be read: %v", err)
	}
	if _, _, _, err := read(io.MultiReader(bytes.NewReader(written(t)[:3000]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("read of a stream that fails: %v", err)
	}
}

// A backup has each shard once, and ends with the context of who reads it.
func TestHeadsAndReadersThatEnd(t *testing.T) {
	for _, shards := range [][]uint32{nil, {1, 1, 0}, {1, 0, 1}} {
		var b bytes.Buffer
		if _, err := NewWriter(&b, Head{Shards: shards}); err != nil {
			t.Fatal(err)
		}
		if _, err := NewReader(&b); !errors.Is(err, ErrDamaged) {
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

// After a failed write, every further call returns the error.
func TestWriterError(t *testing.T) {
	full := errors.New("no space left")
	w, err := NewWriter(&limited{left: 1000, err: full}, head)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(make([]byte, 2*dataBlock))
	for _, err := range []error{err, w.EndPart(1, 1), w.EndPart(1, 1), w.EndPart(1, 1), w.Close()} {
		if !errors.Is(err, full) {
			t.Errorf("got %v, want the error of the failed write", err)
		}
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

// A part that was not read to its end can't be skipped.
func TestNextNeedsTheEnd(t *testing.T) {
	b, err := NewReader(bytes.NewReader(written(t)))
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
		"h\x00\x00\x00]{\"cluster\":\"c\",\"node\":\"n\",\"program\":\"p\",\"level\":1,\"time\":\"2026-02-03T04:05:06Z\",\"shards\":[0]}3O\x17\xa2" +
		"d\x00\x00\x00\x04rowsYFH\x99" +
		"p\x00\x00\x00`{\"shard\":0,\"index\":2,\"term\":1,\"bytes\":4,\"sha256\":\"vFHp5l154ckLpUSrLq4QRMzfjBr3pVm6N1y6Qnb32Z4=\"}V|\xf0\xe8" +
		"e\x00\x00\x00O{\"parts\":1,\"bytes\":226,\"sha256\":\"/OemdlTVhExlC9SoQ4XGCw1+QICUnzk0a+NiTFi/A2s=\"}@\x10\xcc\x12"
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
