// Package web answers requests for pages and actions: it finds out who asks, calls the page's function, renders its
// template in the layout with the menu, and shows forms and errors.
//
// A page's function gets a Request, which has the API's client with the visitor's rights, the URL's parameters, the
// submitted form, and links to other pages. What is the same for all pages is here: login, messages to the next page,
// the visitor's preferences, security headers, compression, and the functions and parts that templates share. Each
// package of pages hands over a Set: of the pages themselves, this package knows only the paths in the menu.
package web
