"""The exception that all others of the API are."""

from __future__ import annotations


class PawlError(Exception):
    """A call was refused by the broker or by this client. Each error code of the API has a subclass."""

    __module__ = "pawl.errors"
    code = ""

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        reason: str = "",
        field: str = "",
        holder: str = "",
        state: str = "",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        if code:
            self.code = code
        self.message = message
        self.reason = reason
        """For StaleClaimError: expired, reclaimed, cancelled or completed. For UnavailableError: node_not_ready, or ""."""
        self.field = field
        """For InvalidArgumentError: the name of the field in the API."""
        self.holder = holder
        """For StaleClaimError with the reason reclaimed: the worker that holds the task now."""
        self.state = state
        """For WrongStateError: the state of the task."""
        self.retry_after = retry_after
        """Seconds after which a retry may succeed; 0 if unknown."""

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.code}{reason}: {self.message}" if self.message else f"{self.code}{reason}"
