"""Prompts assembled from trusted parts, within a budget: fragments, their audit, and the usage of each."""

from .assemble import TokenCounter
from .builder import ContextBuilder, Transform, define_context_fragments
from .errors import ContextBuildError, ContextDefinitionError, ContextErrorCode
from .fragments import ContextFragment, FragmentDefinition, Lifetime, Trust
from .messages import CharUnit, Role
from .results import BuiltContext, ContextPlan, FragmentChange, FragmentUsage, TokenSource

__all__ = [
    "BuiltContext",
    "CharUnit",
    "ContextBuildError",
    "ContextBuilder",
    "ContextDefinitionError",
    "ContextErrorCode",
    "ContextFragment",
    "ContextPlan",
    "FragmentChange",
    "FragmentDefinition",
    "FragmentUsage",
    "Lifetime",
    "Role",
    "TokenCounter",
    "TokenSource",
    "Transform",
    "Trust",
    "define_context_fragments",
]
