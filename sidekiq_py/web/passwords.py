"""Password hashes with scrypt, from the standard library."""

import base64
import hashlib
import hmac
import secrets
from functools import cache
from threading import BoundedSemaphore

# 16 MB and about 40 ms each: OWASP's scrypt parameters of N=2^14, r=8, p=5 in time, less in memory.
_N, _R, _P = 2**14, 8, 5
_SALT_BYTES, _HASH_BYTES = 16, 32
# A flood of sign-ins must not use up all memory and every core.
_AT_A_TIME = BoundedSemaphore(2)


def hash_password(password: str) -> str:
    """
    Hash a password for a configuration file: `scrypt$16384$8$5$<salt>$<hash>`.

    Raises:
        ValueError: The password is empty.
    """
    if not password:
        raise ValueError("the password is empty")
    salt = secrets.token_bytes(_SALT_BYTES)
    return "$".join(("scrypt", str(_N), str(_R), str(_P), _text(salt), _text(_digest(password, salt, _N, _R, _P))))


def is_password_hash(text: str) -> bool:
    """True if *text* is a hash that `is_password` can check against."""
    return _parts(text) is not None


def is_password(password: str, password_hash: str | None) -> bool:
    """True if this is the password. With None as the hash it takes just as long and returns False."""
    with _AT_A_TIME:
        parts = _parts(password_hash or _nobody())
        if parts is None:
            return False
        n, r, p, salt, expected = parts
        given = _digest(password, salt, n, r, p)
    return hmac.compare_digest(given, expected) and password_hash is not None


@cache
def _nobody() -> str:
    return hash_password(secrets.token_hex(16))


def _digest(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(errors="surrogatepass"), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=_HASH_BYTES
    )


def _parts(text: str) -> tuple[int, int, int, bytes, bytes] | None:
    fields = text.split("$")
    if len(fields) != 6 or fields[0] != "scrypt":
        return None
    try:
        n, r, p = map(int, fields[1:4])
        salt, digest = (base64.b64decode(field, validate=True) for field in fields[4:])
    except ValueError:
        return None
    is_sound = 2**10 <= n <= 2**20 and n & (n - 1) == 0 and 1 <= r <= 32 and 1 <= p <= 16 and len(digest) == _HASH_BYTES
    return (n, r, p, salt, digest) if is_sound else None


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
