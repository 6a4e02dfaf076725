// Package format words numbers, times, sizes and documents as pages show them: 1,204 tasks, 12.3k, 1 min 9 s, 3 min ago.
//
// It turns errors of the API into a title, a message, a field and an HTTP status, and makes characters visible that
// change the direction of a text. It knows neither requests nor templates.
package format
