"""Settings with their secrets masked, safe for a log or a report."""

import re
from collections.abc import Mapping
from typing import Any

MASK = "*" * 8

HIDDEN_SETTINGS = re.compile("API|TOKEN|KEY|SECRET|PASS|PROFANITIES_LIST|SIGNATURE|DATABASE|BEAT_DBURI", re.IGNORECASE)

_BROKER_URLS = ("broker_url", "broker_read_url", "broker_write_url")
_AZURE_SECRETS = re.compile(r"(?i)((?:^|;)\s*(?:AccountKey|SharedAccessSignature)\s*=)[^;]*")
_PASSWORD_IN_QUERY = re.compile(r"(?i)([?&][^=&;#]*password=)[^&;#]*")
_AZURE_SIGNATURE = re.compile(r"(?i)([?&]sig=)[^&;#]*")


def sanitize_url(url: Any, mask: str = MASK) -> Any:
    """
    *url*, or each of a list, with passwords masked, including several hosts (`;` or `,`), queries and Azure's. Other
    values are unchanged.
    """
    if isinstance(url, list | tuple):
        return [sanitize_url(one, mask) for one in url]
    if not isinstance(url, str):
        return url
    if "://" not in url:
        return _masked(url, mask)
    scheme, _, rest = url.partition("://")
    if scheme == "azureblockblob":
        return f"{scheme}://" + _AZURE_SIGNATURE.sub(rf"\g<1>{mask}", _AZURE_SECRETS.sub(rf"\g<1>{mask}", rest))
    parts = url.split(";")
    if any("://" in part for part in parts[1:]):
        return ";".join(sanitize_url(part.strip(), mask) for part in parts)
    authority, tail = _authority(rest)
    return f"{scheme}://{_masked_hosts(authority, mask)}" + _PASSWORD_IN_QUERY.sub(rf"\g<1>{mask}", tail)


def _authority(rest: str) -> tuple[str, str]:
    ends = [rest.find(mark) for mark in "/?#" if mark in rest]
    end = min(ends, default=len(rest))
    return rest[:end], rest[end:]


def _masked_hosts(authority: str, mask: str) -> str:
    separator = next((mark for mark in ";," if mark in authority), None)
    if separator is None:
        return _masked(authority, mask)
    hosts = [host.strip() for host in authority.split(separator) if host.strip()]
    # A password may contain the separator. Then a part is not a host, and everything before the last @ is masked.
    with_users = [host.rpartition("@")[0] for host in hosts if "@" in host]
    are_hosts = all(":" in user for user in with_users) and not any(
        host.startswith(":") for host in hosts if "@" not in host
    )
    if "@" not in authority or (len(hosts) > 1 and are_hosts):
        return separator.join(_masked(host, mask) for host in hosts)
    return _masked(authority, mask)


def _masked(host: str, mask: str) -> str:
    credentials, at, name = host.rpartition("@")
    if not at:
        return host
    user, colon, _ = credentials.partition(":")
    if colon:
        return f"{user}:{mask}@{name}"
    return f"{mask}@{name}" if "@" in credentials else host


def _masked_value(key: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return filter_hidden_settings(value)
    if not isinstance(key, str):
        return value
    if HIDDEN_SETTINGS.search(key):
        return MASK
    if key.lower() in _BROKER_URLS or "backend" in key.lower():
        return sanitize_url(value)
    return value


def filter_hidden_settings(conf: Mapping[Any, Any]) -> dict[Any, Any]:
    """*conf* with passwords, keys and similar secrets masked."""
    return {key: _masked_value(key, value) for key, value in conf.items()}
