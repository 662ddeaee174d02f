"""How much VoxCeleb1 and VoxCeleb2 hold, and which of their speakers are in which part."""

import functools
import re
from typing import NamedTuple

# VoxCeleb1 dev and test are told apart by these speakers; so are those of VoxCeleb2.
_VOXCELEB1_TEST = range(10270, 10310)
_VOXCELEB2_TEST_NUMBERS = """
17 61 81 154 419 562 812 817 866 926 1000 1041 1066 1106 1224 1228 1298 1333 1437 1460 1509
1541 1567 1593 1618 1822 1892 1989 2019 2057 2086 2181 2286 2317 2445 2465 2542 2548 2576
2577 2685 2725 2745 3030 3041 3127 3178 3347 3382 3524 3677 3789 3839 3862 3969 3978 3980
3981 4006 4030 4094 4119 4170 4232 4253 4276 4295 4366 4478 4536 4570 4627 4656 4657 4862
4950 5015 5055 5124 5176 5202 5348 5459 5594 5654 5714 5816 5850 5999 6104 6209 6310 6484
6692 6811 6816 6913 7312 7354 7396 7414 7426 7494 7620 7621 7663 7802 7868 7874 7961 8149
8374 8392 8456 8548 8552 8696 8701 8911 9017
"""
_VOXCELEB2_TEST = frozenset(map(int, _VOXCELEB2_TEST_NUMBERS.split()))


class Totals(NamedTuple):
    """What a whole part of VoxCeleb holds."""

    speakers: int
    utterances: int
    hours: float


TOTALS = {
    "VoxCeleb1 dev": Totals(1211, 148_642, 340.4),
    "VoxCeleb1 test": Totals(40, 4_874, 11.2),
    "VoxCeleb2 dev": Totals(5994, 1_092_009, 2360.2),
    "VoxCeleb2 test": Totals(118, 36_237, 79.9),
}


@functools.cache  # a million utterances have few speakers
def part_of(speaker: str) -> str | None:
    """The part of VoxCeleb that a speaker such as id10270 is in; None for other names.

    >>> part_of("id10270"), part_of("id00012"), part_of("kevin")
    ('VoxCeleb1 test', 'VoxCeleb2 dev', None)
    """
    if re.fullmatch(r"id\d{5}", speaker) is None:
        return None
    number = int(speaker[2:])
    if number > 10000:
        return "VoxCeleb1 test" if number in _VOXCELEB1_TEST else "VoxCeleb1 dev"
    return "VoxCeleb2 test" if number in _VOXCELEB2_TEST else "VoxCeleb2 dev"
