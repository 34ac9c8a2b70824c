"""``sickbay demo``: the real service on an injected clock over a simulated fleet, with scripted faults.

Here: the scenes and what must come of them, the clockwork that drives fleet and service, the picture on
the terminal. Not here: any decision; those are the service's own.
"""
