"""Checks: what may be asked and what may be said. Ready ones, and the names to write one's own."""

from turngate.checks.length import LengthCheck
from turngate.checks.secrets import SecretsCheck
from turngate.checks.terms import TermsCheck
from turngate.protocols import InputCheck, OutputCheck, ReviewRule
from turngate.records import Allow, Block, Prompt, Proposal, Replace, Review

__all__ = [
    "Allow",
    "Block",
    "InputCheck",
    "LengthCheck",
    "OutputCheck",
    "Prompt",
    "Proposal",
    "Replace",
    "Review",
    "ReviewRule",
    "SecretsCheck",
    "TermsCheck",
]
