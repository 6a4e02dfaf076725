// Package sigv4 verifies AWS Signature Version 4 as clients of Amazon SQS use it: in the Authorization header, or in the query of a
// presigned URL. The rules are those of "Create a signed AWS API request" in the documentation of AWS Identity and Access
// Management.
//
// It knows no access keys: the caller looks up the secret. AWS's own libraries can only sign, not verify.
package sigv4
