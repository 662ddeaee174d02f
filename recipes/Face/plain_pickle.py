"""A pickle as plain data, for files that others wrote: what it would call is named, never called.

The .bin files of face recognition are pickles, and unpickling runs whatever a file asks for. The
standard library's unpickler can be forbidden names, but still calls what it is allowed; here the
instructions are only read.
"""

import mmap
import pickletools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = object()
TRUE_AND_FALSE = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None}
CONSTANTS = {
    *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
OLD_TEXTS = {"BINSTRING", "SHORT_BINSTRING"}  # bytes, when Python 2 wrote them
TUPLE_SIZES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class Name:
    """A class or function that a pickle speaks of."""

    module: str
    name: str


@dataclass
class Call:
    """What a pickle would call, with what, and the state that it would give to the result."""

    function: Name
    arguments: tuple[Any, ...]
    state: Any = None


def read_plain_pickle(path: str | Path) -> Any:
    """The content of a pickle file: lists, tuples, texts, bytes, numbers, and ``Call`` objects.

    Python 2's texts come as bytes. Anything else, or a file that ends too soon, is a ValueError.
    """
    path = Path(path)
    try:
        # Mapped, because a file that claims to hold terabytes would be given the memory for them.
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Stack().run(data)
    except FileNotFoundError:
        raise FileNotFoundError(f"no file {path}: correct the path") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{path} is truncated, damaged, or no pickle of plain data ({error}): fetch it again"
        ) from error


class _Stack:
    """The stack machine that a pickle is a program for, without its power to call anything."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, file: Any) -> Any:
        """The value that is left at the end of the program."""
        for opcode, argument, _ in pickletools.genops(file):
            if opcode.name == "STOP":
                (value,) = self.values
                return value
            self.step(opcode.name, argument)
        raise ValueError("it has no end")

    def step(self, opcode: str, argument: Any) -> None:
        """Carry out one instruction."""
        values = self.values
        if opcode in CONSTANTS:
            values.append(argument)
        elif opcode in OLD_TEXTS:
            values.append(argument.encode("latin-1"))
        elif opcode in TRUE_AND_FALSE:
            values.append(TRUE_AND_FALSE[opcode])
        elif opcode in TUPLE_SIZES:
            values.append(tuple(self.pop(TUPLE_SIZES[opcode])))
        elif opcode == "TUPLE":
            values.append(tuple(self.pop_to_mark()))
        elif opcode == "MARK":
            values.append(MARK)
        elif opcode == "EMPTY_LIST":
            values.append([])
        elif opcode == "LIST":
            values.append(self.pop_to_mark())
        elif opcode == "APPEND":
            (item,) = self.pop(1)
            self.top_list().append(item)
        elif opcode == "APPENDS":
            items = self.pop_to_mark()
            self.top_list().extend(items)
        elif opcode == "POP":
            self.pop(1)
        elif opcode in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(argument)] = values[-1]
        elif opcode == "MEMOIZE":
            self.memo[len(self.memo)] = values[-1]
        elif opcode in ("GET", "BINGET", "LONG_BINGET"):
            values.append(self.memo[int(argument)])
        elif opcode == "GLOBAL":
            values.append(Name(*argument.split(" ", 1)))
        elif opcode == "STACK_GLOBAL":
            values.append(Name(*map(str, self.pop(2))))
        elif opcode == "REDUCE":
            function, arguments = self.pop(2)
            if not isinstance(function, Name) or not isinstance(arguments, tuple):
                raise ValueError("it calls something that has no name")
            values.append(Call(function, arguments))
        elif opcode == "BUILD":
            (state,) = self.pop(1)
            if not isinstance(values[-1], Call):
                raise ValueError("it changes something that it did not make")
            values[-1].state = state
        elif opcode not in ("PROTO", "FRAME"):
            raise ValueError(f"the instruction {opcode} is not needed for plain data")

    def pop(self, count: int) -> list[Any]:
        """The last values, taken off the stack."""
        start = len(self.values) - count
        popped = self.values[max(0, start) :]
        if start < 0 or any(value is MARK for value in popped):
            raise ValueError("it takes more than there is")
        del self.values[start:]
        return popped

    def pop_to_mark(self) -> list[Any]:
        """The values since the last mark, taken off the stack together with it."""
        start = len(self.values) - 1
        while start >= 0 and self.values[start] is not MARK:
            start -= 1
        if start < 0:
            raise ValueError("a mark is missing")
        popped = self.values[start + 1 :]
        del self.values[start:]
        return popped

    def top_list(self) -> list[Any]:
        """The list on top of the stack."""
        if not isinstance(self.values[-1], list):
            raise ValueError("it appends to something that is no list")
        return self.values[-1]
