"""Who we are to the API server, and how it proves itself to us: kubeconfig or a pod's service account.

The one module that imports the official client, and only its configuration loader (exec plugins, OIDC,
client certificates, rotated service account tokens). Its HTTP is not used: it has no default time-out and
retries behind the caller's back.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import yaml

from fleet.errors import SickbayError

# What the official loader raises for a file that is YAML, but no kubeconfig.
_NO_KUBECONFIG = (ValueError, TypeError, KeyError, AttributeError)
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_DEFAULT_KUBECONFIG = Path("~/.kube/config")


class CredentialsError(SickbayError):
    """No usable credentials: the text says where they were looked for and what is wrong."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the API server is and how to trust it. ``proxy`` is a URL or None."""

    host: str
    verify: ssl.SSLContext | bool
    proxy: str | None = None
    server_name: str | None = None


class Credentials:
    """One identity. ``authorization`` is asked before each call: tokens rotate. Safe between threads."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._configuration = load()

    def endpoint(self) -> Endpoint:
        """The server of the present configuration; raises CredentialsError for unreadable certificates."""
        loaded = self._configuration
        host = str(loaded.host).rstrip("/")
        hostname = urlsplit(host).hostname or ""
        proxy = getattr(loaded, "proxy", None)
        return Endpoint(
            host=host,
            verify=_tls(loaded) if host.startswith("https") else True,
            proxy=proxy if proxy and not proxy_bypass(hostname) else None,
            server_name=getattr(loaded, "tls_server_name", None),
        )

    def authorization(self) -> str | None:
        """The Authorization header as of now, None for client certificates or no authentication."""
        from kubernetes.config import ConfigException  # noqa: PLC0415

        with self._lock:
            try:
                hook = getattr(self._configuration, "refresh_api_key_hook", None)
                if hook is not None:
                    hook(self._configuration)
                keys = self._configuration.api_key
            except (ConfigException, OSError, ValueError) as error:
                raise CredentialsError(f"the Kubernetes token cannot be renewed: {error}") from error
        key = keys.get("BearerToken") or keys.get("authorization")
        return str(key).strip() if key else None

    def renew(self) -> None:
        """Read everything anew: the server did not accept what we had."""
        with self._lock:
            self._configuration = self._load()


def load_credentials(kubeconfig: Path | None = None, context: str | None = None) -> Credentials:
    """From ``kubeconfig``; without one from the pod's service account, else ``KUBECONFIG`` or ~/.kube/config.

    Raises CredentialsError.
    """
    if kubeconfig is None and context is None and os.environ.get(_IN_CLUSTER):
        return Credentials(_loader(None, None, in_cluster=True))
    named = kubeconfig or Path(os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG)
    return Credentials(_loader(named.expanduser(), context, in_cluster=False))


def _loader(kubeconfig: Path | None, context: str | None, *, in_cluster: bool) -> Callable[[], Any]:
    def load() -> Any:
        try:
            from kubernetes import client, config  # noqa: PLC0415
        except ImportError as error:
            raise CredentialsError(
                "the Kubernetes client is not installed: pip install 'sickbay[kubernetes]'"
            ) from error
        where = "the pod's service account" if in_cluster else f"kubeconfig {kubeconfig}"
        configuration = client.Configuration()
        try:
            if in_cluster:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=str(kubeconfig),
                    context=context,
                    client_configuration=configuration,
                    persist_config=False,
                )
        except (config.ConfigException, yaml.YAMLError, OSError, *_NO_KUBECONFIG) as error:
            said = " ".join(str(error).split())[:200]
            raise CredentialsError(f"no Kubernetes credentials from {where}: {said}") from error
        return configuration

    return load


def _tls(loaded: Any) -> ssl.SSLContext | bool:
    try:
        context = ssl.create_default_context(cafile=loaded.ssl_ca_cert or None)
        if loaded.cert_file:
            context.load_cert_chain(loaded.cert_file, loaded.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(f"the certificates for {loaded.host} cannot be read: {error}") from error
    if not loaded.verify_ssl:  # the operator's own insecure-skip-tls-verify
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
