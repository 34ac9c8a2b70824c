"""A small strict Kubernetes API server, and a simulated cluster behind it: for the demo and for tests.

Here: the API (``server``, ``routes``, ``evictions``, ``store``), on 127.0.0.1 over real HTTP, and what lives
behind it on a simulated fleet (``machines``: kubelets, device plugin, node controller; ``jobs``: the Job
controller, the scheduler, budgets; ``scheduler``: users and admins). All time is the injected clock's.

Not here: a client of Kubernetes, or anything that decides about a node's health. What the server knows of
Kubernetes is what our client may ask; wire details follow what a real kube-apiserver 1.36 was seen to do
(docs/kubernetes.md). It proves that two sides agree, not that Kubernetes does.
"""
