// Package contract holds what both faces of the API must say alike: what the proto files say about each call (calls.go), how far a request
// may go (limits.go), which words stand for the numbers of the protocol (words.go), and how a refusal looks from outside (refusal.go).
//
// It knows neither face, and nothing of how a call is answered.
package contract
