package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawlq/pawl"
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

// What lies in a directory says whose it is, and another's is never taken for one's own.
func TestOthersDataIsRefused(t *testing.T) {
	for _, part := range []string{identityFile, "raft", "shard-0000", "shard-0001"} {
		t.Run(part, func(t *testing.T) {
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
	path := filepath.Join(dir, identityFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ content, want string }{
		"empty":         {"", "node.json is damaged"},
		"cut short":     {string(good[:len(good)/2]), "node.json is damaged"},
		"zeros":         {string(make([]byte, len(good))), "node.json is damaged"},
		"no cluster":    {with(t, good, "cluster", ""), `node.json is damaged (cluster "")`},
		"odd cluster":   {with(t, good, "cluster", "zz"+cluster[2:]), "node.json is damaged (cluster"},
		"no node":       {with(t, good, "node", 0), "node.json is damaged (node 0)"},
		"no nonce":      {with(t, good, "nonce", ""), `node.json is damaged (nonce "")`},
		"old, no shard": {with(t, good, "format", 1), "node.json is damaged (0 shards)"},
		"newer version": {with(t, good, "format", 3), "node.json has format 3, this version knows 2"},
		"other node":    {with(t, good, "node", 2), "of another cluster or node"},
	} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { refused(t, Config{Dir: dir}, dir, c.want) })
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refused(t, Config{Dir: dir}, dir, "has no node.json but is not empty")
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if s := start(t, Config{Dir: dir}); s.ClusterID() != cluster {
		t.Errorf("with its identity back it is of cluster %s, want %s", s.ClusterID(), cluster)
	}
}

// with is an identity of which one field has another value.
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
