"""Knowledge graphs: their facts, vectors learnt from them, mentions in texts, and questions answered over them."""

from typing import Any


def __getattr__(name: str) -> Any:
    """The flow `knowledge`, as deployments of former versions name it; torch comes with it."""
    if name == "knowledge":
        from flows.knowledge.flow import knowledge

        return knowledge
    raise AttributeError(name)
