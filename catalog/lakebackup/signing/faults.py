"""What can be wrong with a signed file. Each kind is a class of its own, so programs can tell them apart."""

from __future__ import annotations

from lakebackup.errors import Damaged


class Untrusted(Damaged):
    """A signed file that its public key does not vouch for."""


class Malformed(Untrusted):
    """The file is not of the form in which signed statements are written."""


class WrongType(Untrusted):
    """The file is well formed, but is not a statement of this kind."""


class PayloadChanged(Untrusted):
    """The payload is not the one that was written."""


class NotSigned(Untrusted):
    """The file has no signature."""


class UnknownKey(Untrusted):
    """The file is signed with a key that is not among the trusted ones."""


class RetiredKey(Untrusted):
    """The file is signed with a key that is no longer trusted."""


class WrongSignature(Untrusted):
    """A trusted key did not make this signature over this payload."""


class WrongSubject(Untrusted):
    """A subject's digest is not that of what the statement says about it."""


class WrongPage(Untrusted):
    """The page beside a statement is not the page that was written with it."""


class TooOld(Untrusted):
    """The statement is of an earlier time than the reader requires."""


class WrongProof(Untrusted):
    """A proof does not lead from its row to what was signed."""


class ChainFault(Untrusted):
    """A chain of signatures, or what it signs, is not as it was signed."""


class MissingLink(ChainFault):
    """A link is missing between others of a chain."""


class WrongOrder(ChainFault):
    """A link is in the place of another one, or in the chain of another source."""


class BrokenChain(ChainFault):
    """A link does not follow the one before it."""


class BehindCheckpoint(ChainFault):
    """A chain ends before a link that a checkpoint names."""


class OtherHistory(ChainFault):
    """A chain has another link than a checkpoint names."""


class SubjectMissing(ChainFault):
    """An object that a link signs is not there."""


class SubjectChanged(ChainFault):
    """An object that a link signs is not the one that was signed."""


class RowsChanged(ChainFault):
    """The catalog has other rows of a backup than its signed manifest."""


class NoLink(ChainFault):
    """A backup that was made after the chain began has no link in it."""
