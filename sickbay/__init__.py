"""The application: command line, configuration, control loop, HTTP API, demo.

What decides and what acts lives below (rules, remediator); here it is configured, started, shown and
spoken to. Nobody imports this package.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("sickbay")
except PackageNotFoundError:  # a source tree that nobody installed
    __version__ = "0+unknown"
