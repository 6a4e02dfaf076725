package web

import "html/template"

// icons are drawn with a single stroke in a 16×16 square. Keys are paths of the menu's entries, or names of buttons' actions.
var icons = map[string]string{
	"/":           "M2.5 2.5H7V7H2.5zM9 2.5h4.5V7H9zM2.5 9H7v4.5H2.5zM9 9h4.5v4.5H9z",
	"/queues":     "M2.5 4h11M2.5 8h11M2.5 12h7",
	"/types":      "M2.5 13.5h11M4.5 13.5V9M8 13.5v-9M11.5 13.5V7",
	"/tasks":      "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM5.5 8.2l1.8 1.8 3.4-3.8",
	"/dead":       "M2 3.8h12v8.7H2zM2 4.2l6 4.8 6-4.8",
	"/poison":     "M8 2.2 14.2 13H1.8zM8 6.4v3.2M8 11.3v.1",
	"/schedules":  "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.8V8l2.3 1.5",
	"/groups":     "M5.8 2.2h4.4v3.6H5.8zM2 10.2h4.4v3.6H2zM9.6 10.2H14v3.6H9.6zM8 5.8V8M4.2 10.2V8h7.6v2.2",
	"/workers":    "M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
	"/operations": "M2.8 3.5v9L8 8zM8.2 3.5v9L13.4 8z",
	"/audit":      "M3.8 2h5.7l2.8 2.8V14H3.8zM6.2 7.5h3.8M6.2 10.5h3.8",
	"/cluster":    "M2.5 2.8h11v4.4h-11zM2.5 8.8h11v4.4h-11zM5 5v.1M5 11v.1",
	"/webhooks":   "M14 2 7.4 8.6M14 2l-4.4 12-2.2-5.4L2 6.4z",
	"/namespaces": "M2 12.8V3.6h4.6L8.2 5.4H14v7.4z",
	"/tokens":     "M5.4 13.4a2.9 2.9 0 1 0 0-5.8 2.9 2.9 0 0 0 0 5.8zM7.5 8.5l5.9-5.9M11.2 4.8l1.9 1.9",
	"/settings": "M2.5 5h5.2M11.3 5h2.2M2.5 11h2.2M8.3 11h5.2M9.5 6.8a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6zM6.5 12.8a1.8 1.8 0 1 0 " +
		"0-3.6 1.8 1.8 0 0 0 0 3.6z",
	"page": "M3 2.5h10v11H3zM5.5 6h5M5.5 9h5",
	"new":  "M8 3v10M3 8h10",
	"menu": "M2.5 4.2h11M2.5 8h11M2.5 11.8h11",
	"open": "M4.2 6.2 8 10l3.8-3.8",
}

// icon returns the drawing of a name.
func icon(name string) template.HTML {
	path, ok := icons[name]
	if !ok {
		path = icons["page"]
	}
	return template.HTML(`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d="` + path + `"/></svg>`) // built from constants
}
