"""The OpenAPI document of the API, made from its operations and the types of their fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from holdfast.server.api.fields import IDEMPOTENCY_KEY, PATH_FIELDS, Name, NoFields
from holdfast.server.api.operation import Need, Operation
from holdfast.server.problems import MEDIA_TYPE, ProblemDetails

_REFERENCE: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)(?::path)?\}")
_JSON: Final = "application/json"
_PROBLEMS: Final = {
    400: "The request cannot be read.",
    401: "The caller is unknown: send a token.",
    403: "The caller may not do this.",
    404: "There is no such resource.",
    408: "The body did not arrive in time.",
    409: "The state of the resource does not allow this.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request can be read, but is not allowed.",
    501: "The store cannot do this.",
    503: "The store cannot be used at the moment.",
}
_ALWAYS: Final = (401, 403, 422, 501, 503)
_WITH_BODY: Final = (400, 408, 413, 415)
_NEEDS: Final = {
    Need.NOTHING: "Needs no scope.",
    Need.ENQUEUE: "Needs the scope `enqueue`.",
    Need.WORK: "Needs the scope `work`, or `work:QUEUE` for each queue.",
    Need.READ: "Needs the scope `read`.",
    Need.OPERATE: "Needs the scope `operate`.",
    Need.ADMIN: "Needs the scope `admin`.",
}
_IDEMPOTENCY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes the request safe to repeat; it becomes the id of the job.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": IDEMPOTENCY_KEY},
}


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document."""
    kinds = _kinds(operations)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    by_kind = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    problem = by_kind[id(ProblemDetails)]
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _described(operation, by_kind, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version("holdfast"),
            "description": "Jobs, leases and events over HTTP. Errors are problem details (RFC 9457).",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                _problem_name(status): {"description": text, "content": {MEDIA_TYPE: {"schema": problem}}}
                for status, text in _PROBLEMS.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _kinds(operations: Sequence[Operation]) -> list[Any]:
    kinds: list[Any] = [ProblemDetails, Name, *PATH_FIELDS.values()]
    for operation in operations:
        kinds += [operation.query, *(kind for kind in operation.answers.values() if kind is not None)]
        if operation.body is not None:
            kinds.append(operation.body)
    return list({id(kind): kind for kind in kinds}.values())


def _described(operation: Operation, by_kind: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"{operation.description}\n\n{_NEEDS[operation.needs]}".strip(),
        "tags": operation.path.split("/")[2:3] or ["server"],
    }
    parameters = [*_path_parameters(operation, by_kind), *_query_parameters(operation, components)]
    if operation.name in {"enqueue_job", "enqueue_batch"}:
        parameters.append(_IDEMPOTENCY)
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        content = {_JSON: {"schema": by_kind[id(operation.body)]}}
        described["requestBody"] = {"required": _needs_body(operation.body), "content": content}
    described["responses"] = _responses(operation, by_kind)
    return described


def _needs_body(kind: type[Any]) -> bool:
    return any(field.required for field in msgspec.structs.fields(kind))


def _path_parameters(operation: Operation, by_kind: dict[int, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": by_kind[id(PATH_FIELDS[name])]}
        for name in _PARAMETER.findall(operation.path)
    ]


def _query_parameters(operation: Operation, components: dict[str, Any]) -> list[dict[str, Any]]:
    if operation.query is NoFields:
        return []
    schema = components[operation.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(field)}
        for name, field in schema["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter: one that is not given is left out, never null."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1:
        return schema
    rest = {name: value for name, value in schema.items() if name not in {"anyOf", "default"}}
    return {**choices[0], **rest}


def _responses(operation: Operation, by_kind: dict[int, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in operation.answers.items():
        response: dict[str, Any] = {"description": operation.summary}
        if kind is not None:
            response["content"] = {_JSON: {"schema": by_kind[id(kind)]}}
        if operation.name == "enqueue_job":
            response["headers"] = {"Location": {"schema": {"type": "string"}, "description": "The path of the job."}}
        if operation.links:
            response["links"] = {name: {"operationId": name, **link} for name, link in operation.links.items()}
        responses[str(status)] = response
    has_body = operation.method in {"POST", "PUT"}
    statuses = {*_ALWAYS, *operation.problems, *(_WITH_BODY if has_body else ())}
    if "{" in operation.path:
        statuses.add(404)
    for status in sorted(statuses):
        responses[str(status)] = {"$ref": f"#/components/responses/{_problem_name(status)}"}
    return responses


def _problem_name(status: int) -> str:
    return f"Problem{status}"
