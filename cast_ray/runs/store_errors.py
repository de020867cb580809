"""Turn a store's error into one sentence with a remedy.

Errors come from PyArrow, fsspec or Python, and only their text says what kind they are.
"""

from __future__ import annotations

from cast_ray.errors import StorageError

_S3_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or an instance role that may "
    "list, read, write and delete there"
)
_CREDENTIALS = {
    "s3": _S3_CREDENTIALS,
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS or use a service account with access",
    "abfs": "set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY or use a managed identity with access",
}
_NO_BUCKET = ("no_such_bucket", "nosuchbucket", "bucket not found", "bucket does not exist")
_FORBIDDEN = (
    "access_denied",
    "accessdenied",
    "invalid_access_key_id",
    "invalidaccesskeyid",
    "invalid_client_token_id",
    "signature_does_not_match",
    "signaturedoesnotmatch",
    "expiredtoken",
    "http status 401",
    "http status 403",
    "permission denied",
    "permission_denied",
    "unauthenticated",
    "could not create a oauth2 access token",
)
_UNREACHABLE = (
    "network_connection",
    "could not resolve",
    "could not connect",
    "connection refused",
)
_TIMED_OUT = ("timeout was reached", "timed out", "error request_timeout")


def refusal(uri: str, error: Exception) -> StorageError:
    """Return the error that says what is wrong at a URI, and what to do."""
    text = str(error)
    lowered, scheme = text.lower(), uri.partition("://")[0]

    def says(signs: tuple[str, ...]) -> bool:
        return any(sign in lowered for sign in signs)

    if says(_NO_BUCKET) or ("bucket '" in lowered and "not found" in lowered):
        return StorageError(f"{uri}: there is no such bucket; create it, or give another URI")
    if isinstance(error, PermissionError) or says(_FORBIDDEN):
        remedy = _CREDENTIALS.get(scheme, "use credentials that may list, read, write and delete")
        return StorageError(f"{uri}: the store refuses these credentials; {remedy}")
    if says(_TIMED_OUT):
        return StorageError(f"{uri} did not answer in time: check the network and try again")
    if isinstance(error, ConnectionError) or says(_UNREACHABLE):
        detail = text.rpartition("Details: ")[2].splitlines()[0]  # usually the clearest
        return StorageError(
            f"{uri}: the store cannot be reached ({detail}); check the network and "
            "endpoint_override, if it is set"
        )
    if isinstance(error, ImportError):
        return StorageError(f"{uri}: {text.rstrip('.')}, with pip, on this machine")
    if "protocol not known" in lowered or "unrecognized filesystem" in lowered:
        return StorageError(
            f"{uri}: {scheme}:// is not supported here; correct it, or install its fsspec package"
        )
    if isinstance(error, FileNotFoundError):
        return StorageError(f"{uri} does not exist: check the path")
    first_line = text.splitlines()[0] if text else type(error).__name__
    return StorageError(f"{uri}: the store failed ({first_line}); check the URI and try again")
