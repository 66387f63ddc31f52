"""Settings and URLs without their secrets."""

import pytest
from sidekiq_celery.app.utils import filter_hidden_settings, sanitize_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:geheim@host:6379/0", "redis://:********@host:6379/0"),
        ("redis://user:geheim@host/0", "redis://user:********@host/0"),
        ("redis://user:ge:he@im@host/0", "redis://user:********@host/0"),
        ("redis://host/0", "redis://host/0"),
        ("redis://user@host/0", "redis://user@host/0"),
        ("sentinel://:geheim@one;sentinel://:geheim@two/0", "sentinel://:********@one;sentinel://:********@two/0"),
        ("sentinel://:geheim@one:1;two:2/0", "sentinel://:********@one:1;two:2/0"),
        ("redis://user:ge;heim@host/0?a=1;b=2", "redis://user:********@host/0?a=1;b=2"),
        ("cache+memcached://u:geheim@s1:1,s2:2/", "cache+memcached://u:********@s1:1,s2:2/"),
        (
            "azureblockblob://AccountName=a;AccountKey=geheim==;Url=https://x/?sv=1&sig=geheim&x=1",
            "azureblockblob://AccountName=a;AccountKey=********;Url=https://x/?sv=1&sig=********&x=1",
        ),
        ("redis://h/0?a=1&ssl_password=geheim", "redis://h/0?a=1&ssl_password=********"),
        ("db+postgresql://h/x?password=geheim&a=1", "db+postgresql://h/x?password=********&a=1"),
        ("user:geheim@h//", "user:********@h//"),
        (["redis://:geheim@one", "redis://two"], ["redis://:********@one", "redis://two"]),
        ("rpc", "rpc"),
        (None, None),
    ],
)
def test_passwords_of_urls_are_masked(url, shown):
    """Of one host and of several, and Azure's keys."""
    assert sanitize_url(url) == shown


def test_settings_are_masked_by_name():
    """Also within others; what is no secret stays."""
    settings = {
        "broker_url": "redis://:geheim@h/0",
        "result_backend": "redis://:geheim@h/1",
        "SECRET_KEY": "geheim",
        "broker_transport_options": {"sentinel_kwargs": {"password": "geheim"}, "visibility_timeout": 1},
        "task_acks_late": True,
        3: "three",
    }

    shown = filter_hidden_settings(settings)

    assert "geheim" not in repr(shown)
    assert shown["broker_transport_options"]["visibility_timeout"] == 1
    assert (shown["task_acks_late"], shown[3]) == (True, "three")
