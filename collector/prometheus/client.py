"""The one adapter over prometheus-api-client: typed answers, one deadline over all, bounded bodies.

The client's own time-out is that of requests: it begins anew with every byte. So the session that the client
is given asks through ``collector.deadline_http``, and no retry hides a slow server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from collector.deadline_http import Deadline, Fetcher, FetchError
from fleet.errors import SickbayError

MAX_BYTES = 256 * 1024 * 1024
CONNECT_SECONDS = 2.0
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "sickbay"}


class PrometheusError(SickbayError):
    """A query has no answer: unknown, never healthy. The text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an instant vector: labels (with ``__name__``), value, time (epoch seconds)."""

    labels: Mapping[str, str]
    value: float
    time: float


class PrometheusClient:
    """Instant queries. ``timeout_seconds`` bounds one query from its begin to its last byte."""

    def __init__(self, url: str, *, timeout_seconds: float, max_bytes: int = MAX_BYTES) -> None:
        self.url = url
        self._timeout = timeout_seconds
        self._session = _BoundedSession(timeout_seconds, max_bytes)
        self._api = PrometheusConnect(
            url=url, session=self._session, retry=Retry(total=0, redirect=0), timeout=timeout_seconds
        )

    def query(self, expression: str, *, at: float) -> list[Series]:
        """The vector of ``expression`` at a time. PrometheusError when there is no whole, sound answer."""
        params = {"time": f"{at:.3f}", "timeout": f"{self._timeout:g}s"}
        try:
            answer = self._api.custom_query(expression, params=params)
            return [_series(item) for item in answer]
        except FetchError as error:
            raise PrometheusError(f"{self.url}: {error}") from error
        except PrometheusApiClientException as error:
            raise PrometheusError(f"{self.url}: {str(error)[:200]}") from error
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise PrometheusError(f"{self.url}: the answer is no vector of the query API") from error

    def close(self) -> None:
        self._session.close()


class _BoundedSession(requests.Session):
    """A session whose requests end in time. Redirects, environment proxies and .netrc are not used."""

    def __init__(self, timeout_seconds: float, max_bytes: int) -> None:
        super().__init__()
        self.verify = True
        self._seconds = timeout_seconds
        self._max_bytes = max_bytes

    def request(self, method: str | bytes, url: str | bytes, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """FetchError where there is no whole answer in time. The client sends no body with a query."""
        text = url if isinstance(url, str) else url.decode()
        target = f"{text}?{urlencode(kwargs.get('params') or {})}"
        fetcher = Fetcher(target, headers=_HEADERS, max_bytes=self._max_bytes)
        try:
            deadline = Deadline(time.monotonic, self._seconds)
            answer = fetcher.get(deadline, connect_seconds=min(CONNECT_SECONDS, self._seconds))
        finally:
            fetcher.close()
        response = requests.Response()
        response.status_code = answer.status
        response.encoding = "utf-8"
        response._content = answer.body
        return response


def _series(item: Mapping[str, Any]) -> Series:
    at, value = item["value"]
    return Series({str(k): str(v) for k, v in item["metric"].items()}, float(value), float(at))
