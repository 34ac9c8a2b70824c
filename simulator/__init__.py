"""A synthetic fleet for the demo, backtests and tests: hardware, scheduler, agents, scripted faults.

Here: simulated nodes and GPUs with their kernel logs (``fleet``), a scheduler with Slurm's semantics that
implements the backend protocol (``scheduler``), what the nodes' agents would push (``agents``), faults
with known truth (``faults``), and all of it in one piece (``cluster``). All time is the injected clock's.

Not here: detection, decisions, anything that judges. The simulator imports the vocabulary only.
"""
