package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressBar shows how far long work is, on a terminal; elsewhere it is silent.
type progressBar struct {
	w     io.Writer // nil: silent
	label string
	total int

	mu    sync.Mutex
	last  time.Time
	drawn bool
}

const (
	barWidth   = 32
	redrawStep = 80 * time.Millisecond
)

// progress makes a bar on standard error.
func (a *app) progress(label string, total int) *progressBar {
	b := &progressBar{label: label, total: total}
	if isTerminal(a.err) && total > 0 {
		b.w = a.err
	}
	return b
}

// set says how many are done. It may be called by any number of goroutines.
func (b *progressBar) set(n int) { b.tell(n, "") }

// tell is set with a word behind the bar.
func (b *progressBar) tell(n int, word string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.w == nil || now.Sub(b.last) < redrawStep && n < b.total {
		return
	}
	b.last, b.drawn = now, true
	fmt.Fprintf(b.w, "\r%s  %s\x1b[K", bar(b.label, n, b.total), word)
}

// done takes the bar from the screen.
func (b *progressBar) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
	b.w = nil
}

// bar draws it: "enqueued  ━━━━━━━━────────  500/1000  50%".
func bar(label string, n, total int) string {
	n = max(0, min(n, total))
	full := barWidth * n / total
	return fmt.Sprintf("%s  %s%s  %d/%d  %d%%", label, strings.Repeat("━", full), strings.Repeat("─", barWidth-full), n, total, 100*n/total)
}
