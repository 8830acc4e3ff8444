"""What a function would compute, seen in its trace. Nothing is run here and nothing compiled.

JAX is imported when a function is traced, so that a judge can import this beside its probes.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any


def largest_array(fn: Callable[..., Any], *args: Any) -> int:
    """Elements of the largest array that `fn(*args)` computes and uses. It is only traced."""
    import jax

    def sizes(jaxpr: Any) -> Iterator[int]:
        used = {id(variable) for variable in jaxpr.outvars}
        for equation in reversed(jaxpr.eqns):
            results = [out for out in equation.outvars if id(out) in used]
            if not results:
                continue
            used.update(id(variable) for variable in equation.invars)
            yield from (math.prod(getattr(out.aval, "shape", ())) for out in results)
            for value in equation.params.values():
                for each in value if isinstance(value, list | tuple) else [value]:
                    inner = getattr(each, "jaxpr", each)
                    if hasattr(inner, "eqns"):
                        yield from sizes(inner)

    return max(sizes(jax.make_jaxpr(fn)(*args).jaxpr), default=0)
