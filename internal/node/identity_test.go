package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl"

	"github.com/pawlq/pawl/internal/node/datadir"
)

func TestOneNodePerDirectory(t *testing.T) {
	dir := t.TempDir()
	first := start(t, Config{Dir: dir})
	refused(t, Config{Dir: dir}, dir, "is in use by another process")
	if _, err := first.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"}); err != nil {
		t.Errorf("the first node, after the second was refused: %v", err)
	}
	first.end()
	start(t, Config{Dir: dir})
}

// Only their owner may read the files of a node, even in a directory that others may enter.
func TestDataIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	for range 2 {
		s := start(t, Config{Dir: dir})
		if _, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"}); err != nil {
			t.Fatal(err)
		}
		s.end()
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if files++; err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil || files < 10 {
		t.Errorf("%d files: %v", files, err)
	}
}

// A directory's contents say whose it is, and another's is never used.
func TestForeignDataIsRefused(t *testing.T) {
	for _, part := range []string{datadir.IdentityFile, "raft", "shard-0000", "shard-0001"} {
		t.Run(part, func(t *testing.T) {
			if part != "raft" {
				bySameGoroutines(t, "TestForeignDataIsRefused/raft")
			}
			mine, other := t.TempDir(), t.TempDir()
			start(t, Config{Dir: mine}).end()
			start(t, Config{Dir: other}).end()
			swap(t, filepath.Join(mine, part), filepath.Join(other, part))
			refused(t, Config{Dir: mine}, mine, "of another cluster")
			swap(t, filepath.Join(mine, part), filepath.Join(other, part))
			start(t, Config{Dir: mine}).end()
			start(t, Config{Dir: other}).end()
		})
	}
}

func swap(t *testing.T, a, b string) {
	t.Helper()
	aside := filepath.Join(t.TempDir(), "aside")
	for _, move := range [][2]string{{a, aside}, {b, a}, {aside, b}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBadIdentityIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Config{Dir: dir})
	cluster := s.ClusterID()
	s.end()
	path := filepath.Join(dir, datadir.IdentityFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ content, want string }{
		"empty":         {"", `node.json" is damaged: unexpected end`},
		"cut short":     {string(good[:len(good)/2]), `node.json" is damaged: its checksum does not match`},
		"zeros":         {string(make([]byte, len(good))), `node.json" is damaged: invalid character`},
		"no cluster":    {with(t, good, "cluster", ""), `node.json" is damaged: cluster is ""`},
		"odd cluster":   {with(t, good, "cluster", "zz"+cluster[2:]), `node.json" is damaged: cluster is "zz`},
		"no node":       {with(t, good, "node", 0), `node.json" is damaged: node is 0`},
		"no nonce":      {with(t, good, "nonce", ""), `node.json" is damaged: nonce is ""`},
		"old, no shard": {with(t, good, "format", 1), `node.json" is damaged: it has 0 shards`},
		"newer version": {with(t, good, "format", 3), "node.json has format 3, this version knows 2"},
		"other node":    {with(t, good, "node", 2), "of another cluster or node"},
	} {
		put(t, path, c.content)
		put(t, path+".copy", c.content)
		t.Run(name, func(t *testing.T) { refused(t, Config{Dir: dir}, dir, c.want) })
	}
	for _, file := range []string{path, path + ".copy", filepath.Join(dir, datadir.MapFile)} {
		// it may have ended before that was written
		if err := os.Remove(file); err != nil && !(filepath.Base(file) == datadir.MapFile && errors.Is(err, fs.ErrNotExist)) {
			t.Fatal(err)
		}
	}
	refused(t, Config{Dir: dir}, dir, `node.json" is damaged: it is missing, and "raft" is there`)
	put(t, filepath.Join(dir, datadir.MapFile), "{}")
	refused(t, Config{Dir: dir}, dir, `node.json" is damaged: it is missing, and "cluster.map" is there`)
	put(t, path, string(good))
	if s := start(t, Config{Dir: dir}); s.ClusterID() != cluster {
		t.Errorf("with its identity back it is of cluster %s, want %s", s.ClusterID(), cluster)
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whichever bit of either identity file is flipped, or if one of them is lost, the node starts with its identity, and both files
// are intact again. A file from a release without the copy and the checksum is valid too.
func TestIdentityIsKeptTwice(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Config{Dir: dir, DataShards: 2})
	want := s.dir.Identity.Read()
	s.end()
	path := filepath.Join(dir, datadir.IdentityFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sound := func(what string) {
		t.Helper()
		got, err := datadir.LoadIdentity(vfs.Default, dir, slog.New(slog.DiscardHandler))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read %+v, %v", what, got, err)
		}
		for _, file := range []string{datadir.IdentityFile, datadir.IdentityCopy} {
			if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(text) != string(good) {
				t.Errorf("%s: %s is %q, %v", what, file, text, err)
			}
		}
	}
	sound("untouched")
	for _, file := range []string{path, filepath.Join(dir, datadir.IdentityCopy)} {
		for bit := 0; bit < 8*len(good); bit += 7 { // covers every bit position within a byte
			spoilt := slices.Clone(good)
			spoilt[bit/8] ^= 1 << (bit % 8)
			if bit/8 < len(`{"sum":"`) && file == path {
				continue // without the checksum's field it looks like an older release's, with the same contents
			}
			put(t, file, string(spoilt))
			sound(fmt.Sprintf("bit %d of %s", bit, file))
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		sound(file + " is missing")
	}
	old := with(t, good, "sum", "")
	put(t, path, old)
	good = []byte(old)
	sound("of an older release")
	if s := start(t, Config{Dir: dir}); !reflect.DeepEqual(s.dir.Identity.Read(), want) {
		t.Errorf("it is %+v, want %+v", s.dir.Identity.Read(), want)
	}
}

// A foreign directory is not mistaken for one that has lost its identity.
func TestForeignDirectoryIsNotDamage(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "letters"), "mine")
	_, err := tryStart(t, Config{Dir: dir})
	if err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "it is not a data directory") {
		t.Errorf("started in it: %v", err)
	}
}

// with returns the identity with another value for one field.
func with(t *testing.T, identity []byte, field string, value any) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(identity, &fields); err != nil {
		t.Fatal(err)
	}
	fields[field] = value
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
