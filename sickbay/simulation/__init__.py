"""A simulated cluster as a process: exporters, scheduler and agents over HTTP, faults on request.

What lives here is the process around the simulator. The controller beside it is the real one, and so are the
agents; what is simulated is hardware, its exporters, the scheduler and the people who use it.
"""
