"""``nvidia-smi`` as a source: any bytes in, samples, processes and problems out.

``reader.read_nvidia_smi`` recognises by content what was printed (XML of ``-q -x``, the CSV queries,
``--version``, an error sentence, the table for people) and is pure; ``live.read_live`` runs the tool.
Both outputs of GPUs are brought to one view (``view``) and read by one table of fields (``fields``).

Not here: judgement. A GPU that hangs on one lane is two samples; a GPU that the tool lost is a problem.
"""

from collector.nvidia_smi.live import read_live
from collector.nvidia_smi.reader import read_nvidia_smi

__all__ = ["read_live", "read_nvidia_smi"]
