"""The least Django that answers one page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path


def own(_: HttpRequest) -> HttpResponse:
    return HttpResponse("own")


urlpatterns = [path("own", own)]
