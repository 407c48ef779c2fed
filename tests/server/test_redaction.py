"""Which names of arguments suggest a secret."""

from __future__ import annotations

import pytest

from holdfast.server.redaction import REDACTED, redacted_data
from holdfast.server.state import ServerSettings

SECRET = [
    *("password", "user_password", "passwd", "pass_phrase", "passcode", "pwd", "db_pwd", "secret", "clientSecret"),
    *("token", "refreshToken", "api_key", "api-key", "apikey", "X-Api-Key", "private_key", "access_key", "accessKey"),
    *("AWS_SECRET_ACCESS_KEY", "credentials", "Authorization", "Set-Cookie", "jwt", "id_jwt", "dsn", "SENTRY_DSN"),
    *("session_id", "sessionId", "PHPSESSIONID", "pin", "card_pin", "cardPin", "PIN", "pin2", "cvv", "card_cvv", "cvc"),
    *(
        "auth",
        "proxy_auth",
        "basicAuth",
        "bearer",
        "otp",
        "totp",
        "encryption_key",
        "signingKey",
        "ssh_key",
        "client_key",
    ),
    *("connection_string", "connectionString", "pass", "db_pass", "dbPass", "master_key", "pass_key", "deploy_key"),
    *("ssn", "user_ssn", "userSSN", "card_number", "cardNumber", "iban"),
]
SHOWN = [
    *("shopping", "pinned", "spin", "opinion", "mapping", "PinnedItem", "session", "session_idle", "key", "order_key"),
    *(
        "author",
        "authentic",
        "bearers",
        "bypass",
        "compass",
        "pass_count",
        "passes",
        "adopted",
        "connection",
        "auth_type",
    ),
    *("lessness", "passenger", "keyboard", "access", "user_id", "card", "number", "note", "jwtish"),
]


@pytest.mark.parametrize(("names", "shown"), [(SECRET, REDACTED), (SHOWN, 1)])
def test_values_under_names_that_suggest_a_secret_are_replaced_at_every_depth(names, shown):
    settings = ServerSettings()

    assert redacted_data(settings, "t", dict.fromkeys(names, 1)) == dict.fromkeys(names, shown)
    assert redacted_data(settings, "t", [{"in": dict.fromkeys(names, 1)}]) == [{"in": dict.fromkeys(names, shown)}]
