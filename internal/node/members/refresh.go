package members

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/cluster"
)

// A node that was down while most members were replaced has a map without the present ones. They call it, but it must not believe nodes
// that its map doesn't have. So it asks those that it may believe: the members that it knows, and the addresses that its operator gave it
// with --join.

const (
	// refreshAge is how old the copy of the map must be: a node that reaches the system shard's leader gets every change from it at once.
	refreshAge = 5 * time.Second
	// refreshPause is the pause between two rounds of questions, and askTime bounds a round.
	refreshPause = time.Second
	askTime      = 3 * time.Second
)

// Refresher finds a newer map at other nodes.
type Refresher struct {
	wanted chan struct{}
}

// NewRefresher returns a refresher that doesn't run yet.
func NewRefresher() *Refresher { return &Refresher{make(chan struct{}, 1)} }

// Want says that a newer map is wanted.
func (r *Refresher) Want() {
	select {
	case r.wanted <- struct{}{}:
	default:
	}
}

// Sources say where this node is and whom it may ask.
type Sources struct {
	Self   string
	Copy   *cluster.Copy
	Age    func() time.Duration                                     // of the copy
	Member func(ctx context.Context, number uint32) ([]byte, error) // asks a member for its map
	Join   []string
	At     func(ctx context.Context, address string) *cluster.Map // of the node at an address of Join
	Logger *slog.Logger
}

// Run asks for a newer map whenever one is wanted and the leader doesn't answer, until ctx ends.
func (r *Refresher) Run(ctx context.Context, s Sources) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wanted:
		}
		if s.Age() > refreshAge {
			s.ask(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(refreshPause):
		}
	}
}

// ask asks all at once, and takes the newest map.
func (s Sources) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	others := slices.DeleteFunc(s.Copy.Map().Members(), func(m cluster.Node) bool { return m.Name == s.Self })
	found := make([]*cluster.Map, len(others)+len(s.Join))
	var calls sync.WaitGroup
	for i, m := range others {
		calls.Go(func() {
			if answer, err := s.Member(ctx, m.Number); err == nil {
				found[i], _ = cluster.DecodeMap(answer)
			}
		})
	}
	for i, address := range s.Join {
		calls.Go(func() { found[len(others)+i] = s.At(ctx, address) })
	}
	calls.Wait()
	for _, m := range found {
		if m != nil && s.Copy.Learn(m) {
			s.Logger.Info("a newer map of the cluster was found at another node", "version", m.Version)
		}
	}
}
