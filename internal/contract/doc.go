// Package contract holds what gRPC and REST have in common: the options of each call in the proto files (calls.go), the limits of
// requests (limits.go), the words for the protocol's enum values (words.go), and how errors map to codes (refusal.go).
//
// It knows neither gRPC's server nor REST's, and nothing of how a call is answered.
package contract
