package cli

import (
	"io"
	"os"
)

// ReadFile reads a file that the user named, which may have at most so many bytes.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name) // #nosec G304 -- the caller's own file
	if err != nil {
		return nil, AsUsage(err)
	}
	defer func() { _ = f.Close() }()
	return ReadAll(f, name, limit)
}

// ReadAll reads an input, which may have at most so many bytes. Name is for the error.
func ReadAll(from io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = Usage("%s: more than %d bytes", name, limit)
	}
	return data, err
}
