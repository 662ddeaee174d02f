"""Counts and times of requests, in the text format of Prometheus, and a line of log for each."""

import bisect
import logging
from collections import Counter
from collections.abc import Mapping

from simple_spk.serve.keys import SCOPES

BUCKETS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
KNOWN = ("/", "/health", *(f"/{scope}" for scope in SCOPES))

logger = logging.getLogger("simple_spk.serve")


class RequestMetrics:
    """Counts and times of all requests, and nothing that they contain, such as names or keys."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._buckets: dict[str, list[int]] = {}

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a request; paths that do not exist, which may be any, are one."""
        path = path if path in KNOWN else "other"
        self._requests[path, status] += 1
        self._seconds[path] += seconds  # type: ignore[assignment]
        counts = self._buckets.setdefault(path, [0] * (len(BUCKETS_SECONDS) + 1))
        counts[bisect.bisect_left(BUCKETS_SECONDS, seconds)] += 1
        logger.info("%s %d %.0f ms", path, status, 1000 * seconds)

    def text(self, gauges: Mapping[str, float]) -> str:
        """All of it, with values of this moment."""
        lines = ["# TYPE simple_spk_requests_total counter"]
        for (path, status), count in sorted(self._requests.items()):
            lines.append(f'simple_spk_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE simple_spk_request_seconds histogram")
        name = "simple_spk_request_seconds"
        for path, counts in sorted(self._buckets.items()):
            total = 0
            for limit, count in zip((*BUCKETS_SECONDS, "+Inf"), counts, strict=True):
                total += count
                lines.append(f'{name}_bucket{{path="{path}",le="{limit}"}} {total}')
            lines.append(f'{name}_sum{{path="{path}"}} {self._seconds[path]:.6f}')
            lines.append(f'{name}_count{{path="{path}"}} {total}')
        for gauge, value in gauges.items():
            kind = "counter" if gauge.endswith("_total") else "gauge"
            lines += [f"# TYPE simple_spk_{gauge} {kind}", f"simple_spk_{gauge} {value:g}"]
        return "\n".join(lines) + "\n"
