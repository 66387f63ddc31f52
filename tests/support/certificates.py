"""An authority of one's own, and what it signs, made by the openssl program."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.missing_tools import skip_or_fail


@dataclass(frozen=True, slots=True)
class Certificates:
    """
    Files in PEM form.

    Args:
        authority: The certificate that signs the others.
        server: For `localhost` and 127.0.0.1, with its *server_key*.
        client: For a client that has to show one, with its *client_key*.
        expired: The server's, valid until the moment it was made; it has the same *server_key*.
    """

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    expired: Path

    def server_settings(self, port: int, *, asks_clients: bool = False) -> dict[str, str]:
        """Lines of redis.conf for a server that also listens by TLS on *port*."""
        return {
            "tls-port": str(port),
            "tls-cert-file": str(self.server),
            "tls-key-file": str(self.server_key),
            "tls-ca-cert-file": str(self.authority),
            "tls-auth-clients": "yes" if asks_clients else "no",
        }

    @property
    def as_client(self) -> str:
        """The part of a URL's query by which a client shows its own."""
        return f"ssl_certfile={self.client}&ssl_keyfile={self.client_key}"


def make_certificates(folder: Path) -> Certificates:
    """Sign one for a server and one for a client; some 0.1 s."""
    if shutil.which("openssl") is None:
        skip_or_fail("no openssl; on Debian: apt-get install openssl", switch="SIDEKIQ_PY_REQUIRE_REDIS")
    made = Certificates(
        *(folder / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key", "expired.pem"))
    )
    authority_key = folder / "ca.key"
    _openssl(
        *_new_key(authority_key),
        "-x509",
        "-days",
        "30",
        "-subj",
        "/CN=Test authority",
        "-out",
        str(made.authority),
        # Python 3.13 wants to read what the authority is for, and who has signed what.
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    for certificate, key, days in (
        (made.server, made.server_key, 30),
        (made.client, made.client_key, 30),
        (made.expired, made.server_key, 0),  # OpenSSL 3.5 refuses fewer
    ):
        request = certificate.with_suffix(".csr")
        kept = ["req", "-new", "-key", str(key)] if key.exists() else _new_key(key)
        _openssl(*kept, "-subj", "/CN=localhost", "-out", str(request))
        extensions = certificate.with_suffix(".ext")
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        _openssl(
            *("x509", "-req", "-days", str(days), "-in", str(request), "-out", str(certificate)),
            *("-CA", str(made.authority), "-CAkey", str(authority_key), "-CAcreateserial"),
            *("-extfile", str(extensions)),
        )
    return made


def _new_key(path: Path) -> list[str]:
    return ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(path)]


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
