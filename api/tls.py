"""TLS of the service, from the settings: checked at the start, with the key and the file in the message."""

from __future__ import annotations

import ssl

from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import TlsSettings

CERTIFICATE, KEY, PASSWORD = "tls.certificate.file", "tls.key.file", "tls.key.password"


def server_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """None: plain HTTP. ConfigurationError if only one file is given, or they cannot be used together."""
    if not settings.certificate_file and not settings.key_file:
        return None
    for name, value, other in (
        (CERTIFICATE, settings.certificate_file, KEY),
        (KEY, settings.key_file, CERTIFICATE),
    ):
        if not value:
            raise _refused(name, value, f"must be given together with {other}")
        try:
            with open(value, "rb"):
                pass
        except OSError as error:
            raise _refused(name, value, f"cannot be read: {error.strerror}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, settings)
    return context


def _load(context: ssl.SSLContext, settings: TlsSettings) -> None:
    asked = False

    def password() -> str:
        # Always given: OpenSSL would ask at the terminal of a service that has none.
        nonlocal asked
        asked = True
        return settings.key_password

    try:
        context.load_cert_chain(settings.certificate_file, settings.key_file, password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _refused(KEY, settings.key_file, f"is not the key of {settings.certificate_file}") from error
        if asked:
            given = "is wrong" if settings.key_password else "is needed"
            raise _refused(KEY, settings.key_file, f"the file is encrypted and {PASSWORD} {given}") from error
        rule = f"this and {KEY} = {settings.key_file!r} must be PEM files: {error.reason or error.strerror or error}"
        raise _refused(CERTIFICATE, settings.certificate_file, rule) from error
    except (OSError, ValueError) as error:
        raise _refused(KEY, settings.key_file, f"cannot be loaded: {error}") from error


def _refused(key: str, value: str, rule: str) -> ConfigurationError:
    return ConfigurationError(key=key, value=value, origin="serve", rule=rule)
