package text

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// ProgressBar shows the progress of long work on a terminal; elsewhere it prints nothing.
type ProgressBar struct {
	w     io.Writer // nil: silent
	label string
	total int

	mu    sync.Mutex
	last  time.Time
	drawn bool
}

// NewProgressBar returns a bar on w.
func NewProgressBar(w io.Writer, label string, total int) *ProgressBar {
	b := &ProgressBar{label: label, total: total}
	if IsTerminal(w) && total > 0 {
		b.w = w
	}
	return b
}

const (
	barWidth   = 32
	redrawStep = 80 * time.Millisecond
)

// Set sets how many are done. It is safe for concurrent use.
func (b *ProgressBar) Set(n int) { b.Tell(n, "") }

// Tell is Set with a word after the bar.
func (b *ProgressBar) Tell(n int, word string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.w == nil || now.Sub(b.last) < redrawStep && n < b.total {
		return
	}
	b.last, b.drawn = now, true
	fmt.Fprintf(b.w, "\r%s  %s\x1b[K", bar(b.label, n, b.total), word)
}

// Done removes the bar from the screen.
func (b *ProgressBar) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
	b.w = nil
}

// bar renders the bar: "enqueued  ━━━━━━━━────────  500/1000  50%".
func bar(label string, n, total int) string {
	n = max(0, min(n, total))
	full := barWidth * n / total
	return fmt.Sprintf("%s  %s%s  %d/%d  %d%%", label, strings.Repeat("━", full), strings.Repeat("─", barWidth-full), n, total, 100*n/total)
}
