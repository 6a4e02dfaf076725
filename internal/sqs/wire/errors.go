package wire

import (
	"fmt"
	"net/http"
)

// Error is an error as Amazon SQS words it. The two forms have different names for some.
type Error struct {
	Shape   string // in JSON: the last part of __type
	Code    string // in Query, and in the header x-amzn-query-error
	Status  int
	Message string
	// QueryTail is appended to the message in Query.
	QueryTail string
	Receiver  bool // whether the server is at fault, not the sender
}

func (e *Error) Error() string { return e.Message }

// fault returns who is at fault.
func (e *Error) fault() string {
	if e.Receiver {
		return "Receiver"
	}
	return "Sender"
}

// With returns a copy of the error with another message.
func (e *Error) With(format string, args ...any) *Error {
	own := *e
	own.Message = fmt.Sprintf(format, args...)
	return &own
}

const legacy = "AWS.SimpleQueueService."

func sender(shape, code string) *Error {
	return &Error{Shape: shape, Code: code, Status: http.StatusBadRequest}
}

func forbidden(shape, code string) *Error {
	return &Error{Shape: shape, Code: code, Status: http.StatusForbidden}
}

// The errors of Amazon SQS. Those without a message get one from With.
var (
	ErrQueueDoesNotExist = &Error{Shape: "QueueDoesNotExist", Code: legacy + "NonExistentQueue", Status: http.StatusBadRequest,
		Message: "The specified queue does not exist.", QueryTail: " for this wsdl version."}
	ErrQueueNameExists          = sender("QueueNameExists", "QueueAlreadyExists")
	ErrPurgeQueueInProgress     = forbidden("PurgeQueueInProgress", legacy+"PurgeQueueInProgress")
	ErrOverLimit                = forbidden("OverLimit", "OverLimit")
	ErrTooManyEntriesInBatch    = sender("TooManyEntriesInBatchRequest", legacy+"TooManyEntriesInBatchRequest")
	ErrEmptyBatch               = sender("EmptyBatchRequest", legacy+"EmptyBatchRequest")
	ErrBatchEntryIDsNotDistinct = sender("BatchEntryIdsNotDistinct", legacy+"BatchEntryIdsNotDistinct")
	ErrInvalidBatchEntryID      = sender("InvalidBatchEntryId", legacy+"InvalidBatchEntryId").With(
		"A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
	ErrBatchRequestTooLong    = sender("BatchRequestTooLong", legacy+"BatchRequestTooLong")
	ErrUnsupportedOperation   = sender("UnsupportedOperation", legacy+"UnsupportedOperation")
	ErrReceiptHandleIsInvalid = sender("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid")
	ErrInvalidAttributeName   = sender("InvalidAttributeName", "InvalidAttributeName")
	ErrInvalidAttributeValue  = sender("InvalidAttributeValue", "InvalidAttributeValue")
	ErrInvalidMessageContents = sender("InvalidMessageContents", "InvalidMessageContents")
	ErrInvalidParameterValue  = sender("InvalidParameterValueException", "InvalidParameterValue")
	ErrMissingParameter       = sender("MissingRequiredParameterException", "MissingParameter")
	ErrInvalidAction          = sender("InvalidAction", "InvalidAction")
	ErrSerialization          = sender("SerializationException", "MalformedQueryString")
	ErrRequestThrottled       = forbidden("RequestThrottled", "RequestThrottled")
	ErrAccessDenied           = forbidden("AccessDeniedException", "AccessDenied")
	ErrInvalidClientTokenID   = forbidden("InvalidClientTokenId", "InvalidClientTokenId")
	ErrMissingAuthentication  = forbidden("MissingAuthenticationToken", "MissingAuthenticationToken")
	ErrSignatureDoesNotMatch  = forbidden("SignatureDoesNotMatch", "SignatureDoesNotMatch")
	ErrIncompleteSignature    = sender("IncompleteSignature", "IncompleteSignature")
	ErrResourceNotFound       = &Error{Shape: "ResourceNotFoundException", Code: "ResourceNotFoundException", Status: http.StatusNotFound}
	ErrUnknownOperation       = &Error{Shape: "UnknownOperationException", Code: "UnknownOperationException", Status: http.StatusNotFound}
	ErrServiceUnavailable     = &Error{Shape: "ServiceUnavailable", Code: "ServiceUnavailable", Status: http.StatusServiceUnavailable,
		Receiver: true}
	ErrInternal = &Error{Shape: "InternalFailure", Code: "InternalFailure", Status: http.StatusInternalServerError,
		Receiver: true}
)

// Missing rejects a request that lacks a required parameter.
func Missing(name string) *Error {
	return ErrMissingParameter.With("The request must contain the parameter %s.", name)
}

// BadValue rejects the value of a parameter.
func BadValue(value any, name, reason string) *Error {
	return ErrInvalidParameterValue.With("Value %v for parameter %s is invalid. Reason: %s", value, name, reason)
}
