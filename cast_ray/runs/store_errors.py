"""What a store's refusal means to a user, in one sentence with a remedy.

Stores speak through PyArrow, through fsspec or through Python's own exceptions, and what kind of
refusal it was stands in the text alone.
"""

from __future__ import annotations

from cast_ray.errors import StorageError

_S3_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or an instance role that may "
    "list, read, write and delete there"
)
_CREDENTIALS = {
    "s3": _S3_CREDENTIALS,
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS or a service account that may do so",
    "abfs": "set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY or a managed identity that may do so",
}
_NO_BUCKET = ("no_such_bucket", "nosuchbucket", "bucket not found", "bucket does not exist")
_REFUSED = (
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
_NO_WAY = ("network_connection", "could not resolve", "could not connect", "connection refused")
_LATE = ("timeout was reached", "timed out", "error request_timeout")


def refusal(uri: str, error: Exception) -> StorageError:
    """Return the error that says what is wrong at a URI, and what to do."""
    text = str(error)
    words, scheme = text.lower(), uri.partition("://")[0]

    def says(signs: tuple[str, ...]) -> bool:
        return any(sign in words for sign in signs)

    if says(_NO_BUCKET) or ("bucket '" in words and "not found" in words):
        return StorageError(f"{uri}: there is no such bucket; make it, or give another URI")
    if isinstance(error, PermissionError) or says(_REFUSED):
        remedy = _CREDENTIALS.get(scheme, "give credentials that may do so")
        return StorageError(f"{uri}: the store refuses these credentials; {remedy}")
    if says(_LATE):
        return StorageError(f"{uri} did not answer in time: check the network and try again")
    if isinstance(error, ConnectionError) or says(_NO_WAY):
        return StorageError(
            f"{uri}: no way to the store ({_last_detail(text)}); check the network and, where "
            "there is one, endpoint_override"
        )
    if isinstance(error, ImportError):
        return StorageError(f"{uri}: {text.rstrip('.')}, with pip, where this runs")
    if "protocol not known" in words or "unrecognized filesystem" in words:
        return StorageError(
            f"{uri}: nothing here knows {scheme}://; correct it, or install the fsspec package "
            "that does"
        )
    if isinstance(error, FileNotFoundError):
        return StorageError(f"{uri} is not there: check the path")
    first_line = text.splitlines()[0] if text else type(error).__name__
    return StorageError(f"{uri}: the store failed ({first_line}); check the URI and try again")


def _last_detail(text: str) -> str:
    """Return what a library appended last, mostly the plainest words of all."""
    return text.rpartition("Details: ")[2].splitlines()[0]
