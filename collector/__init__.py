"""Sources become Readings: what the field says, in the words of ``fleet``.

Here live the readers of every source (kernel log, Slurm, later nvidia-smi, DCGM, NICs, Kubernetes), the
clients that talk to a scheduler (the only transport in the house), and the encoding of what was read.

Not here: judgement. A reader reports what a source says and which part of it could not be used; whether
that is a fault, and what to do about it, is for ``rules`` and ``remediator``.
"""
