package web

import (
	"errors"
	"io/fs"
	"time"

	"github.com/pawlq/pawl/internal/ui/form"
)

// Set is a package's pages with their templates.
type Set struct {
	Pages   []Page
	Actions []Action
	Raw     []Raw
	// Templates has templates/NAME.html for each page, and in templates/parts what several of them share.
	Templates fs.FS
}

// Page is a path that shows something.
type Page struct {
	Path     string // net/http pattern, below the base
	Template string // file in templates/, without .html
	Nav      string // path of its entry in the menu
	Show     func(*Request) (*Screen, error)
}

// Screen is the content of a page.
type Screen struct {
	Title string
	Data  any // for the template
	// NoRefresh: it is never refreshed.
	NoRefresh bool
	// Watch selects the events that change it; nil: none do.
	Watch *Watch
	// Refresh is the maximum refresh interval; 0: slowRefresh, or QuickRefresh without a Watch.
	Refresh time.Duration
}

// Action is a path that changes something: GET shows its form, POST performs it.
type Action struct {
	Path string
	Nav  string
	Form func(*Request) (*form.Form, error)
	Do   func(*Request) (Done, error)
	// Outlasting: what it gives outlasts the session, so the visitor must enter the token again: a stolen session must not be enough.
	Outlasting bool
}

// Done is the outcome of an action: a message, and the next page, below the base.
type Done struct {
	Message, Next string
	Secret        *Secret // is shown instead
}

// Secret is shown only once, after the action that created it.
type Secret struct {
	Title, Text, Secret string
	Commands, Facts     []form.Fact
	Next                string // the next page, below the base
}

// Raw is a path that serves something other than a page.
type Raw struct {
	Path  string
	Serve func(*Request) error
}

// ErrShowAgain is returned by an action that was only asked to show its form again.
var ErrShowAgain = errors.New("show the form again")

// QuickRefresh is the refresh interval of pages that no event announces changes of.
const QuickRefresh = 4 * time.Second

// SearchTime is how long a page searches when few rows match, before it shows those found. Tests change it.
var SearchTime = time.Second
