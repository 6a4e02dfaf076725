package wire

import (
	"fmt"
	"net/http"
)

// Error is a refusal as the service words it. The two forms name some of them differently.
type Error struct {
	Shape   string // in JSON: the end of __type
	Code    string // in Query, and in the header x-amzn-query-error
	Status  int
	Message string
	// QueryTail follows the message in Query.
	QueryTail string
	Receiver  bool // it is the server's fault, not the sender's
}

func (e *Error) Error() string { return e.Message }

// fault is whose fault an error is.
func (e *Error) fault() string {
	if e.Receiver {
		return "Receiver"
	}
	return "Sender"
}

// With is the error with a message of its own.
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

// The service's errors. Those without a message get one by With.
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
	ErrServiceUnavailable     = &Error{Shape: "ServiceUnavailable", Code: "ServiceUnavailable", Status: http.StatusServiceUnavailable, Receiver: true}
	ErrInternal               = &Error{Shape: "InternalFailure", Code: "InternalFailure", Status: http.StatusInternalServerError, Receiver: true}
)

// Missing refuses a request without a parameter that it needs.
func Missing(name string) *Error {
	return ErrMissingParameter.With("The request must contain the parameter %s.", name)
}

// BadValue refuses the value of a parameter.
func BadValue(value any, name, reason string) *Error {
	return ErrInvalidParameterValue.With("Value %v for parameter %s is invalid. Reason: %s", value, name, reason)
}
