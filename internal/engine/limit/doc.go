// Package limit is what rates and limits reckon with: token buckets, the claimed tasks of a key, and the row in which both are stored.
// It knows no queue and no settings but the rate it is given.
package limit
