package top

import (
	"context"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
)

// The terminal of pawl top: it shows what model draws, and passes on the keys that are pressed.

var styles = map[style]tcell.Style{
	stylePlain:    tcell.StyleDefault,
	styleDim:      tcell.StyleDefault.Dim(true),
	styleBold:     tcell.StyleDefault.Bold(true),
	styleHead:     tcell.StyleDefault.Dim(true).Underline(true),
	styleGood:     tcell.StyleDefault.Foreground(color.Green),
	styleWarn:     tcell.StyleDefault.Foreground(color.Olive),
	styleBad:      tcell.StyleDefault.Foreground(color.Red).Bold(true),
	styleSelected: tcell.StyleDefault.Reverse(true),
}

// run shows v on the screen until the user quits or ctx is done. It calls fetch for what to show.
func run(ctx context.Context, screen tcell.Screen, v *model, fetch func(context.Context) (shot, error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asks, answers := make(chan struct{}, 1), make(chan answer)
	go answerAsks(ctx, asks, answers, fetch)
	ask := func() {
		select {
		case asks <- struct{}{}:
		default: // a request is already pending
		}
	}
	ask()
	tick := time.NewTicker(v.every)
	defer tick.Stop()
	for {
		paint(screen, v)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !v.paused {
				ask()
			}
		case a := <-answers:
			v.take(a)
		case e, open := <-screen.EventQ():
			if !open {
				return
			}
			quit, now := handle(screen, v, e)
			if quit {
				return
			}
			if now {
				ask()
			}
		}
	}
}

// answer is the result of one fetch.
type answer struct {
	shot shot
	err  error
}

// answerAsks fetches in a goroutine of its own, so that a slow broker delays no key.
func answerAsks(ctx context.Context, asks <-chan struct{}, answers chan<- answer, fetch func(context.Context) (shot, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-asks:
		}
		s, err := fetch(ctx)
		select {
		case <-ctx.Done():
			return
		case answers <- answer{s, err}:
		}
	}
}

func handle(screen tcell.Screen, v *model, e tcell.Event) (quit, ask bool) {
	switch e := e.(type) {
	case *tcell.EventResize:
		screen.Sync()
	case *tcell.EventKey:
		return v.press(keyName(e))
	}
	return false, false
}

func paint(screen tcell.Screen, v *model) {
	screen.Clear()
	width, height := screen.Size()
	for y, l := range v.draw(width, height) {
		x := 0
		for _, p := range l {
			for rest := p.text; rest != "" && x < width; {
				var w int
				rest, w = screen.Put(x, y, rest, styles[p.style])
				if x += w; w == 0 {
					break
				}
			}
		}
	}
	screen.Show()
}

var keys = map[tcell.Key]key{
	tcell.KeyUp: "up", tcell.KeyDown: "down", tcell.KeyLeft: "left", tcell.KeyRight: "right", tcell.KeyPgUp: "pgup", tcell.KeyPgDn: "pgdn",
	tcell.KeyHome: "home", tcell.KeyEnd: "end", tcell.KeyTab: "tab", tcell.KeyBacktab: "backtab", tcell.KeyEscape: "esc",
	tcell.KeyCtrlC: "ctrl-c",
}

func keyName(e *tcell.EventKey) key {
	if name, ok := keys[e.Key()]; ok {
		return name
	}
	if e.Str() == " " {
		return "space"
	}
	return key(strings.ToLower(e.Str()))
}
