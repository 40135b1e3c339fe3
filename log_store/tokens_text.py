"""The text of an access token: `sluice_<id>_<secret>`. The id finds the record, the secret proves the holder.

The secret is 43 random letters and digits, more than 256 bits, so its plain SHA-256 can be stored: there is nothing to
guess that a slow hash would have to protect (ADR 0010).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string

ALPHABET = string.digits + string.ascii_letters
ID_CHARS, SECRET_CHARS = 16, 43
_TEXT = re.compile(rb"sluice_([0-9A-Za-z]{%d})_([0-9A-Za-z]{%d})" % (ID_CHARS, SECRET_CHARS))
_NOBODY = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
"""Compared with where there is no record: an id that exists takes no longer than one that does not."""


def new_token() -> tuple[str, str, str]:
    """(text, id, hash of the secret). The text is known here and to whom it is given, to nobody else."""
    token_id, secret = _random(ID_CHARS), _random(SECRET_CHARS)
    return f"sluice_{token_id}_{secret}", token_id, hash_of(secret.encode())


def split(text: bytes) -> tuple[str, bytes] | None:
    """(id, secret); None for what is no token of ours."""
    found = _TEXT.fullmatch(text)
    return None if found is None else (found[1].decode(), found[2])


def hash_of(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def matches(secret: bytes, stored: str | None) -> bool:
    """In a time that says nothing about where the two differ, or whether there is a stored one."""
    same = hmac.compare_digest(hash_of(secret), stored if stored is not None else _NOBODY)
    return same and stored is not None


def _random(count: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(count))
