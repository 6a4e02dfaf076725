// Package sigv4 verifies signatures of AWS, version 4, as clients of Amazon SQS make them: in the header Authorization, or in the query of
// a presigned URL. The rules are those of "Create a signed AWS API request" in the documentation of AWS Identity and Access Management.
//
// It knows no access keys: whose secret is to be tried, the caller says. The libraries of AWS sign, and verify nothing.
package sigv4
