"""A `kafka:` URL: the brokers, the prefix of topics, and the settings of the client."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.errors import ConfigError

_FORM: Final = "kafka://user:password@host1:9092,host2:9092/prefix?tls=1&sasl=scram-sha-512"
_SASL: Final = ("plain", "scram-sha-256", "scram-sha-512")
_PORT: Final = "9092"
_CRITICAL: Final = 2  # below that, an outage of 13 s writes hundreds of lines
_PASSED_ON: Final = "rd."
_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
_TOPIC_RULE: Final = "use at most 249 ASCII letters, digits and . _ -"
# What Holdfast sets itself: another value would break a guarantee.
_OURS: Final = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "partitioner",
        "transactional.id",
    }
)


class KafkaLocation(msgspec.Struct, frozen=True):
    """A parsed URL. Topics are named `prefix` + category."""

    url: str
    """Without its password."""
    servers: str
    prefix: str
    settings: dict[str, str]
    """The settings of every client: security, and those passed on."""
    passed_on: tuple[str, ...] = ()
    """The parts of the URL that only the client library can check."""

    @classmethod
    def parse(cls, url: str) -> KafkaLocation:
        """Return the location; raises `ConfigError`, which never contains the password."""
        parts = urlsplit(url)
        login, _, hosts = parts.netloc.rpartition("@")
        servers = [host if ":" in host else f"{host}:{_PORT}" for host in hosts.split(",") if host]
        if not servers:
            raise ConfigError(f"a Kafka URL needs a host: {_FORM}")
        user, _, password = login.partition(":")
        prefix = parts.path.strip("/")
        if not _TOPIC.fullmatch(f"{prefix}_"):
            raise ConfigError(f"{prefix!r} is not a valid prefix of Kafka topics: {_TOPIC_RULE}: {_FORM}")
        asked = dict(parse_qsl(parts.query, keep_blank_values=True))
        passed_on = tuple(sorted(name for name in asked if name == "ca" or name.startswith(_PASSED_ON)))
        settings = _security(asked, unquote(user), unquote(password))
        settings |= _passed_on(asked)
        if asked:
            raise ConfigError(
                f"unknown settings in the Kafka URL: {', '.join(sorted(asked))}; there are tls, ca, sasl, and "
                f"{_PASSED_ON}… for settings of the client library"
            )
        shown = f"kafka://{user + ':***@' if login else ''}{','.join(servers)}{parts.path}"
        return cls(shown, ",".join(servers), prefix, settings, passed_on)

    def topic(self, category: str) -> str:
        """Return the topic of a category; raises `ConfigError` if it would have an invalid name."""
        return check_topic(self.prefix + category, f" of category {category!r}")

    def group(self, consumer: str) -> str:
        """Return the consumer group of a consumer, where Kafka assigns partitions."""
        return self.prefix + consumer

    def client(self, on_error: Callable[[Any], None]) -> dict[str, Any]:
        """Return the settings that all clients have in common."""
        own = {"bootstrap.servers": self.servers, "client.id": "holdfast", "error_cb": on_error, "log_level": _CRITICAL}
        return {**own, **self.settings}


def check_topic(topic: str, whose: str = "") -> str:
    """Return the name of a topic if it is valid; the broker's own refusal looks like an error that passes."""
    if not _TOPIC.fullmatch(topic):
        raise ConfigError(f"topic {topic!r}{whose} is not a valid Kafka topic name: {_TOPIC_RULE}")
    return topic


def _security(asked: dict[str, str], user: str, password: str) -> dict[str, str]:
    is_tls = asked.pop("tls", "0") in {"1", "true", "yes"}
    authority = asked.pop("ca", None)
    mechanism = asked.pop("sasl", "plain" if user else None)
    settings: dict[str, str] = {}
    if mechanism is not None:
        if mechanism not in _SASL or not user:
            raise ConfigError(f"sasl={mechanism}: pass one of {', '.join(_SASL)}, with a user and a password: {_FORM}")
        settings |= {"sasl.mechanism": mechanism.upper(), "sasl.username": user, "sasl.password": password}
    if authority is not None:
        settings["ssl.ca.location"] = authority
    settings["security.protocol"] = ("sasl_" if mechanism else "") + ("ssl" if is_tls else "plaintext")
    return settings


def _passed_on(asked: dict[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name in [name for name in asked if name.startswith(_PASSED_ON)]:
        setting = name.removeprefix(_PASSED_ON)
        if setting in _OURS:
            raise ConfigError(f"{name}: Holdfast sets {setting} itself, because its guarantees depend on it")
        settings[setting] = asked.pop(name)
    return settings
