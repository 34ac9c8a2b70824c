"""Who we are to the API server, and how it proves itself to us: kubeconfig or a pod's service account.

The one module that imports the official client, and only its configuration loader (exec plugins, OIDC,
client certificates, rotated service account tokens). Its HTTP is not used: it has no default time-out and
retries behind the caller's back.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import yaml

from fleet.errors import SickbayError

# What the official loader raises for a file that is YAML, but no kubeconfig.
_NO_KUBECONFIG = (ValueError, TypeError, KeyError, AttributeError)
# A login that asks a person (OIDC in a browser) has no place in a service.
_LOAD_SECONDS = 30.0
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_DEFAULT_KUBECONFIG = Path("~/.kube/config")


class CredentialsError(SickbayError):
    """No usable credentials: the text says where they were looked for and what is wrong."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the API server is and how to trust it. ``proxy`` is a URL or None.

    ``identity`` differs when the server, its authority or our own certificate is another one.
    """

    host: str
    verify: ssl.SSLContext | bool
    identity: str
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
            identity=_identity(loaded),
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

        def read() -> None:
            if in_cluster:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=str(kubeconfig),
                    context=context,
                    client_configuration=configuration,
                    persist_config=False,
                )

        try:
            _within(_LOAD_SECONDS, read)
        except TimeoutError as error:
            raise CredentialsError(
                f"no Kubernetes credentials from {where} within {_LOAD_SECONDS:g} s: a hung exec plugin?"
            ) from error
        except (config.ConfigException, yaml.YAMLError, OSError, *_NO_KUBECONFIG) as error:
            said = " ".join(str(error).split())[:200]
            raise CredentialsError(f"no Kubernetes credentials from {where}: {said}") from error
        return configuration

    return load


def _within(seconds: float, work: Callable[[], None]) -> None:
    """Do ``work`` or raise TimeoutError: the official loader waits for exec plugins without end.

    Work that does not end keeps its thread, which does not keep the process.
    """
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="kubernetes-credentials", daemon=True).start()
    done.result(timeout=seconds)


def _identity(loaded: Any) -> str:
    """A digest of host and certificate files; raises CredentialsError."""
    digest = hashlib.sha256(str(loaded.host).encode())
    for kind in ("ssl_ca_cert", "cert_file", "key_file"):
        name = getattr(loaded, kind, None)
        try:
            digest.update(Path(name).read_bytes() if name else b"")
        except OSError as error:
            raise CredentialsError(f"the certificates for {loaded.host} cannot be read: {error}") from error
        digest.update(b"\0")
    return digest.hexdigest()


def _tls(loaded: Any) -> ssl.SSLContext | bool:
    try:
        context = ssl.create_default_context(cafile=loaded.ssl_ca_cert or None)
        # Python 3.13 asks for key identifiers that the authorities of many clusters (kubeadm, k3s) lack;
        # kubectl does not ask for them either.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if loaded.cert_file:
            context.load_cert_chain(loaded.cert_file, loaded.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(f"the certificates for {loaded.host} cannot be read: {error}") from error
    if not loaded.verify_ssl:  # the operator's own insecure-skip-tls-verify
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
