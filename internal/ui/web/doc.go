// Package web answers requests for pages and actions: it finds out who asks, calls the page's function, renders its
// template in the layout with the menu, and shows forms and errors.
//
// A page's function gets a Request, which has the API's client with the visitor's rights, the URL's parameters, the
// submitted form, and links to other pages. What is the same for all pages is here: login, messages to the next page,
// the visitor's preferences, security headers, compression, and the functions and parts that templates share. asset.go has
// the files that pages load: the stylesheet, scripts, fonts and icons, all in the binary, at URLs with their checksums, so
// that browsers keep them forever. live.go tells open pages when to refresh, and limits the streams of a node and how often
// they ask for a refresh. Each package of pages hands over a Set: of the pages themselves, this package knows only the paths in the menu.
package web
