"""Workers start under the limits of a host."""

import subprocess
import sys

LOAD = ("outcome_rl.outcomes.isolated:load_isolated", "posixpath:join")
LIMITED = f"""
import base64, pickle, resource
from outcome_rl.isolation.worker_pool import WorkerPool
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
with WorkerPool({LOAD}, workers=1, timeout_s=20, memory_mib=9 << 10) as pool:
    print(pool.ask([base64.b64encode(pickle.dumps(("a", "b"))).decode()]))
"""


def test_workers_start_under_a_limit_below_memory_mib() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False)
    assert "'verdict': 'value'" in done.stdout, done.stderr
