package archive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxRecord bounds a record: a longer one is damaged, and the memory to read it is not spent.
	maxRecord = 64 << 20
	// block is about what is read at once.
	block = 64 << 10
)

// Read returns the record of a namespace at a place that Append returned.
func (a *Archive) Read(ns, place string) ([]byte, error) {
	name, start, ok := parsePlace(place)
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrPlace, place)
	}
	record, err := a.readAt(ns+"@"+name, start)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: %q", ErrNoRecord, place)
	case err != nil:
		return nil, fmt.Errorf("archive: %w", err)
	}
	return record, nil
}

// readAt returns the line that starts at an offset of a file; io.EOF: no complete line does.
func (a *Archive) readAt(name string, start int64) (line []byte, err error) {
	f, err := a.disk.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if start > 0 {
		var before [1]byte
		if _, err := f.ReadAt(before[:], start-1); err != nil {
			return nil, err
		}
		if before[0] != '\n' {
			return nil, io.EOF
		}
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f, start, maxRecord+1), block)
	if line, err = r.ReadBytes('\n'); err != nil {
		if len(line) > maxRecord {
			err = errLong(name, start)
		}
		return nil, err
	}
	return line[:len(line)-1], nil
}

func errLong(name string, at int64) error {
	return fmt.Errorf("%s: the record at byte %d is longer than %d bytes", name, at, maxRecord)
}

// List calls fn for the records of a namespace, newest first, until it returns false, or until the list has read as much as one may. It
// returns the cursor to continue from, "" at the end, and the files of which it left out records because they can't be read. cursor is what
// an earlier call returned, or "". A record is valid until fn returns.
func (a *Archive) List(ctx context.Context, ns, cursor string, fn func(place string, record []byte) bool) (next string, unread []string, err error) {
	last, end, ok := parsePlace(cursor)
	if cursor != "" && !ok {
		return "", nil, fmt.Errorf("%w: %q", ErrPlace, cursor)
	}
	names, err := a.names()
	if err != nil {
		return "", nil, fmt.Errorf("archive: %w", err)
	}
	left := a.cfg.MaxRead
	for _, full := range slices.Backward(names) {
		name, own := strings.CutPrefix(full, ns+"@")
		if !own || cursor != "" && name > last {
			continue
		}
		before := int64(-1)
		if name == last {
			before = end
		}
		next, err := a.listFile(ctx, full, before, &left, fn)
		switch {
		case next != "":
			return next, unread, nil
		case ctx.Err() != nil:
			return "", nil, fmt.Errorf("archive: %w", ctx.Err())
		case err != nil && !errors.Is(err, os.ErrNotExist): // otherwise it was trimmed meanwhile
			a.cfg.Logger.Error("a file of the dead-letter archive can't be read: a list leaves out records", "namespace", ns, "file", name, "error", err)
			unread = append(unread, name)
		}
	}
	return "", unread, nil
}

// listFile is List for the records of a file that end before an offset; -1: for all of them. It takes what it reads from left.
func (a *Archive) listFile(ctx context.Context, full string, before int64, left *int64, fn func(place string, record []byte) bool) (next string, err error) {
	f, err := a.disk.Open(full)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // what was read is whole
	size, _, err := a.disk.Stat(full)
	if err != nil {
		return "", err
	}
	if before < 0 || before > size {
		before = size
	}
	r := backward{ctx: ctx, file: f, name: full, at: before}
	for {
		record, start, err := r.line()
		switch {
		case errors.Is(err, io.EOF):
			return "", nil
		case err != nil:
			return "", err
		}
		*left -= int64(len(record)) + 1
		if place := placeOf(full, start); !fn(place, record) || *left <= 0 {
			return place, nil
		}
	}
}

// backward reads the lines of a file from a place back to the beginning.
type backward struct {
	ctx   context.Context
	file  io.ReaderAt
	name  string
	at    int64  // what precedes this offset was not read yet
	ahead []byte // what follows it, up to the last line that was returned
	whole bool   // ahead ends with a newline
}

// line returns the next complete line without its newline, and its offset; io.EOF: there are no more. The line is valid until the next
// call. What follows the last newline was truncated by a crash, and never acknowledged.
func (r *backward) line() (line []byte, start int64, err error) {
	for {
		end := len(r.ahead)
		if r.whole {
			end--
		}
		i := bytes.LastIndexByte(r.ahead[:end], '\n')
		switch {
		case i < 0 && r.at > 0:
			if err := r.more(); err != nil {
				return nil, 0, err
			}
		case i < 0 && !r.whole:
			return nil, 0, io.EOF
		case !r.whole:
			r.ahead, r.whole = r.ahead[:i+1], true
		default:
			line, start = r.ahead[i+1:end], r.at+int64(i+1)
			r.ahead, r.whole = r.ahead[:i+1], i >= 0
			return line, start, nil
		}
	}
}

// more reads what precedes into the same buffer, unless that is nearly full.
func (r *backward) more() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	have := len(r.ahead)
	if have > maxRecord {
		return errLong(r.name, r.at)
	}
	if cap(r.ahead)-have < block/2 { // for as much again as there is, so that a long line is copied few times
		bigger := make([]byte, have, 2*have+block)
		copy(bigger, r.ahead)
		r.ahead = bigger
	}
	n := min(int64(cap(r.ahead)-have), r.at)
	r.ahead = r.ahead[:int(n)+have]
	copy(r.ahead[n:], r.ahead[:have])
	if got, err := r.file.ReadAt(r.ahead[:n], r.at-n); got < int(n) {
		return fmt.Errorf("%s: %d of %d bytes at byte %d: %v", r.name, got, n, r.at-n, err) // an io.EOF, of a file that was cut, is not the list's
	}
	r.at -= n
	return nil
}

// placeOf returns the place of the record that starts at an offset of a file. Bytes are counted from 1.
func placeOf(file string, start int64) string {
	_, name, _ := strings.Cut(file, "@")
	return name + ":" + strconv.FormatInt(start+1, 10)
}

// placeForm matches FILE:BYTE, with a file name as created by begin, without its namespace.
var placeForm = regexp.MustCompile(`^(dead-[0-9A-Za-z.~-]{1,64}\.jsonl):([1-9][0-9]{0,17})$`)

func parsePlace(place string) (name string, start int64, ok bool) {
	parts := placeForm.FindStringSubmatch(place)
	if parts == nil {
		return "", 0, false
	}
	n, err := strconv.ParseInt(parts[2], 10, 64)
	return parts[1], n - 1, err == nil
}
