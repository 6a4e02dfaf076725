// Package form describes forms as data, parses what was submitted, and shows a form again with its input when it was refused.
//
// All forms share one template. A field is named as in the API, so that an error of the API appears beside it. A form
// that edits something carries its version: see conflict.go for what happens when others edit it too. The package knows
// the types of values that the API takes, such as rates and retry policies, but neither requests nor pages.
package form
