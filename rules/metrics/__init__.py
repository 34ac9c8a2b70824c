"""Rules on metrics: sample windows and the conditions judged over them, vectorised over the fleet.

Lives here: the words of a condition, their YAML, the store of samples, the kernels, the evaluation.
NumPy (extra ``models``) is imported by ``windows``, ``kernels`` and ``evaluate`` only: an agent or
``sickbay xid`` loads the rules without it.
"""
