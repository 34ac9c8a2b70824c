"""Kubernetes: the API client (the project's only transport to it) and readers of Node and Pod objects.

What lives here: HTTP with deadlines and error mapping, pure functions from API JSON to records, and
``auth``, the one module that knows the official client (it reads kubeconfigs and service accounts). What
doesn't: any decision whether to act.
"""
