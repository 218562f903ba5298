"""Which bytes a header's name may have: those that Avro's strings hold."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from lakebackup_jobs.kafka.client.native import is_utf8

#: Ends and begins of the ranges in which the lead and the second byte of a character lie.
edges = st.sampled_from(
    [0, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xF5]
)


@given(st.binary(max_size=8) | st.lists(edges, max_size=5).map(bytes) | st.text(max_size=5).map(str.encode))
@example("aß€😀".encode())
@example(b"\xed\xa0\x80")  # half of a surrogate pair
@example(b"\xc0\x80")  # NUL in two bytes
@example(b"\xf4\x90\x80\x80")  # behind the last character
@example("€".encode()[:2])
def test_names_are_utf8_exactly_when_python_decodes_them(name: bytes) -> None:
    try:
        name.decode()
        text = True
    except UnicodeDecodeError:
        text = False
    content = np.frombuffer(name + b"\x80", np.uint8)
    assert is_utf8(content.ctypes.data, len(name)) == text
