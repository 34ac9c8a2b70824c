"""The HTTP API, the console page and the server thread (docs/api.md).

What lives here: tokens turned into identities, sizes and content types checked, bodies decoded, answers
encoded. What doesn't: decisions. Everything behind the door is ``sickbay.ports.Service``.
"""

from sickbay.http.access import Access, Identity, Method, TokenAccess, access_from_book
from sickbay.http.app import SickbayApi, create_app
from sickbay.http.server import HttpServer

__all__ = [
    "Access",
    "HttpServer",
    "Identity",
    "Method",
    "SickbayApi",
    "TokenAccess",
    "access_from_book",
    "create_app",
]
