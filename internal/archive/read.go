package archive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// maxRecord bounds a record: a longer one is damaged, and the memory to read it is not spent.
const maxRecord = 64 << 20

// File is a file of an archive, for reading. Its node may append to it meanwhile, or remove it.
type File struct {
	Namespace string
	path      string
}

// FilesIn lists the files of an archive, those of a namespace together, the oldest first. Dir is the archive's directory, or the data
// directory that has it.
func FilesIn(dir string) (files []File, err error) {
	if info, err := os.Stat(filepath.Join(dir, DirName)); err == nil && info.IsDir() {
		dir = filepath.Join(dir, DirName)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries { // in the order of their names
		if isFile(e.Name()) {
			files = append(files, File{namespaceOf(e.Name()), filepath.Join(dir, e.Name())})
		}
	}
	return files, nil
}

// isFile reports whether a name is that of a file of an archive.
func isFile(name string) bool {
	return strings.Contains(name, "@"+prefix) && strings.HasSuffix(name, suffix)
}

// namespaceOf returns the namespace that a file belongs to.
func namespaceOf(name string) string {
	ns, _, _ := strings.Cut(name, "@")
	return ns
}

// Place is where a record is.
type Place struct {
	File
	at int64
}

// String returns FILE:BYTE. Bytes are counted from 1.
func (p Place) String() string { return fmt.Sprintf("%s:%d", p.path, p.at+1) }

// Read reads the record.
func (p Place) Read() (Record, error) {
	for f, err := range p.records(p.at) {
		return f.Record, err
	}
	return Record{}, fmt.Errorf("%s: the record is gone", p)
}

// Found is a record of an archive.
type Found struct {
	Place
	Record
}

// Records reads the records of the file, oldest first. One that is damaged comes as an error that names its place, and
// the next ones follow. A file that was removed meanwhile has none, and a line without an end is none: it was never
// acknowledged.
func (f File) Records() iter.Seq2[Found, error] { return f.records(0) }

func (f File) records(from int64) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		info, err := os.Lstat(f.path) // a pipe would block, and a link may lead anywhere
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s: is not a regular file", f.path)
		}
		var file *os.File
		if err == nil {
			file, err = os.Open(f.path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if err != nil {
			yield(Found{}, err)
			return
		}
		defer file.Close() //nolint:errcheck // it was only read
		l := lines{r: bufio.NewReaderSize(io.NewSectionReader(file, from, math.MaxInt64-from), 64<<10), limit: maxRecord}
		for {
			line, start, err := l.next()
			found := Found{Place: Place{f, from + start}}
			switch {
			case errors.Is(err, io.EOF):
				return
			case err == nil:
				found.Record, err = decode(f.Namespace, line)
			case !errors.Is(err, errLong): // the disk's
				yield(found, fmt.Errorf("%s: %w", found.Place, err))
				return
			}
			if err != nil {
				err = fmt.Errorf("%s: the record is damaged: %w", found.Place, err)
			}
			if !yield(found, err) {
				return
			}
		}
	}
}

// lines reads lines.
type lines struct {
	r     *bufio.Reader
	limit int // bytes of a line
	at    int64
	line  []byte
}

var errLong = errors.New("it is too long for a record")

// next returns the next complete line without its newline, and its offset. The line is valid until the next call.
// io.EOF: there are no more. errLong: the line is too long, and was skipped.
func (l *lines) next() (line []byte, start int64, err error) {
	l.line, start = l.line[:0], l.at
	for {
		part, err := l.r.ReadSlice('\n')
		l.at += int64(len(part))
		if len(l.line) <= l.limit {
			l.line = append(l.line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, start, err
		case len(l.line) > l.limit+1:
			return nil, start, errLong
		default:
			return l.line[:len(l.line)-1], start, nil
		}
	}
}
