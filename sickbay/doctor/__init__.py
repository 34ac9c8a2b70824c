"""A live self-check that changes nothing: rights, reachability, clocks, versions, settings that hurt.

Each check answers with verdicts; ``run`` gives every one of them a deadline, so that one that hangs holds up
nobody.
"""
