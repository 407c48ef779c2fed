"""The OpenAPI document is valid, complete, and the one that is committed."""

from __future__ import annotations

import json

from openapi_spec_validator import validate
from starlette.routing import Route

from holdfast.server.api.openapi import openapi
from holdfast.server.api.routes import OPERATIONS, api_routes, document


def test_the_document_is_valid():
    validate(openapi(OPERATIONS))


def test_every_route_is_described():
    described = {(path, method.upper()) for path, item in json.loads(document())["paths"].items() for method in item}
    routed = {
        (route.path.replace(":path}", "}").replace(":job}", "}"), method)
        for route in api_routes()
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }

    assert described | {("/v1/openapi.json", "GET")} == routed


def test_every_operation_has_its_own_name_and_says_what_it_does():
    names = [operation.name for operation in OPERATIONS]

    assert len(set(names)) == len(names)
    assert [operation.name for operation in OPERATIONS if not operation.summary] == []
