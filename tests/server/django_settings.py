"""The least Django that answers one page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

SECRET_KEY = "a test has no secrets"  # noqa: S105
ALLOWED_HOSTS = ["localhost"]
ROOT_URLCONF = __name__


def own(_: HttpRequest) -> HttpResponse:
    return HttpResponse("own")


urlpatterns = [path("own", own)]
